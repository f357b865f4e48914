"""Activations of products that are stored as bf16, of every bf16 number, against the formulas."""

from __future__ import annotations

import ctypes
import math

import ml_dtypes
import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.packing import PanelFormat
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

BF16 = np.dtype(ml_dtypes.bfloat16)
_CODE = KERNEL_DTYPES.index(str(BF16))
#: Units of the last place: half a one for rounding, and an eighth of that half for the short form.
#: Below it, sums near 1 end.
LIMIT, TINY = 0.5 * (1 + 1 / 8), 3e-7


def _logistic(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


_TANH_FORM = 2 * math.sqrt(2 / math.pi)
#: Of x in float64.
FORMULAS = {
    "gelu": lambda x: x / 2 * np.vectorize(math.erfc)(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x * _logistic(_TANH_FORM * (x + 0.044715 * x**3)),
    "silu": lambda x: x * _logistic(x),
    "sigmoid": _logistic,
}


@every("columns", [1, 16, 37])
@every("name", FORMULAS)
def test_every_number(bf16_lib: ctypes.CDLL, name: str, columns: int) -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    x = at_page_end(np.resize(numbers, (-(-(1 << 16) // columns), columns)), BF16)
    identity = PanelFormat("bfloat16", 2).pack(np.eye(columns, dtype=BF16)[None])
    panels = at_page_end(identity, BF16)
    y = Rows(*x.shape, columns + 3, dtype=BF16)
    e = abi.Epilogue(after=abi.activation(name))
    p = abi.MatmulParams(m=len(x), n=columns, k=columns, y_row=y.stride, a_row=columns, a_col=1)
    if columns > 1:  # a sum of 0 times what is not finite would be NaN
        x[(x.view(np.uint16) & 0x7F80) == 0x7F80] = 0
    storage = abi.Storage(_CODE, _CODE, _CODE)
    assert (
        bf16_lib.ext_matmul_bf16(p, storage, x.ctypes.data, panels.ctypes.data, e, y.pointer) == 0
    )
    with np.errstate(all="ignore"):
        wide, found = x.astype(np.float64), y.view.astype(np.float64)
        want = FORMULAS[name](wide)
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 2.0**-120))) - 7)
    finite = np.isfinite(want)
    error = np.abs(found - want)[finite]
    worst = np.max(error / (LIMIT * unit[finite] + TINY))
    assert worst <= 1, f"{worst} of the limit"
    np.testing.assert_array_equal(found[~finite], want[~finite])
    y.check_gaps()
