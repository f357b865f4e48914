"""Operators with an axis that calls decide, beside PyTorch at several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc

#: How many images, matrices or lines a call has.
COUNTS = (2, 1, 5)


class Images(nn.Module):
    """Windows of uneven sizes, and places that a grid names."""

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "means": F.adaptive_avg_pool2d(x, (4, 3)),
            "greatest": F.adaptive_max_pool2d(x, (4, 3)),
            "sampled": F.grid_sample(x, grid, align_corners=False),
            "nearest": F.grid_sample(x, grid, "nearest", "reflection", align_corners=True),
        }


class Matrices(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = x @ x.mT + torch.eye(4)
        return {
            "inverse": torch.linalg.inv(whole),
            "determinant": torch.linalg.det(whole),
            "cholesky": torch.linalg.cholesky(whole),
        }


class Lines(nn.Module):
    """Orders of lines that are as long as a call says."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
        given = {"floats": x, "integers": y, "bytes": z}
        sorted_ = {name: value.sort(dim=0, stable=True) for name, value in given.items()}
        ways = {"dim": 0, "descending": True, "stable": True}
        down = {name: value.argsort(**ways) for name, value in given.items()}
        return {**{n: torch.stack([v, p.to(v)]) for n, (v, p) in sorted_.items()}, "down": down}


class Counted(nn.Module):
    """Numbers that do not begin with 0, or go backwards from a size."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        count = x.shape[0]
        back = torch.arange(2 * count - 1, -1, -1)
        some = torch.arange(3, 4 * count + 3, 4)
        return {"some": some, "back": back, "sum": x + back[1::2, None]}


class Placed(nn.Module):
    """One place in each row, and rows that a mask names, as masks of frames are made."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        lengths = (x[:, :, 0] > 0).sum(1)
        torch._assert_async((lengths < 100).all())  # a check, which computes nothing
        ends = torch.zeros(x.shape[0], x.shape[1], dtype=torch.long)
        ends[torch.arange(x.shape[0]), lengths - 1] = 1
        mask = ends.flip([-1]).cumsum(-1).flip([-1]).bool()
        hidden = x[:, :-1] * 2
        hidden[~mask[:, 1:]] = 0
        return {"mask": mask, "hidden": hidden}


class Windows(nn.Module):
    """Windows of sounds, as a spectrogram takes them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x, x], 0).mT.unfold(1, 4, 2) * torch.hann_window(4)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.EmbeddingBag(9, 4, mode="mean")

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.inner(rows)


class Recurrent(nn.Module):
    """Layers over lines that are as long as a call says, and the end of what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2, bidirectional=True)
        self.gru = nn.GRU(4, 5)
        self.rnn = nn.RNN(4, 3, nonlinearity="relu", batch_first=True)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        both, (hidden, cell) = self.lstm(x)
        each, last = self.gru(x)
        lines, _ = self.rnn(x.transpose(0, 1))
        return {"both": both, "cell": cell, "hidden": hidden.sum(0), "each": each, "last": last} | {
            "end": each[-1] - both[0, :, :5],
            "lines": lines[:, -1],
        }


class Ends(nn.Module):
    """What is counted from the end of an axis, and lines that are pushed on."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x * 2
        return {
            "last": y[-1].exp(),
            "kept": y[-1:].exp(),
            "two": (y[-2:] + 1).sum(0),
            "later": F.pad(y, (0, 0, 1, -1)).exp(),
            "earlier": F.pad(y, (0, 0, -1, 2), value=3.0).exp(),
        }


class Rows(nn.Module):
    """Elements at places of two axes, one of them open, that broadcast."""

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        lines, heads = torch.arange(x.shape[0])[:, None, None], torch.arange(2)[:, None]
        y = x.exp()
        y[lines, heads, places] = torch.arange(4.0)
        return y


def _lines(count: int) -> tuple[torch.Tensor, ...]:
    x = torch.randn(count, 3)
    x[0] = torch.nan
    return x, torch.randint(-3, 3, (count, 3)), torch.randint(0, 4, (count, 3), dtype=torch.uint8)


#: A module, what it is called with for a count, and what TVM computes.
CASES = {
    "images": (Images(), lambda n: (torch.randn(n, 3, 9, 7), 1.5 * torch.randn(n, 4, 5, 2))),
    "matrices": (Matrices(), lambda n: (torch.randn(n, 4, 4),)),
    "lines": (Lines(), _lines),
    "counted": (Counted(), lambda n: (torch.randn(n, 4),)),
    "placed": (Placed(), lambda n: (torch.randn(n, 6, 4),)),
    "windows": (Windows(), lambda n: (torch.randn(n + 1, 2),)),
    "recurrent": (Recurrent(), lambda n: (torch.randn(n, 3, 4),)),
    "ends": (Ends(), lambda n: (torch.randn(n + 1, 4),)),
    "rows": (
        Rows(),
        lambda n: (
            torch.randn(n, 2, 5, 4),
            torch.stack([torch.randperm(5)[:3] for _ in range(2 * n)]).view(n, 2, 3),
        ),
    ),
    "bags": (Bags(), lambda n: (torch.randint(0, 9, (n, 6)),)),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_open_axis(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, given = CASES[name]
    axis, library = torch.export.Dim("count"), tmp_path / "open.so"
    example = given(COUNTS[0])
    compiled = byoc.compile(
        module.eval(),
        library,
        example_inputs=example,
        dynamic_shapes=tuple({0: axis} for _ in example),
        min_bytes=0,
    )
    assert compiled.report.left == ()
    with byoc.load(library) as model:
        for count in COUNTS:
            inputs = given(count)
            names = (info.name for info in model.inputs)
            feed = {n: t.numpy() for n, t in zip(names, inputs, strict=True)}
            wanted = torch.utils._pytree.tree_leaves(module(*inputs))
            for found, value in zip(model.run(feed).values(), wanted, strict=True):
                close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
                torch.testing.assert_close(torch.from_numpy(found), value, **close)


class Sloped(nn.Module):
    """Attention with the end of a table of distances, as ALiBi has it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(-63.0, 1).expand(2, 1, 64).clone())
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[1]
        heads = self.inner(x).unflatten(-1, (2, 4)).transpose(1, 2)
        slopes = self.table[:, max(0, 1 - count) :, max(0, 64 - count) :]
        return (heads @ heads.mT + slopes).softmax(-1) @ heads


@torch.no_grad()
def test_extents_that_a_range_makes_equal(tmp_path: Path) -> None:
    """``min(n, 64)`` is ``n`` where PyTorch knows that n is at most 64; each call looks."""
    module, auto = Sloped().eval(), torch.export.Dim.AUTO
    compiled = byoc.compile(
        module,
        tmp_path / "sloped.so",
        example_inputs=(torch.randn(2, 7, 8),),
        dynamic_shapes=({0: auto, 1: auto},),
        min_bytes=0,
    )
    assert {entry.op for entry in compiled.report.left} == {"relax.reshape"}
    with byoc.load(tmp_path / "sloped.so") as model:
        for shape in ((2, 7, 8), (3, 64, 8), (1, 2, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
        with pytest.raises(byoc.ByocError):
            model(torch.zeros(1, 65, 8).numpy())
