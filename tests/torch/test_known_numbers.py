"""Whole numbers among a module's buffers that decide what is computed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ModelError, UnsupportedForm
from byoc.frontends.torch.program import exported


class Padded(nn.Module):
    """Steps are padded as codecs of sounds do it, by numbers that are buffers."""

    def __init__(self, is_written: bool) -> None:
        super().__init__()
        self.is_written = is_written
        self.inner = nn.Conv1d(3, 4, 5, 2)
        self.register_buffer("stride", torch.tensor(2), persistent=False)
        self.register_buffer("taps", torch.tensor(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_written:
            self.taps.add_(1)
        frames = (x.shape[-1] - self.taps + 3) / self.stride + 1
        wanted = (torch.ceil(frames).to(torch.int64) - 1) * self.stride + self.taps - 3
        if wanted > x.shape[-1]:
            x = nn.functional.pad(x, (3, int(wanted - x.shape[-1])))
        return self.inner(x)


@torch.no_grad()
def test_numbers_of_buffers_decide(tmp_path: Path) -> None:
    """They are fixed; the module keeps its class and its buffers."""
    module, x = Padded(False).eval(), torch.randn(2, 3, 11)
    compiled = byoc.compile(
        module,
        tmp_path / "padded.so",
        example_inputs=(x,),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 1
    assert compiled.report.left == ()
    assert type(module) is Padded
    assert list(dict(module.named_buffers())) == ["stride", "taps"]
    with byoc.load(tmp_path / "padded.so") as model:
        for count in (2, 1, 4):
            x = torch.randn(count, 3, 11)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))


class Widened(Padded):
    """No branch asks for the width of the padding, which is a tensor (Mimi)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = (x.shape[-1] - self.taps + 3) / self.stride + 1
        wanted = (torch.ceil(frames).to(torch.int64) - 1) * self.stride + self.taps - 3
        return self.inner(nn.functional.pad(x, (self.taps - 2, wanted - x.shape[-1])))


@torch.no_grad()
def test_a_width_that_numbers_of_buffers_tell(tmp_path: Path) -> None:
    module, path = Widened(False).eval(), tmp_path / "widened.so"
    compiled = byoc.compile(module, path, example_inputs=(torch.randn(2, 3, 12),), min_bytes=0)
    assert (len(compiled.report.regions), compiled.report.left) == (1, ())
    x = torch.randn(2, 3, 12)
    with byoc.load(path) as model:
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))


def test_a_width_that_open_sizes_tell_is_refused_in_plain_words(tmp_path: Path) -> None:
    shapes = ({2: torch.export.Dim("frames", min=8)},)
    with pytest.raises(UnsupportedForm, match="padding by a number that a tensor holds; need int"):
        byoc.compile(
            Widened(False).eval(),
            tmp_path / "refused.so",
            example_inputs=(torch.randn(2, 3, 12),),
            dynamic_shapes=shapes,
        )


