"""Bytes looked up in a table, against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.kernels.every import every
from tests.kernels.guard import at_page_end


@every("size", [0, 1, 15, 16, 63, 64, 65, 256, 1000])
def test_lookup(lib: ctypes.CDLL, size: int) -> None:
    draw = np.random.default_rng(size)
    table = at_page_end(draw.integers(0, 256, 256, np.uint8), np.uint8)
    x = at_page_end(np.resize(np.arange(256, dtype=np.uint8), size), np.uint8)
    y = at_page_end(np.zeros(size, np.uint8), np.uint8)
    assert lib.ext_lookup(size, x.ctypes.data, table.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, table[x])


def test_in_place_and_on_threads(lib: ctypes.CDLL) -> None:
    table = at_page_end(np.arange(256)[::-1].astype(np.uint8), np.uint8)
    x = at_page_end(np.random.default_rng(0).integers(0, 256, 200001, np.uint8), np.uint8)
    wanted = table[x]
    assert lib.ext_lookup(x.size, x.ctypes.data, table.ctypes.data, x.ctypes.data) == 0
    np.testing.assert_array_equal(x, wanted)
