"""Axes of several inputs that have one name, and parts of what is joined of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import byoc
from byoc.frontends.torch.declared_axes import with_two_rows
from byoc.frontends.torch.nodes import inputs_of
from byoc.frontends.torch.program import exported


class _Both(torch.nn.Module):
    """Convolves two images at once, as RAFT does, and multiplies what comes of one and other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Conv2d(3, 8, 3)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        one, other = self.layer(torch.cat([first, second])).chunk(2)
        return one * other


class _Nested(_Both):
    def forward(self, images: list[torch.Tensor], scale: torch.Tensor) -> torch.Tensor:
        return super().forward(*images) * scale[:, None, None, None]


class _Alone(_Both):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(image, image + 1)


@pytest.mark.slow
@torch.no_grad()
def test_of_two_inputs(tmp_path: Path) -> None:
    batch = {0: torch.export.Dim("b")}
    _check(_Both(), [(3, 9, 9), (3, 9, 9)], (batch, batch), tmp_path)
    _check(_Both(), [(3, 9, 9), (3, 9, 9)], {"second": batch, "first": batch}, tmp_path)


def test_names_in_another_order() -> None:
    n, m = torch.export.Dim("n"), torch.export.Dim("m")

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.sum() + y

    shapes = {"y": {0: m}, "x": {0: n}}
    program = exported(Module().eval(), (torch.rand(3), torch.rand(4)), shapes)
    given = {n.name: n.meta["val"].shape for n in inputs_of(program.exported)}
    assert program.symbols == {str(given["x"][0]): "n", str(given["y"][0]): "m"}


@pytest.mark.slow
@torch.no_grad()
def test_of_one_input(tmp_path: Path) -> None:
    _check(_Alone(), [(3, 9, 9)], ({0: torch.export.Dim("b")},), tmp_path)


@pytest.mark.slow
@torch.no_grad()
def test_of_a_list(tmp_path: Path) -> None:
    batch = {0: torch.export.Dim("b")}
    _check(_Nested(), [(3, 9, 9), (3, 9, 9), ()], ([batch, batch], batch), tmp_path)


@torch.no_grad()
def test_of_examples_of_one_row(tmp_path: Path) -> None:
    """PyTorch's tracer would fix axes of 1."""
    batch, steps = torch.export.Dim("b"), torch.export.Dim("t", min=1)
    _check(_Both(), [(3, 9, 9), (3, 9, 9)], ({0: batch},) * 2, tmp_path, example=1)
    shapes = ([{0: batch}, {0: batch}], {0: torch.export.Dim.DYNAMIC})
    _check(_Nested(), [(3, 9, 9), (3, 9, 9), ()], shapes, tmp_path, example=1)
    layer, given = torch.nn.Linear(4, 2).eval(), torch.randn(1, 1, 4)
    byoc.compile(
        layer,
        tmp_path / "layer.so",
        example_inputs={"input": given},
        dynamic_shapes={"input": (batch, steps, None)},
    )
    with byoc.load(tmp_path / "layer.so") as model:
        for size in ((1, 1, 4), (3, 1, 4), (1, 5, 4)):
            x = torch.randn(size)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), layer(x))


def test_that_cannot_be_two() -> None:
    one, twice = torch.export.Dim("n", max=1), 2 * torch.export.Dim("n")
    layer, given = torch.nn.Identity().eval(), torch.randn(1, 4)
    for dim in (one, torch.export.Dim.AUTO, None):
        assert with_two_rows(layer, ((given,), {}), ({0: dim},))[0][0] is given
    assert with_two_rows(layer, ((given,), {}), ({0: twice.root, 1: twice},))[0][0] is given


def _check(
    module: _Both, rows: list[tuple[int, ...]], shapes: object, folder: Path, example: int = 2
) -> None:
    def given(batch: int) -> list[torch.Tensor]:
        return [torch.rand(batch, *row) for row in rows]

    def arguments(inputs: list[torch.Tensor]) -> tuple[object, ...]:
        return (inputs[:2], inputs[2]) if len(inputs) == 3 else tuple(inputs)

    module.eval()
    done = byoc.compile(
        module,
        folder / "m.so",
        example_inputs=arguments(given(example)),
        dynamic_shapes=shapes,
    )
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(folder / "m.so") as compiled:
        for batch in (2, 1, 5):
            inputs = given(batch)
            result = compiled(*(part.numpy() for part in inputs))
            torch.testing.assert_close(torch.from_numpy(result), module(*arguments(inputs)))
