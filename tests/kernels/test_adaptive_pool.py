"""Means of as many windows as are wanted, against NumPy's of the same windows."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

#: Height and width, and those of the result: divided, uneven, larger than the image, of one pixel.
SIZES = (
    ((6, 9), (3, 3)),
    ((7, 11), (3, 4)),
    ((2, 3), (5, 7)),
    ((1, 1), (2, 1)),
    ((40, 33), (1, 2)),
)


def _params(
    batch: int, channels: int, size: tuple[int, int], out: tuple[int, int]
) -> ctypes.Structure:
    return abi.AdaptivePoolParams(batch, *size, channels, *out)


def _windows(size: int, count: int) -> list[slice]:
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@every("channels", [1, 7, 16, 70])
@every("sizes", SIZES, ids=str)
def test_means_of_windows(lib: ctypes.CDLL, channels: int, sizes: tuple) -> None:
    size, out = sizes
    x = at_page_end(np.random.default_rng(3).standard_normal((2, *size, channels)))
    y = Rows(2 * out[0] * out[1], channels)
    p = _params(2, channels, size, out)
    assert lib.ext_adaptive_avg_pool2d(p, x.ctypes.data, y.pointer) == 0
    y.check_gaps()
    want = np.zeros((2, *out, channels))
    rows, columns = _windows(size[0], out[0]), _windows(size[1], out[1])
    for h, w in itertools.product(range(out[0]), range(out[1])):
        want[:, h, w] = x[:, rows[h], columns[w]].mean((1, 2), dtype=np.float64)
    assert_close(y.view.reshape(want.shape), want, 1e-6)


def test_special_values_stay_in_their_windows(lib: ctypes.CDLL) -> None:
    x = at_page_end(np.ones((1, 1, 5, 3)))
    x[0, 0, 0, 1], x[0, 0, 4, 2] = np.nan, np.inf
    y = Rows(2, 3)
    assert lib.ext_adaptive_avg_pool2d(_params(1, 3, (1, 5), (1, 2)), x.ctypes.data, y.pointer) == 0
    np.testing.assert_array_equal(y.view, [[1, np.nan, 1], [1, 1, np.inf]])


@every("empty", [(0, 3, (4, 4), (2, 2)), (1, 0, (4, 4), (2, 2)), (1, 3, (4, 4), (0, 2))], ids=str)
def test_nothing(lib: ctypes.CDLL, empty: tuple) -> None:
    assert lib.ext_adaptive_avg_pool2d(_params(*empty), None, None) == 0
