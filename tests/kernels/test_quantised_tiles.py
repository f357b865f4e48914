"""Products of 8-bit integers in AMX's tiles, real and in plain C, and in I8MM's pairs of rows."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.quantised import EPILOGUES, INPUTS, PLAIN, SUMS, Requantise, draw
from tests.kernels.test_quantised import SHAPES, multiply
from tests.kernels.test_quantised_conv import CONV, convolve

_SAME = (1, 1, 1, 1)
#: Where rows are read where they lie, and where they are nearly so.
IN_PLACE = (
    *((m, n, k) for m in (16, 32, 48, 80) for n in (16, 33) for k in (64, 192)),
    *((m, 40, k) for m in (15, 17, 31, 33, 47, 49) for k in (60, 64, 68, 127, 128, 132)),
)
#: The same of images; and lines of more than one tile, with every rest of rows and of taps.
LINES = (
    *(cases.Conv(4, w, 64, 40, x_gap=64) for w in (18, 34, 50)),
    cases.Conv(5, 97, 128, 20, strides=(2, 2), n=2),
    cases.Conv(4, 80, 64, 20, kernel=(1, 1), strides=(1, 5)),
    *(cases.Conv(3, w, 32, 33, padding=_SAME) for w in (15, 16, 17, 31, 32, 33, 47, 49)),
    cases.Conv(6, 20, 96, 48, padding=_SAME, n=2, groups=2),
)


@every("shape", (*SHAPES, *IN_PLACE), ids=str)
def test_sums_are_exact(byte_tiles: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    for x in INPUTS[(m + n + k) % 3 :: 3]:
        multiply(byte_tiles, x, draw(rng, x[0], m, k), draw(rng, "int8", k, n), SUMS, 0)


@every("x", INPUTS, ids=str)
@every("k", [64, 65536])
def test_the_largest_numbers_do_not_saturate(
    byte_tiles: ctypes.CDLL, x: tuple[str, int], k: int
) -> None:
    limits = np.iinfo(x[0])
    for value in (limits.min, limits.max):
        w = np.full((k, 18), -128, np.int8)
        w[:, 1::2] = 127
        multiply(byte_tiles, x, np.full((3, k), value, x[0]), w, SUMS, 0)


@every("x", [INPUTS[1], INPUTS[3]], ids=str)
@every("columns", [16, 43, 64])
@every("case", EPILOGUES, ids=str)
def test_what_follows_the_sums(
    byte_tiles: ctypes.CDLL, case: Requantise, columns: int, x: tuple[str, int]
) -> None:
    rng = np.random.default_rng(7)
    multiply(byte_tiles, x, draw(rng, x[0], 41, 45), draw(rng, "int8", 45, columns), case, 3)


@every("x", [INPUTS[1], INPUTS[5]], ids=str)
@every("case", (*CONV, *LINES), ids=str)
def test_conv2d(byte_tiles: ctypes.CDLL, case: cases.Conv, x: tuple[str, int]) -> None:
    convolve(byte_tiles, case, SUMS if case in CONV else PLAIN, x)
