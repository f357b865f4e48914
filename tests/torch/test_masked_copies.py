"""Elements and rows that a mask picks and that stay in their places, as PointNet++ writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import byoc


class Copies(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        nearer, rows = y < x, y[:, :, 0] > 0
        least, whole = x.clone(), x.clone()
        least[nearer] = y[nearer]
        whole[rows] = y[rows]
        return {"least": least * 2, "rows": whole * 2}


class Computed(torch.nn.Module):
    """Elements that are computed one by one, of masks that are written twice, as hues are."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        hue, least, rows = x * 1, x.clone(), x.clone()
        hue[x.amax(2, keepdim=True) == x] = (4 + (y / (x.abs() + 1))[x.amax(2, True) == x]) % 6
        least[y < 0] *= 2
        rows[y[:, :, 0] > 0] = x[y[:, :, 0] > 0] * y[y[:, :, 0] > 0] + torch.arange(3) * 0.5
        return {"hue": hue * 2, "least": least * 2, "rows": rows * 2}


class Learned(torch.nn.Module):
    """Rows that get a learned one, as the prompts of Segment Anything do."""

    def __init__(self) -> None:
        super().__init__()
        self.row, self.scale = torch.nn.Embedding(1, 3), torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        rows, sums = x.exp(), x.sum(-1)
        rows[y[:, :, 0] > 0] = 0.0
        rows[y[:, :, 0] > 0] += self.row.weight
        sums[y[:, :, 1] > 0] *= self.scale
        return {"rows": rows * 2, "sums": sums * 2}


class Whole(torch.nn.Module):
    """A quotient of whole numbers, of which those that are not picked have none."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = x.clone()
        made[y > 0] = x[y > 0] // y[y > 0]
        return made * 2


class Counted(torch.nn.Module):
    """Masks that are not the same: elements go where others stood."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ascending = x.clone()
        ascending[:, 0][x[:, 1] > 0] = x[:, 2][x[:, 1] > 0]
        moved = ascending[:, 0].clone()
        moved[torch.arange(x.shape[0]) < (x[:, 3] > 0).sum()] = x[:, 2][x[:, 3] > 0]
        return moved * 2


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("module", [Copies(), Computed(), Learned()])
def test_copies_count_nothing(module: torch.nn.Module, tmp_path: Path) -> None:
    library = tmp_path / "copies.so"
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("points")}
    given = torch.randn(2, 7, 3), torch.randn(2, 7, 3)
    compiled = byoc.compile(
        module.eval(), library, example_inputs=given, dynamic_shapes=(axes, axes), min_bytes=0
    )
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    with byoc.load(library) as model:
        for shape in ((2, 7, 3), (5, 4, 3)):
            x, y = torch.randn(shape), torch.randn(shape)
            found = model.run({"x": x.numpy(), "y": y.numpy()})
            for name, wanted in module(x, y).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)


@pytest.mark.slow
@torch.no_grad()
def test_quotients_of_whole_numbers_are_those_of_the_picked(tmp_path: Path) -> None:
    library = tmp_path / "whole.so"
    given = torch.randint(-9, 9, (40,)), torch.randint(-3, 4, (40,))
    byoc.compile(Whole().eval(), library, example_inputs=given, min_bytes=0)
    with byoc.load(library) as model:
        torch.testing.assert_close(torch.from_numpy(model(*given)), Whole()(*given))


@pytest.mark.slow
@torch.no_grad()
def test_elements_that_move_are_counted(tmp_path: Path) -> None:
    library, given = tmp_path / "counted.so", torch.randn(9, 4)
    compiled = byoc.compile(Counted().eval(), library, example_inputs=(given,), min_bytes=0)
    assert "relax.nonzero" in {entry.op for entry in compiled.report.left}
    with byoc.load(library) as model:
        for _ in range(3):
            x = torch.randn(9, 4)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), Counted()(x))
