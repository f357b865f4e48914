"""Greatest pixels of regions, against the definition."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

#: Inside, across each border, far outside, of one pixel, turned round, and of halves.
SIDES = (
    (3, 4, 17, 15),
    (-9, -3, 6, 40),
    (18, 1, 60, 9),
    (90, 90, 99, 99),
    (5, 5, 5, 5),
    (12, 9, 2, 3),
    (1, 3, 5, 7),
)


def _bins(scale: float, first: float, last: float, count: int, size: int) -> list[range]:
    begin, end = (int(np.floor(abs(s * scale) + 0.5) * np.sign(s)) for s in (first, last))
    width = np.float32(max(end - begin + 1, 1)) / np.float32(count)
    return [
        range(
            min(max(begin + int(np.floor(np.float32(i) * width)), 0), size),
            min(max(begin + int(np.ceil(np.float32(i + 1) * width)), 0), size),
        )
        for i in range(count)
    ]


def _params(channels: int, regions: int) -> ctypes.Structure:
    p = abi.RoiMaxParams(batch=2, in_h=9, in_w=11, channels=channels, regions=regions)
    p.out_h, p.out_w, p.scale = 3, 2, 0.5
    return p


@every("channels", [1, 7, 16, 70])
def test_greatest_pixels_of_bins(lib: ctypes.CDLL, channels: int) -> None:
    x = at_page_end(np.random.default_rng(3).standard_normal((2, 9, 11, channels)))
    regions = at_page_end([[i % 2, *side] for i, side in enumerate(SIDES)])
    y = Rows(len(SIDES) * 6, channels)
    p = _params(channels, len(SIDES))
    assert lib.ext_roi_max(p, x.ctypes.data, regions.ctypes.data, y.pointer) == 0
    y.check_gaps()
    want = np.zeros((len(SIDES), 3, 2, channels), np.float32)
    for r, (left, top, right, bottom) in enumerate(SIDES):
        rows, columns = _bins(0.5, top, bottom, 3, 9), _bins(0.5, left, right, 2, 11)
        for h, w in itertools.product(range(3), range(2)):
            if rows[h] and columns[w]:
                want[r, h, w] = x[r % 2][np.ix_(rows[h], columns[w])].max((0, 1))
    np.testing.assert_array_equal(y.view.reshape(want.shape), want)


def test_regions_that_are_none(lib: ctypes.CDLL) -> None:
    """Sides that are no numbers, or far away, read no pixel that is not there."""
    x = at_page_end(np.ones((2, 9, 11, 5)))
    for side in (np.nan, np.inf, -np.inf, 3e38):
        for region, status in (([1, side, 0, 9, side], 0), ([2, 0, 0, 1, 1], 4)):
            at = at_page_end([region])
            y = Rows(6, 5)
            p = _params(5, 1)
            assert lib.ext_roi_max(p, x.ctypes.data, at.ctypes.data, y.pointer) == status
            y.check_gaps()
    assert lib.ext_roi_max(_params(5, 0), None, None, None) == 0
