"""Sizes that a module's code looks at: a library is for those that take the same way through it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import byoc
from byoc.deploy.conditions import condition
from byoc.errors import CompileError, InputError

AUTO = torch.export.Dim.AUTO


class Even(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2 if x.shape[0] % 2 == 0 else x.exp() + 1


class Many(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2 if x.shape[0] * x.shape[1] > 30 else x.exp() + 1


class Wide(nn.Module):
    """Pads to a square, as preprocessing does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        missing = x.shape[1] - x.shape[0]
        return nn.functional.pad(x, (0, 0, 0, missing)).exp() if missing > 0 else x.exp()


class Halved(nn.Module):
    """Counts in Python's floats, which the tracer fixes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp()[: int(2 * x.shape[0] ** 0.5)]


class Both(nn.Module):
    def forward(self, xs: dict[str, torch.Tensor], *rest: torch.Tensor) -> torch.Tensor:
        return xs["a"].exp() * (2 if xs["a"].shape[0] > rest[0].shape[0] else 3) + rest[0].sum()


class Asked(nn.Module):
    """Code that asks for something about the sizes."""

    def __init__(self, question: Callable[[torch.Size], bool]) -> None:
        super().__init__()
        self.question = question

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * 2 if self.question(x.shape) else x.exp() + 1


class Squeezed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp().squeeze()


def compiled(module: nn.Module, path: Path, inputs: tuple, shapes: tuple) -> byoc.Model:
    done = byoc.compile(
        module.eval(), path, example_inputs=inputs, dynamic_shapes=shapes, min_bytes=0
    )
    assert len(done.report.regions) == 1 and done.report.left == ()
    return byoc.load(path)


def require_equal(library: byoc.Model, module: nn.Module, *shape: int) -> None:
    x = torch.randn(shape)
    (found,) = library.run({library.inputs[0].name: x.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "first", "taken", "refused", "told"),
    [
        (Even(), (8, 6), (2, 5), (7, 6), r"needs s\d+ % 2 == 0, where s\d+ = 7"),
        (Even(), (8, 6), (0, 5), (1, 6), r"% 2 == 0"),
        (Many(), (8, 6), (5, 7), (2, 6), r"> 30, where s\d+ = \d, s\d+ = \d"),
        (Wide(), (4, 6), (2, 9), (9, 4), r"was not made for these sizes"),
        (Halved(), (8, 6), (8, 3), (6, 6), r"trunc\(2.* \*\* 0.5\) == 5"),
    ],
)
def test_sizes_that_go_another_way_are_refused(
    module: nn.Module, first: tuple, taken: tuple, refused: tuple, told: str, tmp_path: Path
) -> None:
    shapes = ({0: AUTO, 1: AUTO},)
    with compiled(module, tmp_path / "model.so", (torch.randn(first),), shapes) as library:
        require_equal(library, module, *first)
        require_equal(library, module, *taken)
        with pytest.raises(InputError, match=told):
            library.run({"x": torch.randn(refused).numpy()})


@pytest.mark.parametrize(
    ("question", "taken", "refused", "told"),
    [
        (lambda s: s[0] == 17, (16, 6), (17, 6), r"s\d+ != 17"),
        (lambda s: s[0] * s[1] == 34, (17, 3), (17, 2), r"s\d+ \* s\d+ != 34"),
        (lambda s: s[0] - s[1] == 9, (17, 9), (17, 8), "!= 9, where"),
        (lambda s: s[0] // 3 == 5, (18, 4), (16, 4), r"s\d+ // 3 != 5"),
        (lambda s: s[0] // 2 % 3 == 1, (4, 4), (8, 4), r"s\d+ // 2 % 3 != 1"),
        (lambda s: round(s[0] / 2.5) == 4, (8, 4), (11, 4), r"round\(float\(s\d+\) / 2.5\) != 4"),
        (lambda s: s[0] * s[1] > 10**6, (99, 8), (1100, 1100), "<= 1000000"),
        (lambda s: s[0] + 2 * s[1] > 3000, (99, 8), (1100, 1100), "<= 3000"),
        (lambda s: s[0] == 1, (2, 6), (1, 6), "is 1 and must be 2 or more"),
    ],
)
def test_questions_of_sizes(
    question: Callable[[torch.Size], bool],
    taken: tuple,
    refused: tuple,
    told: str,
    tmp_path: Path,
) -> None:
    module, shapes = Asked(question), ({0: AUTO, 1: AUTO},)
    with compiled(module, tmp_path / "model.so", (torch.randn(5, 6),), shapes) as library:
        require_equal(library, module, 5, 6)
        require_equal(library, module, *taken)
        with pytest.raises(InputError, match=told):
            library.run({"x": torch.randn(refused).numpy()})


def test_axes_that_a_squeeze_takes_away(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("rows"), 2: AUTO},)
    with compiled(Squeezed(), tmp_path / "model.so", (torch.randn(4, 1, 6),), shapes) as library:
        require_equal(library, Squeezed(), 2, 1, 2)
        for refused in ((1, 1, 6), (4, 1, 1)):
            with pytest.raises(InputError, match="is 1 and must be 2 or more"):
                library.run({"x": torch.randn(refused).numpy()})


def test_single_rows_stay_where_they_are_computed_alike(tmp_path: Path) -> None:
    module, shapes = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).eval(), ({0: AUTO, 1: AUTO},)
    with compiled(module, tmp_path / "model.so", (torch.randn(3, 5, 6),), shapes) as library:
        assert library.metadata.conditions == ()
        require_equal(library, module, 1, 1, 6)


def test_a_file_tells_sizes_from_numbers(tmp_path: Path) -> None:
    module, shapes = Asked(lambda sizes: sizes[0] == 17), ({0: AUTO},)
    program = torch.export.export(module.eval(), (torch.randn(8, 6),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    done = byoc.compile(tmp_path / "model.pt2", tmp_path / "model.so", min_bytes=0)
    assert [text.partition(" ")[2] for text in done.metadata.conditions] == ["!= 17"]


def test_nested_inputs(tmp_path: Path) -> None:
    module, inputs = Both(), ({"a": torch.randn(6, 4)}, torch.randn(5))
    shapes = (
        {"a": {0: torch.export.Dim("n", min=3, max=99)}},
        ({0: torch.export.Dim("m", max=50)},),
    )
    with compiled(module, tmp_path / "model.so", inputs, shapes) as library:
        names = [info.name for info in library.inputs]
        arrays = (torch.randn(3, 4).numpy(), torch.randn(7).numpy())
        with pytest.raises(InputError, match=r"needs n > m, where m = 7, n = 3"):
            library.run(dict(zip(names, arrays, strict=True)))


def test_names_that_users_gave(tmp_path: Path) -> None:
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    shapes = ({0: n, 1: m},)
    with compiled(Many(), tmp_path / "model.so", (torch.randn(8, 6),), shapes) as library:
        assert library.metadata.conditions == ("m * n > 30",)


def test_a_file_has_them(tmp_path: Path) -> None:
    program = torch.export.export(
        Even().eval(), (torch.randn(8, 6),), dynamic_shapes=({0: AUTO},), strict=False
    )
    torch.export.save(program, tmp_path / "model.pt2")
    done = byoc.compile(tmp_path / "model.pt2", tmp_path / "model.so", min_bytes=0)
    assert [text.partition(" ")[2] for text in done.metadata.conditions] == ["% 2 == 0"]


@pytest.mark.slow
def test_what_tells_sizes_from_one_says_nothing(tmp_path: Path) -> None:
    """Rules of layouts, which the tracer notes for sizes of 2 and more."""
    layers = (nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    module, shapes = nn.Sequential(*layers).eval(), ({0: AUTO, 2: AUTO, 3: AUTO},)
    inputs = (torch.randn(2, 3, 32, 32),)
    with compiled(module, tmp_path / "model.so", inputs, shapes) as library:
        assert library.metadata.conditions == ()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_images_enlarged_by_a_float(mode: str, tmp_path: Path) -> None:
    module = nn.Upsample(scale_factor=2.0, mode=mode)
    x, shapes = torch.randn(2, 3, 6, 8), ({0: AUTO, 2: AUTO, 3: AUTO},)
    with compiled(module, tmp_path / "model.so", (x,), shapes) as library:
        assert library.metadata.conditions == ()
        for shape in ((1, 3, 9, 7), (3, 3, 5, 11)):
            given = torch.randn(shape)
            (found,) = library.run({library.inputs[0].name: given.numpy()}).values()
            torch.testing.assert_close(torch.from_numpy(found), module(given), rtol=1e-4, atol=1e-5)


def test_the_standalone_form_refuses(tmp_path: Path) -> None:
    program = torch.export.export(
        Even().eval(), (torch.randn(8, 6),), dynamic_shapes=({0: AUTO},), strict=False
    )
    with pytest.raises(CompileError, match=r"looks at no condition on sizes.*% 2 == 0"):
        byoc.compile_standalone(program, tmp_path / "model", min_bytes=0)


def test_conditions() -> None:
    known = condition("max(a, 2) // b == 3 or not -a < 0 <= b")
    assert known.names == {"a", "b"}
    assert known.holds({"a": 6, "b": 2}) and not known.holds({"a": 6, "b": 1})
    assert known.holds({"a": 6, "b": 0})  # a quotient by 0 tells nothing
    for text in ("a.b == 1", "open('x')", "a[0]", "'a' == 1", "a ==", "a @ b", "max(a, key=b)"):
        with pytest.raises(ValueError, match=r"condition"):
            condition(text)


class BesideSounds(nn.Module):
    """What asks for an even length, in code of its own, beside what asks in PyTorch's."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        window = torch.ones(16)
        sizes = torch.stft(x, 16, 4, window=window, return_complex=True).abs().mean((1, 2))
        first = y[:, ::2] * 2 if y.shape[1] % 2 == 0 else y[:, 1::2]
        return first + sizes[:, None]


