"""Rows by the matrices of their groups, against numpy: sorted, mixed, without a group, and none."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.bfloat16 import BFLOAT16_PANELS
from codegen_cc.operators.packing import FLOAT32_PANELS
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

BF16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)

#: Rows of each group in turn, and where they stand.
GROUPS = {
    "sorted": [0] * 3 + [2] * 40 + [3],
    "mixed": [1, 0, 1, 1, 3, 2, 2, 0],
    "some without": [0, 0, 4, 4, -1, 2, 3, 7],
    "one row": [2],
    "all of one": [1] * 33,
    "none": [],
}


def _sizes(k: int, n: int, rows: int) -> ctypes.Structure:
    return abi.MatmulParams(m=rows, n=n, k=k, a_row=k + 1, a_col=1, y_row=n + 2)


def _want(x: np.ndarray, w: np.ndarray, group: np.ndarray) -> np.ndarray:
    rows = [x[i] @ w[g] if 0 <= g < len(w) else np.zeros(w.shape[2]) for i, g in enumerate(group)]
    return np.array(rows).reshape(len(group), w.shape[2])


@every(("k", "n"), [(7, 5), (40, 48), (130, 33)])
@every("name", GROUPS)
def test_float32(lib: ctypes.CDLL, name: str, k: int, n: int) -> None:
    rng = np.random.default_rng(3)
    group = at_page_end(np.array(GROUPS[name]), np.dtype(np.int64))
    w = rng.standard_normal((4, k, n)).astype(np.float32)
    panels = at_page_end(FLOAT32_PANELS.pack(w))
    x, y = Rows(len(group), k, k + 1), Rows(len(group), n, n + 2)
    x.view[...] = rng.standard_normal(x.view.shape)
    pointers = group.ctypes.data, x.pointer, panels.ctypes.data, y.pointer
    assert lib.ext_matmul_grouped(_sizes(k, n, len(group)), 4, *pointers) == 0
    want = _want(x.view.astype(np.float64), w.astype(np.float64), group)
    if want.size:
        assert_close(y.view, want, 1e-5 * np.sqrt(k))
    y.check_gaps()


@pytest.mark.slow
@every("stored", [(FP32, FP32), (BF16, BF16), (FP32, BF16)])
@every("name", GROUPS)
def test_bfloat16(bf16_lib: ctypes.CDLL, name: str, stored: tuple[np.dtype, np.dtype]) -> None:
    k, n, rng = 43, 37, np.random.default_rng(4)
    group = at_page_end(np.array(GROUPS[name]), np.dtype(np.int64))
    w = rng.standard_normal((4, k, n)).astype(BF16)
    panels = at_page_end(BFLOAT16_PANELS.pack(w), BF16)
    x = Rows(len(group), k, k + 1, dtype=stored[0])
    y = Rows(len(group), n, n + 2, dtype=stored[1])
    x.view[...] = rng.standard_normal(x.view.shape).astype(BF16)
    storage = abi.Storage(*(KERNEL_DTYPES.index(str(d)) for d in (stored[0], FP32, stored[1])))
    pointers = group.ctypes.data, x.pointer, panels.ctypes.data, y.pointer
    sizes = _sizes(k, n, len(group))
    assert bf16_lib.ext_matmul_grouped_bf16(sizes, storage, 4, *pointers) == 0
    want = _want(x.view.astype(np.float64), w.astype(np.float64), group)
    if want.size:
        assert_close(y.view, want, 1e-4 + 2.0**-8 * (stored[1] == BF16) * np.abs(want))
    y.check_gaps()


def test_batches_are_refused(lib: ctypes.CDLL) -> None:
    p = abi.MatmulParams(m=1, n=1, k=1, batch_ndim=1)
    assert lib.ext_matmul_grouped(p, 1, None, None, None, None) == 2
