"""Binary functions of quantised tensors against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import at_page_end

_FUNCTIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def wanted(values: np.ndarray, scale: float, zero: int, dtype: str) -> np.ndarray:
    if dtype == "float32":
        return values
    bounds = np.iinfo(dtype)
    steps = np.rint(values / np.float32(scale)) + zero
    return np.clip(steps, bounds.min, bounds.max).astype(dtype)


@every("kind", list(_FUNCTIONS))
@every("size", [0, 1, 7, 33, 512, 513, 1700])
@every(
    "dtypes",
    [
        ("uint8", "uint8", "uint8"),
        ("int8", "int8", "int8"),
        ("uint8", "int8", "uint8"),
        ("int8", "uint8", "float32"),
    ],
    ids="-".join,
)
def test_qbinary(lib: ctypes.CDLL, dtypes: tuple[str, str, str], size: int, kind: str) -> None:
    draw = np.random.default_rng(size)
    bounds = [np.iinfo(dtype) for dtype in dtypes[:2]]
    a, b = (
        at_page_end(draw.integers(bound.min, bound.max, size, endpoint=True), bound.dtype)
        for bound in bounds
    )
    y = at_page_end(np.zeros(size), np.dtype(dtypes[2]))
    numbers = [KERNEL_DTYPES.index(d) for d in dtypes]
    p = abi.QbinaryParams(abi.BINARY_KIND.index(kind), abi.activation("relu"), size, *numbers)
    p.a_scale, p.b_scale, p.y_scale = 0.03, 0.05, 0.07
    p.a_zero, p.b_zero, p.y_zero = 5, 100, 17
    assert lib.ext_qbinary(p, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
    left = (a.astype(np.int32) - 5).astype(np.float32) * np.float32(0.03)
    right = (b.astype(np.int32) - 100).astype(np.float32) * np.float32(0.05)
    value = np.maximum(_FUNCTIONS[kind](left, right), 0)
    want = wanted(value, 0.07, 17, dtypes[2])
    if dtypes[2] == "float32":
        np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)
    else:
        apart = np.abs(y.astype(int) - want.astype(int))
        assert apart.max(initial=0) <= 1 and (apart > 0).sum() <= 0.01 * size


def test_special_values_are_limited(lib: ctypes.CDLL) -> None:
    a = np.array([0, 255, 128], np.uint8)
    y = np.zeros(3, np.uint8)
    number = KERNEL_DTYPES.index("uint8")
    for scale, want in ((np.inf, [0, 255, 0]), (np.nan, [0, 0, 0])):
        p = abi.QbinaryParams(abi.BINARY_KIND.index("add"), abi.activation(), 3, *[number] * 3)
        p.a_scale, p.b_scale, p.y_scale = scale, 1.0, 1.0
        p.a_zero = p.b_zero = 128
        assert lib.ext_qbinary(p, a.ctypes.data, a.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, want)


def test_what_it_does_not_read_is_refused(lib: ctypes.CDLL) -> None:
    p = abi.QbinaryParams(abi.BINARY_KIND.index("div"), abi.activation(), 0)
    assert lib.ext_qbinary(p, None, None, None) == 2
    p = abi.QbinaryParams(abi.BINARY_KIND.index("add"), abi.activation(), 0)
    assert lib.ext_qbinary(p, None, None, None) == 2
