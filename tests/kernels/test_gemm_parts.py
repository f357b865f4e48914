"""Products of fp32 in three parts on tiles of bf16, against numpy in float64.

All cases are as large as those that go there: no smaller one does.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.operators.conv2d_ways import TILE_ROWS
from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end
from tests.kernels.test_block_weight import Weight
from tests.kernels.test_gemm import (
    convolve,
    convolve_prologue,
    matmul,
    name_of_matmul,
    packed_and_plain,
)

#: What is left out of a product, and the sum's own rounding.
RELATIVE = 2.0**-22
#: The greatest bf16; what is greater has no parts.
MOST = 3.3895314e38

#: Every tail of micropanels, tiles of columns, steps, parts and blocks of K; blocks of A.
MATMUL = (
    *(cases.Matmul(m, 129, 129, y_gap=1) for m in (96, 97, 111, 112, 113, 127, 128, 129, 144)),
    *(cases.Matmul(131, n, 128, y_gap=2) for n in (128, 129, 143, 144, 145, 159, 160, 161)),
    *(
        cases.Matmul(100, 140, k)
        for k in (
            128,
            129,
            159,
            160,
            161,
            191,
            255,
            256,
            257,
            289,
            513,
            1023,
            1024,
            1025,
            1057,
            2081,
        )
    ),
    *(
        cases.Matmul(103, 150, k, y_gap=2, epilogue=e)
        for k in (134, 1100)
        for e in cases.EPILOGUES + cases.FACTORS
    ),
    cases.Matmul(1100, 97, 128),
    cases.Matmul(340, 97, 1030, epilogue=cases.EPILOGUES[6]),
    cases.Matmul(100, 140, 134, batch=(2, 3), b_broadcast=(0,)),
    cases.Matmul(100, 140, 134, batch=(2, 3), a_broadcast=(1,), y_gap=3),
    cases.Matmul(100, 140, 134, batch=(5,), epilogue=cases.EPILOGUES[8]),
    cases.Matmul(100, 140, 300, a_transposed=True),
    cases.Matmul(100, 140, 300, b_transposed=True),
)
CONV = (
    cases.Conv(11, 12, 32, 130, padding=(1, 1, 1, 1)),
    cases.Conv(23, 25, 21, 135, strides=(2, 2), padding=(1, 0, 1, 2), n=2, x_gap=3, y_gap=2),
    cases.Conv(13, 14, 37, 140, dilation=(2, 2), padding=(2, 2, 2, 2), epilogue=cases.EPILOGUES[5]),
    cases.Conv(12, 12, 80, 260, groups=2, padding=(1, 1, 1, 1), epilogue=cases.EPILOGUES[8]),
    cases.Conv(25, 5, 129, 140, kernel=(1, 1), y_gap=1),
    cases.Conv(25, 9, 129, 140, kernel=(1, 1), strides=(2, 2)),
)
POINTS = (
    cases.Conv(10, 11, 134, 140, kernel=(1, 1), x_gap=2),
    cases.Conv(7, 8, 164, 160, kernel=(1, 1), n=2, epilogue=cases.EPILOGUES[5]),
)


@pytest.mark.slow
@every(("case", "packed"), packed_and_plain(MATMUL), ids=name_of_matmul)
def test_matmul(parts_lib: ctypes.CDLL, case: cases.Matmul, packed: bool) -> None:
    matmul(parts_lib, case, packed)


@every("in_place_rows", [TILE_ROWS, 0], ids=["in_place", "packed"])
@every("case", CONV, ids=str)
def test_conv2d(parts_lib: ctypes.CDLL, case: cases.Conv, in_place_rows: int) -> None:
    convolve(parts_lib, case, in_place_rows)


@every("parts", ["image scale", "both"])
@every("act", [cases.RELU, ("silu", 0.0, 0.0)], ids=str)
@every("case", POINTS, ids=str)
def test_prologue(parts_lib: ctypes.CDLL, case: cases.Conv, act: cases.Act, parts: str) -> None:
    convolve_prologue(parts_lib, case, act, parts)


@every("bits", [4, 8])
@every("k", [128, 164, 1100])
def test_weights_of_few_bits(parts_of_blocks_lib: ctypes.CDLL, bits: int, k: int) -> None:
    m, n = 100, 150
    rng = np.random.default_rng(k + bits)
    weight = Weight(rng, bits, k, n, 32, "uint8")
    a, out = at_page_end(rng.uniform(-1, 1, (m, k)), np.float32), Rows(m, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, y_row=out.stride)
    e = abi.Epilogue()
    assert (
        parts_of_blocks_lib.ext_matmul_block(p, weight.struct, a.ctypes.data, e, out.pointer) == 0
    )
    sizes = np.abs(a.astype(np.float64)) @ np.abs(weight.values)
    assert (np.abs(out.view - a.astype(np.float64) @ weight.values) <= 2e-6 * sizes).all()


def _product(lib: ctypes.CDLL, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    a, panels, out = at_page_end(a, np.float32), abi.pack_panels(b), Rows(m, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=k, a_col=1, y_row=out.stride)
    pointers = a.ctypes.data, panels.ctypes.data
    assert lib.ext_matmul_packed(p, *pointers, abi.Epilogue(), out.pointer) == 0
    return out.view.copy()


def _lone_products(lib: ctypes.CDLL, x: np.ndarray, w: np.ndarray, place: int) -> np.ndarray:
    """y [len(x), len(w)]: each x times each w; other terms of the sums are 0 times 0."""
    a, b = np.zeros((len(x), 300), np.float32), np.zeros((300, len(w)), np.float32)
    a[:, place], b[place] = x, w
    return _product(lib, a, b)


def test_each_product_is_as_good_as_in_float32(parts_lib: ctypes.CDLL) -> None:
    """Also where the parts left out are as large as can be: halves between two bf16."""
    rng = np.random.default_rng(2)
    steps = np.arange(1, 129) / 128
    x = np.concatenate([rng.uniform(-2, 2, 500), 1 + steps - 2.0**-8 - 2.0**-16 + 2.0**-23])
    w = np.concatenate([rng.uniform(-2, 2, 90), 1 + steps[:60] + 2.0**-8 - 2.0**-16 - 2.0**-23])
    x, w = x.astype(np.float32), w.astype(np.float32)
    want = np.outer(x.astype(np.float64), w.astype(np.float64))
    for place in (0, 31, 32, 299):
        errors = np.abs(_lone_products(parts_lib, x, w, place) - want)
        assert (errors <= RELATIVE * np.abs(want)).all()


def test_sums_are_as_good_as_in_float32(parts_lib: ctypes.CDLL) -> None:
    """Errors against those of sums in float32 one after the other: on the unit, which rounds less
    often, half of them; written out in C, where six times as many terms are added, not twice."""
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((128, 1500), (1500, 160)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    sums = np.zeros(want.shape, np.float32)
    for p in range(a.shape[1]):
        sums += np.outer(a[:, p], b[p])
    error = np.sqrt(np.mean((_product(parts_lib, a, b) - want) ** 2))
    assert error < 2 * np.sqrt(np.mean((sums - want) ** 2))


def test_whole_numbers_are_exact(parts_lib: ctypes.CDLL) -> None:
    """2^24 is the sum of no more than three bf16."""
    rng = np.random.default_rng(4)
    a = rng.integers(-(2**12), 2**12, (128, 132)).astype(np.float32)
    b = np.eye(132, 160, dtype=np.float32) * 4095
    np.testing.assert_array_equal(_product(parts_lib, a, b), a @ b)
    large = rng.integers(-(2**24), 2**24, (128, 132)).astype(np.float32)
    np.testing.assert_array_equal(_product(parts_lib, large, b / 4095), large @ (b / 4095))


def _finite(x: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(x), x, 0)


@every("k", [300, 1300])
@every("where", ["a", "b", "both"])
def test_special_values_act_as_in_float32(parts_lib: ctypes.CDLL, where: str, k: int) -> None:
    """In any step of K, also the short last one; rows and columns without them keep their sums."""
    rng = np.random.default_rng(5)
    special = np.array([np.inf, -np.inf, np.nan, 3.4028235e38, -3.4e38, MOST], np.float32)
    a = rng.normal(size=(131, k)).astype(np.float32)
    b = rng.normal(size=(k, 150)).astype(np.float32)
    for i, value in enumerate(special):
        place = (0, 31, 40, 257, k - 13, k - 1)[i]
        if where != "b":
            a[(3, 33, 64, 97, 128, 130)[i], place] = value
        if where != "a":
            b[place, (0, 17, 33, 64, 128, 149)[i]] = value
    wide = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        want = wide[0] @ wide[1]
    # Where finite terms are huge, their sums may be infinite on the way, as in float32.
    size = np.abs(_finite(wide[0])) @ np.abs(_finite(wide[1]))
    got, small = _product(parts_lib, a, b), size < MOST
    special_sums = small & ~np.isfinite(want)
    np.testing.assert_array_equal(got[special_sums], want[special_sums])
    sure = small & np.isfinite(want)
    assert (np.abs(got[sure] - want[sure]) <= 1e-6 * size[sure]).all()
    assert sure.sum() > 131 * 150 / 2


def test_infinity_times_one_is_infinity(parts_lib: ctypes.CDLL) -> None:
    """The lower parts of 1 are 0: no infinity may meet them."""
    a, b = np.ones((128, 64), np.float32), np.ones((64, 160), np.float32)
    a[5, 6] = np.inf
    y = _product(parts_lib, a, b)
    assert (y[5] == np.inf).all()
    assert (np.delete(y, 5, axis=0) == 64).all()


@every("k", [100, 1300])
def test_products_beyond_the_greatest_number_are_infinite(parts_lib: ctypes.CDLL, k: int) -> None:
    """Not NaN, as the sum of its parts is: infinities of either sign, as parts have either.

    They meet in one row and one column; what others share a tile with them stays what it is.
    """
    rng = np.random.default_rng(7)
    a = rng.normal(size=(131, k)).astype(np.float32)
    b = rng.normal(size=(k, 150)).astype(np.float32)
    signs = rng.choice([-1, 1], 130).astype(np.float32)
    a[:130, 70] = 1.7e25 * signs * rng.uniform(1, 2, 130)
    b[70, :149] = 1.3e25 * rng.uniform(1, 2, 149)
    a[130, 70] = b[70, 149] = 0
    got = _product(parts_lib, a, b)
    np.testing.assert_array_equal(got[:130, :149], np.outer(signs, np.full(149, np.inf)))
    want = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    sure = size < MOST
    assert sure.sum() == 131 + 149
    assert (np.abs(got[sure] - want[sure]) <= 1e-6 * size[sure]).all()


def test_other_sums_than_in_vectors(parts_lib: ctypes.CDLL, levels: dict[str, ctypes.CDLL]) -> None:
    """The products above did go by parts."""
    rng = np.random.default_rng(6)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((128, 500), (500, 160)))
    vectors = next(lib for lib in reversed(levels.values()) if lib.ext_isa_error() is None)
    assert (_product(parts_lib, a, b) != _product(vectors, a, b)).any()