@pytest.mark.slow
@torch.no_grad()
def test_named_sizes_have_conditions(tmp_path: Path) -> None:
    torch.manual_seed(8)
    length, n = torch.export.Dim("length", min=16, max=400), torch.export.Dim("n", min=4)
    module, library = BesideSounds().eval(), tmp_path / "h.so"
    example = {"x": torch.randn(2, 40), "y": torch.randn(2, 6)}
    shapes = {"x": {1: length}, "y": {1: n}}
    compiled = byoc.compile(module, library, example_inputs=example, dynamic_shapes=shapes)
    assert not compiled.report.left and len(compiled.report.regions) == 1
    assert [i.shape for i in compiled.metadata.inputs] == [(2, "length"), (2, "y_1")]
    with byoc.load(library) as model:
        for x, y in ((40, 6), (83, 10)):
            given = {"x": torch.randn(2, x), "y": torch.randn(2, y)}
            found = model.run({name: t.numpy() for name, t in given.items()})["output"]
            torch.testing.assert_close(torch.from_numpy(found), module(**given))
        with pytest.raises(byoc.InputError, match="y_1 % 2 == 0, where y_1 = 7"):
            model.run({"x": np.zeros((2, 40), np.single), "y": np.zeros((2, 7), np.single)})
        with pytest.raises(byoc.InputError, match="y_1 is 2 and must be 4 or more"):
            model.run({"x": np.zeros((2, 40), np.single), "y": np.zeros((2, 2), np.single)})
        with pytest.raises(byoc.InputError, match="length is 500"):
            model.run({"x": np.zeros((2, 500), np.single), "y": np.zeros((2, 6), np.single)})
    same = {"x": {1: n}, "y": {1: n}}
    with pytest.raises(byoc.ModelError, match="n"):
        byoc.compile(module, example_inputs=example, dynamic_shapes=same)


