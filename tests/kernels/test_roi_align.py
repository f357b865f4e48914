"""Pooled regions of images against the definition in double precision."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end


def sampled(image: np.ndarray, row: float, column: float) -> np.ndarray:
    """Bilinear, of an image [H, W, C]."""
    height, width, channels = image.shape
    if not (-1 <= row <= height and -1 <= column <= width):
        return np.zeros(channels)
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    made = np.zeros(channels)
    for r, c in itertools.product((int(row), int(row) + 1), (int(column), int(column) + 1)):
        weight = max(1 - abs(row - r), 0) * max(1 - abs(column - c), 0)
        if weight:
            made += weight * image[r, c].astype(np.float64)
    return made


def pooled(x: np.ndarray, region: np.ndarray, p: ctypes.Structure) -> np.ndarray:
    """Of images [N, H, W, C], [out_h, out_w, C]."""
    _, *sides = region.astype(np.float64)
    left, top, right, bottom = (side * p.scale for side in sides)
    size = np.array([bottom - top, right - left])
    bins = (size if p.aligned else np.maximum(size, 1)) / (p.out_h, p.out_w)
    counts = [p.samples or max(int(np.ceil(b)), 0) for b in bins]
    y = np.zeros((p.out_h, p.out_w, x.shape[-1]))
    for h, w in itertools.product(range(p.out_h), range(p.out_w)):
        for i, j in itertools.product(*map(range, counts)):
            row = top + bins[0] * (h + (i + 0.5) / counts[0])
            column = left + bins[1] * (w + (j + 0.5) / counts[1])
            y[h, w] += sampled(x[int(region[0])], row, column) / (counts[0] * counts[1])
    return y


@every("channels", [1, 7, 16, 70])
@every("aligned", [0, 1], ids=["", "aligned"])
@every("samples", [0, 1, 2, 5])
def test_means_of_bins(lib: ctypes.CDLL, samples: int, aligned: int, channels: int) -> None:
    rng = np.random.default_rng(samples)
    x = at_page_end(rng.standard_normal((2, 9, 11, channels)))
    # Inside, across each border, far outside, without extent, and turned round.
    sides = [(3, 4, 17, 15), (-9, -3, 6, 40), (18, 1, 60, 9), (90, 90, 99, 99), (5, 5, 5, 5)]
    sides += [(0, 0, 21.9, 17.9), (12, 9, 2, 3)]
    regions = at_page_end([[i % 2, *side] for i, side in enumerate(sides)])
    p = abi.RoiAlignParams(batch=2, in_h=9, in_w=11, channels=channels, regions=len(sides))
    p.out_h, p.out_w, p.samples, p.scale, p.aligned = 3, 2, samples, 0.5, aligned
    y = Rows(len(sides) * 6, channels)
    assert lib.ext_roi_align(p, x.ctypes.data, regions.ctypes.data, y.pointer) == 0
    y.check_gaps()
    want = np.stack([pooled(x, region, p) for region in regions])
    assert_close(y.view.reshape(want.shape), want, 1e-5)


def test_no_regions_and_what_is_refused(lib: ctypes.CDLL) -> None:
    x, y = at_page_end(np.ones((1, 2, 2, 1))), Rows(1, 1)
    sizes = {"batch": 1, "in_h": 2, "in_w": 2, "channels": 1, "out_h": 1, "out_w": 1, "scale": 1}
    none = abi.RoiAlignParams(**sizes, regions=0)
    assert lib.ext_roi_align(none, None, None, None) == 0
    assert lib.ext_roi_align(abi.RoiAlignParams(regions=1, out_h=1), None, None, None) == 2
    p = abi.RoiAlignParams(**sizes, regions=1)
    for image, status in ((0, 0), (1, 4), (-1, 4), (np.nan, 4), (np.inf, 4)):
        region = at_page_end([image, 0, 0, 1, 1])
        assert lib.ext_roi_align(p, x.ctypes.data, region.ctypes.data, y.pointer) == status


def test_regions_without_numbers_are_zeros(lib: ctypes.CDLL) -> None:
    x, y = at_page_end(np.ones((1, 4, 4, 3))), Rows(4, 3)
    p = abi.RoiAlignParams(batch=1, in_h=4, in_w=4, channels=3, out_h=2, out_w=2, regions=1)
    p.scale = 1
    for region in ([0, np.nan, 0, 4, 4], [0, 0, 0, np.nan, np.nan], [0, -np.inf, 0, 4, 4]):
        regions = at_page_end(region)
        assert lib.ext_roi_align(p, x.ctypes.data, regions.ctypes.data, y.pointer) == 0
        np.testing.assert_array_equal(y.view, np.zeros((4, 3)))