class Solved(nn.Module):
    """Steps between times, and a mark that is a float, are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.register_buffer("times", torch.tensor([0.0, 0.3, 1.0]))
        self.register_buffer("is_scaled", torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        times = self.times.flip(0) if self.times[0] > self.times[1] else self.times
        for start, end in pairwise(times):
            x = x + (end - start) * self.inner(x).tanh()
        return x * 3 if self.is_scaled > 0.0 else x


@torch.no_grad()
def test_floats_of_buffers_decide(tmp_path: Path) -> None:
    module, path = Solved().eval(), tmp_path / "m.so"
    given = {"example_inputs": (torch.randn(2, 8),)}
    axes = ({0: torch.export.Dim("batch")},)
    report = byoc.compile(module, path, **given, dynamic_shapes=axes, min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    assert set(dict(module.named_buffers())) == {"times", "is_scaled"}
    with byoc.load(path) as model:
        for count in (2, 1, 4):
            x = torch.randn(count, 8)
            torch.testing.assert_close(torch.from_numpy(model(x)), module(x))


@pytest.mark.slow
def test_numbers_that_are_written_decide_nothing() -> None:
    with pytest.raises(byoc.ByocError, match="control flow depends on the data"):
        byoc.compile(Padded(True).eval(), example_inputs=(torch.randn(2, 3, 12),))


class Columns(nn.Module):
    """Some columns of a table are categories: which, says a tensor that is no buffer, and one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_number = torch.tensor([True, False, True, True])
        self.register_buffer("sizes", torch.tensor([2, 3]))
        self.classes = nn.Embedding(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        columns = []
        for place, is_number in enumerate(self.is_number):
            column = x[:, place]
            columns.append(column[:, None] if is_number else self.classes(column.long()))
        found = torch.cat(columns, 1)
        found -= found.mean(1, keepdim=True)
        return found.cumsum(1)[:, : int(self.sizes.sum())]


@pytest.mark.slow
@torch.no_grad()
def test_rows_of_numbers_decide(tmp_path: Path) -> None:
    module, batch = Columns().eval(), torch.export.Dim("batch")
    drawn = [torch.randint(0, 5, (count, 4)).float() for count in (3, 1, 6)]
    given = {"example_inputs": (drawn[0],), "dynamic_shapes": ({0: batch},), "min_bytes": 0}
    report = byoc.compile(module, tmp_path / "columns.so", **given).report
    assert report.left == () and len(report.regions) == 1
    assert type(module) is Columns and module.is_number.sum() == 3
    with byoc.load(tmp_path / "columns.so") as model:
        for x in drawn:
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))


class Integrated(nn.Module):
    """Steps of Euler's between times that are made of numbers, and are asked for their order."""

    def __init__(self, is_written: bool) -> None:
        super().__init__()
        self.is_written, self.slope = is_written, nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        times = torch.linspace(0, 1, 4)
        if self.is_written:
            times[1] = x.sum()
        if not (times[1:] > times[:-1]).all():
            return x
        for step in torch.diff(times):
            x = x + step * self.slope(x).tanh()
        return x


@torch.no_grad()
def test_tensors_made_of_numbers_decide(tmp_path: Path) -> None:
    module, path = Integrated(False).eval(), tmp_path / "integrated.so"
    axes = ({0: torch.export.Dim("batch")},)
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(2, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert len(report.regions) == 1 and report.left == ()
    with byoc.load(path) as model:
        x = torch.randn(5, 8)
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))


@pytest.mark.parametrize("sign", [-1, 1])
def test_data_that_is_written_into_them_decides_nothing(sign: int) -> None:
    given = (torch.full((2, 8), sign * 0.01),)
    with pytest.raises(byoc.ByocError, match="control flow depends on the data"):
        byoc.compile(Integrated(True).eval(), example_inputs=given)


class _Kept(nn.Module):
    """Decides by a number that it keeps, then by another thing."""

    kept: torch.Tensor

    def __init__(self, decide: Callable[[torch.Tensor], bool]) -> None:
        super().__init__()
        self.register_buffer("kept", torch.tensor(2))
        self.decide = decide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept > 1:
            x = 2 * x
        return x.exp() if self.decide(x) else x.sin()


@pytest.mark.slow
def test_the_attempt_that_came_furthest_tells_the_line() -> None:
    with pytest.raises(ModelError, match=r"data of a tensor \(.*, line \d+\)") as caught:
        exported(_Kept(_is_positive).eval(), (torch.rand(3),))
    place = f"line {_is_positive.__code__.co_firstlineno + 1})"
    assert str(caught.value).endswith(place)


@pytest.mark.slow
def test_named_sizes_beside_known_numbers() -> None:
    shapes = ({0: torch.export.Dim("n")},)
    program = exported(_Kept(lambda x: x.shape[0] % 2 == 0).eval(), (torch.rand(4),), shapes)
    assert program.conditions() == ("n % 2 == 0",)


def _is_positive(x: torch.Tensor) -> bool:
    return bool(x.sum() > 0)
