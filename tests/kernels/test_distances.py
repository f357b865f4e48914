"""Distances of rows against numpy in double precision."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

SIZES = [
    *((rows, 5, columns) for rows in (1, 3, 4, 9) for columns in (1, 7, 16, 31, 32, 33, 70)),
    *((130, 3, 40), (65, 40, 64), (2, 1, 8), (3, 0, 20), (0, 4, 20), (3, 4, 0)),
]


@every("absolute", [False, True], ids=["squares", "absolute"])
@every("size", SIZES, ids=str)
def test_all_pairs(lib: ctypes.CDLL, size: tuple[int, int, int], absolute: bool) -> None:
    rows, depth, columns = size
    rng = np.random.default_rng(3)
    a, b = (at_page_end(rng.standard_normal(shape)) for shape in ((rows, depth), (depth, columns)))
    y = Rows(rows, columns)
    p = abi.DistancesParams(rows=rows, depth=depth, columns=columns, absolute=int(absolute))
    assert lib.ext_distances(p, a.ctypes.data, b.ctypes.data, y.pointer) == 0
    y.check_gaps()
    apart = a.astype(np.float64)[:, :, None] - b.astype(np.float64)[None]
    want = (np.abs(apart) if absolute else apart**2).sum(1)
    if want.size:
        assert_close(y.view.astype(np.float64), want, 1e-6 + 1e-6 * want)


@every("absolute", [0, 1])
def test_special_values_stay_in_their_pairs(lib: ctypes.CDLL, absolute: int) -> None:
    a, b, y = at_page_end(np.zeros((2, 3))), at_page_end(np.zeros((3, 4))), Rows(2, 4)
    a[0, 1], b[2, 3] = np.inf, np.nan
    p = abi.DistancesParams(rows=2, depth=3, columns=4, absolute=absolute)
    assert lib.ext_distances(p, a.ctypes.data, b.ctypes.data, y.pointer) == 0
    inf, nan = np.inf, np.nan
    np.testing.assert_array_equal(y.view, [[inf, inf, inf, nan], [0, 0, 0, nan]])


def test_what_is_refused(lib: ctypes.CDLL) -> None:
    p = abi.DistancesParams(rows=2, depth=-1, columns=4)
    assert lib.ext_distances(p, None, None, None) == 2
