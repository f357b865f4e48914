"""Operators with an axis that calls decide, beside PyTorch at several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

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


class Volumes(nn.Module):
    """Places that a grid names in volumes."""

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> dict[str, torch.Tensor]:
        how = ("bilinear", "reflection")
        return {"sampled": F.grid_sample(x, grid, *how, align_corners=False)}


class Matrices(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = x @ x.mT + torch.eye(4)
        return {
            "inverse": torch.linalg.inv(whole),
            "determinant": torch.linalg.det(whole),
            "cholesky": torch.linalg.cholesky(whole),
            "lu": torch.stack(torch.linalg.lu(x)),
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


class Pooled(nn.Module):
    """What lines of any number have in common: means, deviations and medians, of none as well."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x.exp()
        return {
            "mean": y.mean(0),
            "all": y.mean(),
            "kept": y.mean((0, 1), keepdim=True) * 2,
            "deviation": y.std(0),
            "variance": y.var(0, correction=2),
            "share": y.var(0, correction=0),
            "both": torch.stack(torch.var_mean(y, 0)),
        }


class Frequencies(nn.Module):
    """Transforms along an axis that is as long as a call says."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "mixed": torch.fft.fftn(x, dim=(1, 2)).real,
            "half": torch.fft.rfft(y.exp(), norm="ortho").abs(),
            "covariance": torch.cov(y),
            "correlation": torch.corrcoef(y),
        }


class Middle(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.where(x > 1, torch.nan, x)
        middle = torch.stack([part.float() for part in x.exp().median(0)])
        return {"middle": middle, "numbers": y.nanmedian(0).values, "all": y.median()}


class Spectrum(nn.Module):
    """A few frequencies of images mixed by complex weights, and an open axis shifted by half."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, 4, 4, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = torch.fft.rfft2(x)
        made = torch.zeros(x.shape[0], 2, 8, 5, dtype=torch.cfloat)
        made[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", whole[:, :, :4, :4], self.weight)
        shifted = torch.fft.fftshift(x, 0) - torch.fft.ifftshift(x.exp(), 0)
        return {"back": torch.fft.irfft2(made, s=(8, 8)), "shifted": shifted}


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


class Diagonals(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = (x @ x.mT).unflatten(0, (-1, 1)) + 1
        return {"whole": whole.diagonal(0, 0, 2), "trace": whole.diagonal(0, 2, 0).sum(-1)}


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
    "volumes": (
        Volumes(),
        lambda n: (torch.randn(n, 3, 4, 5, 6), 1.5 * torch.randn(n, 2, 4, 5, 3)),
    ),
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
    "diagonals": (Diagonals(), lambda n: (torch.randn(n, 4),)),
    "pooled": (Pooled(), lambda n: (torch.randn(n, 3),)),
    "middle": (Middle(), lambda n: (torch.randn(n, 3),)),
    "spectrum": (Spectrum(), lambda n: (torch.randn(n, 3, 8, 8),)),
    "bags": (Bags(), lambda n: (torch.randint(0, 9, (n, 6)),)),
}


@pytest.mark.slow
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


@torch.no_grad()
def test_pooled_of_none(tmp_path: Path) -> None:
    """The mean of nothing is NaN, as the deviation of it is."""
    axis, module = torch.export.Dim("count", min=0, max=9), Pooled().eval()
    library = tmp_path / "pooled.so"
    byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(4, 3),),
        dynamic_shapes=({0: axis},),
        min_bytes=0,
    )
    with byoc.load(library) as model:
        for count in (0, 4):
            x = torch.randn(count, 3)
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                made = torch.from_numpy(found[name])
                torch.testing.assert_close(made, wanted, equal_nan=True)


@pytest.mark.slow
@torch.no_grad()
def test_frequencies_of_an_open_axis(tmp_path: Path) -> None:
    module, library = Frequencies().eval(), tmp_path / "frequencies.so"
    axis = torch.export.Dim("count")
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(2, 5, 6), torch.randn(2, 5)),
        dynamic_shapes=({1: axis}, {1: axis}),
        min_bytes=0,
    )
    assert compiled.report.left == ()
    with byoc.load(library) as model:
        for count in (5, 2, 100):
            x, y = torch.randn(2, count, 6), torch.randn(2, count)
            found = model.run({"x": x.numpy(), "y": y.numpy()})
            for name, wanted in module(x, y).items():
                close = {"rtol": 1e-4, "atol": 1e-4}
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted, **close)


class Scanned(nn.Module):
    """What is found in the order of lines of any number."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = (2 * x).round()
        modes, greatest, least = y.mode(0), y.cummax(0), y.cummin(0)
        return {"mode": modes.values, "greatest": greatest.values, "places": least.indices}


@pytest.mark.slow
@torch.no_grad()
def test_scans_along_an_open_axis(tmp_path: Path) -> None:
    module, library = Scanned().eval(), tmp_path / "scanned.so"
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(4, 3),),
        dynamic_shapes=({0: torch.export.Dim("count")},),
        min_bytes=0,
    )
    assert {entry.op.partition("(")[0] for entry in compiled.report.left} <= {"relax.call_tir"}
    with byoc.load(library) as model:
        for count in (4, 1, 9):
            x = torch.randn(count, 3)
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)


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


@pytest.mark.slow
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
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with byoc.load(tmp_path / "sloped.so") as model:
        for shape in ((2, 7, 8), (3, 64, 8), (1, 2, 8)):
            x = torch.randn(shape)
            torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
        with pytest.raises(byoc.ByocError):
            model(torch.zeros(1, 65, 8).numpy())


class Best(nn.Module):
    """As many of the greatest as the length of an axis says."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        best = x.topk(x.shape[0] // 4, 0)
        return {"best": best.values, "places": best.indices}


@torch.no_grad()
def test_an_open_number_of_the_greatest(tmp_path: Path) -> None:
    """PyTorch's tracer compares the number with the axis, so that it may not be any."""
    module, library = Best().eval(), tmp_path / "best.so"
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(12, 3),),
        dynamic_shapes=({0: torch.export.Dim.AUTO},),
        min_bytes=0,
    )
    assert compiled.report.left == () and len(compiled.report.regions) == 1
    with byoc.load(library) as model:
        for count in (12, 9, 70):
            x = torch.randn(count, 3)
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)


class Orders:
    """What stands for the package ``opt_einsum``, which need not be there."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def contract_path(self, _: str, *operands: object, **named: object) -> Any:
        self.asked.append(operands)
        return [(1, 2), (0, 1)], None


def test_products_of_three_in_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.einsum`` asks a package for the order, which compares sizes."""
    home, orders = torch.backends.opt_einsum, Orders()
    known = {"_opt_einsum": orders, "enabled": True, "strategy": "auto"}
    for name, value in known.items():
        monkeypatch.setitem(home.get_opt_einsum.__globals__, name, value)
    monkeypatch.setattr(home, "is_available", lambda: True)

    class Product(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bnd,de,bme->bnm", x, y, x.exp())

    module, y, path = Product().eval(), torch.rand(8, 8), tmp_path / "m.so"
    axes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}, None)
    example = (torch.rand(2, 5, 8), y)
    done = byoc.compile(module, path, example_inputs=example, dynamic_shapes=axes, min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    assert ((2, 5, 8), (8, 8), (2, 5, 8)) in orders.asked
    assert not any(isinstance(one, FakeTensor) for given in orders.asked for one in given)
    with byoc.load(path) as model:
        for shape in ((2, 5, 8), (3, 9, 8), (1, 1, 8)):
            x = torch.rand(shape)
            torch.testing.assert_close(torch.from_numpy(model(x, y)), module(x, y))