class Halved(nn.Module):
    """Every two rows as one, and a relative shift of what is between these, as Zipformer has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, rows, width = x.shape
        half = (rows + 1) // 2
        x = torch.cat([x, x[:, rows - 1 :].expand(count, 2 * half - rows, width)], 1)
        x = x.reshape(count, half, 2, width).sum(2)
        between = x.new_ones(count, half, 2 * half - 1) * x[..., :1]
        shifted = torch.cat([torch.zeros(count, half, 1), between], -1)
        shifted = shifted.view(count, 2 * half, half)[:, 1:].view_as(between)
        return x @ x.mT + shifted[..., :half]


@pytest.mark.slow
def test_conditions_that_the_tracer_does_not_solve(tmp_path: Path) -> None:
    """It expects one size in what SymPy makes of them, and is none the worse without."""
    shapes = ({0: torch.export.Dim("b"), 1: torch.export.Dim("n")},)
    inputs = (torch.randn(2, 16, 4),)
    with compiled(Halved(), tmp_path / "h.so", inputs, shapes) as library:
        for count, rows in ((2, 16), (3, 23), (1, 40)):
            require_equal(library, Halved(), count, rows, 4)


class Known(nn.Module):
    """Asks whether tensors are equal: shapes tell, or an error follows, or numbers are known."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([1, 0]))
        self.points = nn.Parameter(torch.rand(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.equal(x, self.points):
            return x
        if not x.isnan().logical_not().equal(x == x):
            raise ValueError("need numbers")
        both = torch.cat([self.points, x])
        return both.exp() * (2 if torch.equal(self.order, torch.tensor([0, 1])) else 3)


@torch.no_grad()
def test_shapes_tell_that_tensors_differ(tmp_path: Path) -> None:
    module, library = Known().eval(), tmp_path / "m.so"
    example, shapes = (torch.rand(3, 4),), ({0: torch.export.Dim("n")},)
    compiled = byoc.compile(
        module, library, example_inputs=example, dynamic_shapes=shapes, min_bytes=0
    )
    assert not compiled.report.left and len(compiled.report.regions) == 1
    with byoc.load(library) as model:
        for count in (3, 1, 8):
            x = torch.rand(count, 4)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))
        with pytest.raises(byoc.InputError, match="n != 5, where n = 5"):
            model(torch.rand(5, 4))
