"""Elements that are written at places which are apart, masked, shorter, or read from a tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc

_MASK = torch.tensor([True, False, True, False])
_PLACES = torch.tensor([2, 0])


class Written(nn.Module):
    """Axes apart, masks of later axes, and the older form of ``scatter``."""

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, rows: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        apart, number, row, each = x.clone(), x.clone(), x.clone(), x.clone()
        apart[places, :, places] = rows[:, :1]
        number[:, mask] = -1.0
        row[:, mask] = rows[0]
        each[:, mask] = rows
        index = places[:, None, None].expand(2, 4, 5)
        return {
            "apart": apart,
            "number": number,
            "row": row,
            "each": each,
            "added": x.scatter(0, index, x, reduce="add"),
            "scaled": x.scatter(0, index, 3.0, reduce="multiply"),
            "seen": (x > 1).index_put((places,), x[:2] > 0, accumulate=True),
            "most": (x > 0).scatter_reduce(0, index, x[1:] > 0, "amin"),
        }


def test_places_apart_and_masks(tmp_path: Path) -> None:
    given = (torch.randn(3, 4, 5), _MASK, _PLACES, torch.randn(2, 5))
    module = Written().eval()
    compiled = byoc.compile(module, tmp_path / "net.so", example_inputs=given, min_bytes=0)
    assert compiled.report.regions
    library = byoc.load(tmp_path / "net.so")
    found = library.run(
        dict(zip(("x", "mask", "places", "rows"), map(torch.Tensor.numpy, given), strict=True))
    )
    for name, wanted in module(*given).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), wanted, msg=name)


class Shorter(nn.Module):
    """Places that end before the tensor does along the axes that they do not index."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> dict[str, torch.Tensor]:
        wide = index.expand(2, 3, 2)
        ones = torch.ones(2, 3, 2)
        return {"number": x.scatter(-1, wide, 7.0), "added": x.scatter_add(-1, wide, ones)}


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 3, 4), (3, 6, 9)])
def test_open_axes_beyond_places(shape: tuple[int, ...], tmp_path: Path) -> None:
    index, module = torch.tensor([3, 1]), Shorter().eval()
    auto = dict.fromkeys(range(3), torch.export.Dim.AUTO)
    path = tmp_path / "net.so"
    given = (torch.randn(2, 3, 4), index)
    compiled = byoc.compile(module, path, example_inputs=given, dynamic_shapes=(auto, None))
    assert len(compiled.report.regions) == 1
    x = torch.randn(shape)
    found = byoc.load(path).run({"x": x.numpy(), "index": index.numpy()})
    for name, wanted in module(x, index).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), wanted, msg=name)


class Picked(nn.Module):
    """A row by a number of a tensor, as of a step, and places from an open end."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(6, 4))

    def forward(self, step: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "row": self.table[step] * 2,
            "column": x[:, step] + 1,
            "ends": x[torch.tensor([-1, 0])],
        }


@pytest.mark.parametrize(("step", "count"), [(3, 5), (-1, 5), (0, 7)])
def test_places_of_one_number(step: int, count: int, tmp_path: Path) -> None:
    module, path = Picked().eval(), tmp_path / "net.so"
    shapes = (None, {0: torch.export.Dim("count")})
    given = (torch.tensor(2), torch.randn(5, 4))
    compiled = byoc.compile(module, path, example_inputs=given, dynamic_shapes=shapes)
    assert compiled.report.regions
    number, x = torch.tensor(step), torch.randn(count, 4)
    found = byoc.load(path).run({"step": number.numpy(), "x": x.numpy()})
    with torch.no_grad():
        for name, wanted in module(number, x).items():
            torch.testing.assert_close(torch.from_numpy(found[name]), wanted, msg=name)


class Before(nn.Module):
    """A slice that starts before the beginning."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[-9:-1] * 2


@pytest.mark.parametrize("count", [5, 7])
def test_slice_from_before_the_beginning(count: int, tmp_path: Path) -> None:
    path, shapes = tmp_path / "net.so", ({0: torch.export.Dim.AUTO},)
    given = (torch.randn(5, 4),)
    byoc.compile(
        Before().eval(), path, example_inputs=given, dynamic_shapes=shapes, min_bytes=0
    ).report.regions[0]
    x = torch.randn(count, 4)
    (found,) = byoc.load(path).run({"x": x.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), Before()(x))


class Cached(nn.Module):
    """A slice that begins where an element says, as caches of a fixed size are written."""

    def forward(self, cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache, place = cache.clone(), at[0]
        cache[:, place : place + new.shape[1]] = new
        return cache * 2


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_slices_that_begin_at_an_element(tmp_path: Path, dtype: torch.dtype) -> None:
    cache, new = torch.randn(2, 16, 4), torch.randn(2, 3, 4)
    module, path = Cached().eval(), tmp_path / "net.so"
    given = (cache, new, torch.tensor([5], dtype=dtype))
    report = byoc.compile(module, path, example_inputs=given, min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    library = byoc.load(path)
    for place in (0, 5, 13):
        at = torch.tensor([place], dtype=dtype)
        found = torch.from_numpy(library(cache.numpy(), new.numpy(), at.numpy()))
        torch.testing.assert_close(found, module(cache, new, at))
    with pytest.raises(byoc.RunError):
        library(cache.numpy(), new.numpy(), torch.tensor([14], dtype=dtype).numpy())
