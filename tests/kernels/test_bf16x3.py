"""Products of float32 operands in two parts of bf16, against numpy in float64 on the whole ones."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.operators.bfloat16 import BFLOAT16X3_PANELS
from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end
from tests.kernels.test_bf16 import BF16, CONV, FP32, RELATIVE_OF_PARTS, convolve, matmul

FLOATS = (FP32, FP32, FP32)
#: Every tail of tiles and of pairs, blocks of K, batches.
MATMUL = (
    *(cases.Matmul(m, 45, 23, y_gap=1) for m in (0, 1, 2, 7, 13, 16, 17, 31, 32, 33)),
    *(cases.Matmul(9, n, 21, y_gap=1) for n in (0, 1, 15, 16, 17, 33, 49)),
    *(cases.Matmul(19, 37, k) for k in (0, 1, 2, 31, 32, 33, 63, 64, 65)),
    *(cases.Matmul(35, 37, k, epilogue=e) for k in (2047, 2049) for e in cases.EPILOGUES[5:8]),
    *(cases.Matmul(23, 43, 50, y_gap=2, epilogue=e) for e in cases.EPILOGUES),
    cases.Matmul(1, 100, 4100, epilogue=cases.EPILOGUES[2]),
    cases.Matmul(130, 300, 500),
    cases.Matmul(20, 33, 16, batch=(2, 3), b_broadcast=(0,)),
    cases.Matmul(20, 33, 16, batch=(2, 3), a_broadcast=(1,)),
    cases.Matmul(11, 19, 23, batch=(4,), y_gap=5, epilogue=cases.EPILOGUES[8]),
    cases.Matmul(31, 35, 37, a_transposed=True),
)


@every("case", MATMUL, ids=str)
def test_matmul(bf16x3_lib: ctypes.CDLL, case: cases.Matmul) -> None:
    matmul(bf16x3_lib, case, FLOATS, parts=2)


@every("case", CONV, ids=str)
def test_conv2d(bf16x3_lib: ctypes.CDLL, case: cases.Conv) -> None:
    convolve(bf16x3_lib, case, FLOATS, parts=2)


def _products(lib: ctypes.CDLL, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y [len(x), len(w)]: each x times each w, as a product with K = 1."""
    a = at_page_end(x[:, None], FP32)
    panels = at_page_end(BFLOAT16X3_PANELS.pack(w[None, None]), BF16)
    out = Rows(len(x), len(w))
    p = abi.MatmulParams(m=len(x), n=len(w), k=1, a_row=1, a_col=1, y_row=out.stride)
    e = abi.Epilogue()
    assert lib.ext_matmul_bf16x3(p, a.ctypes.data, panels.ctypes.data, e, out.pointer) == 0
    return out.view.copy()


def test_each_product_is_within_the_bound(bf16x3_lib: ctypes.CDLL) -> None:
    """Also where the lower parts are as large as can be: halves between two bf16."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-2, 2, 500), 1 + np.arange(1, 129) / 128 - 2.0**-8 - 2.0**-18])
    w = np.concatenate([rng.uniform(-2, 2, 50), 1 + np.arange(1, 9) / 128 + 2.0**-8 - 2.0**-17])
    x, w = x.astype(FP32), w.astype(FP32)
    want = np.outer(x.astype(np.float64), w.astype(np.float64))
    errors = np.abs(_products(bf16x3_lib, x, w) - want)
    assert (errors <= RELATIVE_OF_PARTS * (1 + 2.0**-7) * np.abs(want)).all()


def test_special_values_act_as_in_float32(bf16x3_lib: ctypes.CDLL) -> None:
    """Infinity times a number whose lower part is 0 is infinity, and no bf16 is rounded to it."""
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 3.4028235e38, -3.4e38, 1.0, -0.1], FP32)
    w = np.array([1.0, -2.0, 0.1, 0.0, 0.9999, np.inf, -np.inf, np.nan, 3.4028235e38], FP32)
    with np.errstate(all="ignore"):
        want = np.outer(x, w)
    got = _products(bf16x3_lib, x, w)
    special = ~np.isfinite(want)
    np.testing.assert_array_equal(got[special], want[special])
    # What is less than the bound below the greatest float32 may overflow.
    finite = np.abs(want) < 3.4028235e38 * (1 - RELATIVE_OF_PARTS)
    np.testing.assert_allclose(got[finite], want[finite], rtol=RELATIVE_OF_PARTS)


@every("k", [1, 70, 2100])
def test_what_is_beyond_the_greatest_number_is_infinite(bf16x3_lib: ctypes.CDLL, k: int) -> None:
    """Not NaN, as where the parts' products are infinities of either sign; an infinity stays one
    times a number whose lower part has the other sign."""
    rng = np.random.default_rng(8)
    x, w = np.zeros((45, k), FP32), np.zeros((k, 37), FP32)
    at = k * 3 // 4
    x[:, at] = 1.7e25 * rng.choice([-1, 1], 45) * rng.uniform(1, 2, 45)
    x[7, at], x[40, at] = np.inf, -np.inf
    w[at] = 1.3e25 * rng.uniform(1, 2, 37)
    a, panels = at_page_end(x, FP32), at_page_end(BFLOAT16X3_PANELS.pack(w[None]), BF16)
    bias, out = at_page_end(np.ones(37), FP32), Rows(45, 37)
    p = abi.MatmulParams(m=45, n=37, k=k, a_row=k, a_col=1, y_row=out.stride)
    e = abi.Epilogue(bias=bias.ctypes.data)
    assert bf16x3_lib.ext_matmul_bf16x3(p, a.ctypes.data, panels.ctypes.data, e, out.pointer) == 0
    np.testing.assert_array_equal(out.view, np.outer(np.sign(x[:, at]), np.full(37, np.inf)))


def test_blocks_that_cannot_be_are_refused(bf16x3_lib: ctypes.CDLL) -> None:
    e, p = abi.Epilogue(), abi.MatmulParams(n=3, k=4, a_row=4, a_col=1, batch_ndim=5)
    assert bf16x3_lib.ext_matmul_bf16x3(p, None, None, e, None) == 2
    conv = abi.Conv2dParams(groups=2, in_c=3)
    assert bf16x3_lib.ext_conv2d_bf16x3(conv, None, None, e, None) == 2
