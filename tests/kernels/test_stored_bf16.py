"""Kernels that compute in fp32 what is stored as bf16, against numpy on the stored numbers."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

BF16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
#: The least finite number, and half a step of a result.
LOWEST = float(ml_dtypes.finfo(BF16).min)
HALF_STEP = 2.0**-8


def _code(dtype: np.dtype) -> int:
    return KERNEL_DTYPES.index(str(dtype))


def _draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def _pool(lib: ctypes.CDLL, case: cases.Conv, kind: str, x: np.ndarray) -> np.ndarray:
    rows = Rows(case.n * case.h * case.w, case.c, case.c + case.x_gap, dtype=BF16)
    rows.view[...] = x.reshape(rows.view.shape)
    y = Rows(case.n * case.out[0] * case.out[1], case.c, case.c + case.y_gap, dtype=BF16)
    p = abi.Pool2dParams(
        case.n, case.h, case.w, case.c, *case.out, *case.kernel, *case.strides, *case.padding,
        *case.dilation, rows.stride, y.stride, kind == "average_padded",
    )  # fmt: skip
    function = lib.ext_max_pool2d_bf16 if kind == "max" else lib.ext_avg_pool2d_bf16
    assert function(p, rows.pointer, y.pointer) == 0
    y.check_gaps()
    return y.view.astype(np.float64)


def _windows(case: cases.Conv, x: np.ndarray, fill: float) -> np.ndarray:
    geometry = (case.kernel, case.strides, case.padding, case.dilation, case.out)
    pixels = case.n * case.out[0] * case.out[1]
    taps = case.kernel[0] * case.kernel[1]
    return reference.im2col(x, *geometry, fill).reshape(pixels, taps, case.c)


@every("kind", ["max", "average", "average_padded"])
@every("case", cases.POOL, ids=str)
def test_pool(lib: ctypes.CDLL, case: cases.Conv, kind: str) -> None:
    x = _draw(8, case.n, case.h, case.w, case.c)
    found, wide = _pool(lib, case, kind, x), x.astype(np.float64)
    if kind == "max":
        np.testing.assert_array_equal(found, _windows(case, wide, LOWEST).max(1))
        return
    total = _windows(case, wide, 0.0).sum(1)
    inside = _windows(case, np.ones_like(wide), float(kind == "average_padded")).sum(1)
    want = total / inside
    assert_close(found, want, HALF_STEP * np.abs(want) + 2e-6)


@every("channels", [1, 16, 70])
def test_max_pool_of_special_values(lib: ctypes.CDLL, channels: int) -> None:
    """NaN wins, and of padding alone, or of -inf, the least finite number is the greatest."""
    case = cases.Conv(6, 6, channels, channels, kernel=(2, 2), strides=(2, 2))
    x = np.zeros((1, 6, 6, channels), BF16)
    x[0, 0, 0], x[0, 4:, :2], x[0, 3, 3] = np.nan, -np.inf, np.inf
    want = np.zeros((9, channels))
    want[0], want[6], want[4] = np.nan, LOWEST, np.inf
    np.testing.assert_array_equal(_pool(lib, case, "max", x), want)
    case = cases.Conv(
        1, 1, channels, channels, kernel=(2, 2), dilation=(2, 2), padding=(1, 1, 1, 1)
    )
    found = _pool(lib, case, "max", np.full((1, 1, 1, channels), -2.5, BF16))
    np.testing.assert_array_equal(found, np.full((1, channels), LOWEST))


@every("kind", abi.REDUCE_KIND)
@every("shape", cases.REDUCE, ids=str)
def test_reduce(lib: ctypes.CDLL, shape: tuple[int, int, int], kind: str) -> None:
    """The result is fp32."""
    x = at_page_end(_draw(9, *shape), BF16)
    y = Rows(shape[0], shape[2])
    code = abi.REDUCE_KIND.index(kind)
    assert lib.ext_reduce_bf16(code, *shape, x.ctypes.data, y.pointer) == 0
    wide = x.astype(np.float64)
    assert_close(y.view, *reference.reduced(kind, wide))
    y.check_gaps()


#: Storage of a, b and y.
_STORED = ((BF16, BF16, BF16), (BF16, FP32, BF16), (FP32, BF16, BF16), (BF16, BF16, FP32))


@every("stored", _STORED, ids=["-".join(map(str, s)) for s in _STORED])
@every("kind", ["add", "mul"])
@every("after", [cases.RELU6, ("tanh", 0.0, 0.0)], ids=str)
@every("case", (*cases.BINARY, ((2, 2500), (), ()), ((3, 1500), (0,), (1,))))
def test_binary(
    bf16_lib: ctypes.CDLL, case: tuple, after: cases.Act, kind: str, stored: tuple
) -> None:
    shape, *repeated = case
    rng, operands = np.random.default_rng(5), []
    for dtype, axes in zip(stored, repeated, strict=False):
        own = [1 if d in axes else size for d, size in enumerate(shape)]
        operands.append(np.broadcast_to(at_page_end(rng.uniform(0.5, 2, own), dtype), shape))
    p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(*after), len(shape))
    p.shape[: len(shape)] = shape
    for strides, array in zip((p.a_strides, p.b_strides), operands, strict=True):
        strides[: len(shape)] = [stride // array.itemsize for stride in array.strides]
    y = Rows(1, int(np.prod(shape)), dtype=stored[2])
    s = abi.Storage(*map(_code, stored))
    pointers = [array.ctypes.data for array in operands]
    assert bf16_lib.ext_binary_bf16(p, s, *pointers, y.pointer) == 0
    a, b = (array.astype(np.float64) for array in operands)
    want = reference.activate(after[0], {"add": np.add, "mul": np.multiply}[kind](a, b), *after[1:])
    limit = 1e-6 + (HALF_STEP * np.abs(want) if stored[2] == BF16 else 0.0)
    assert_close(y.view[0].reshape(shape).astype(np.float64), want, limit)
    y.check_gaps()


def test_binary_in_place_and_across_strides(bf16_lib: ctypes.CDLL) -> None:
    a = at_page_end(_draw(1, 5, 1100), BF16)
    b = at_page_end(_draw(2, 1100, 5), BF16)
    want = (a.astype(FP32) + b.T.astype(FP32)).astype(BF16)
    p = abi.BinaryParams(abi.BINARY_KIND.index("add"), abi.Activation(), 2)
    p.shape[:2], p.a_strides[:2], p.b_strides[:2] = (5, 1100), (1100, 1), (1, 5)
    s = abi.Storage(*[_code(BF16)] * 3)
    assert bf16_lib.ext_binary_bf16(p, s, a.ctypes.data, b.ctypes.data, a.ctypes.data) == 0
    np.testing.assert_array_equal(a, want)


def test_binary_of_other_dtypes_and_kinds_is_refused(bf16_lib: ctypes.CDLL) -> None:
    p, right = abi.BinaryParams(ndim=1), abi.Storage(*[_code(BF16)] * 3)
    for kind in set(abi.BINARY_KIND) - {"add", "mul"}:
        p.kind = abi.BINARY_KIND.index(kind)
        assert bf16_lib.ext_binary_bf16(p, right, None, None, None) == 2
    p.kind = 0
    for wrong in range(3):
        codes = [_code(BF16)] * 3
        codes[wrong] = KERNEL_DTYPES.index("int8")
        assert bf16_lib.ext_binary_bf16(p, abi.Storage(*codes), None, None, None) == 2


@every("shape", cases.LAYER_NORM, ids=str)
@every("stored", [(FP32, BF16), (BF16, FP32), (BF16, BF16), (FP32, FP32)])
def test_layer_norm(
    winograd_lib: ctypes.CDLL, shape: tuple[int, int], stored: tuple[np.dtype, np.dtype]
) -> None:
    rng = np.random.default_rng(11)
    rows, n = shape
    x = at_page_end(rng.standard_normal(shape) + 3, stored[0])
    gamma, beta = at_page_end(rng.standard_normal(n)), at_page_end(rng.standard_normal(n))
    y = Rows(rows, n, dtype=stored[1])
    storage = abi.Storage(_code(stored[0]), _code(FP32), _code(stored[1]))
    affine = (gamma.ctypes.data, beta.ctypes.data) if n % 2 else (None, None)
    function = winograd_lib.ext_layer_norm_bf16
    assert function(rows, n, 1e-5, storage, x.ctypes.data, *affine, y.pointer) == 0
    if x.size:
        wide = x.astype(np.float64)
        deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        want = (wide - wide.mean(1, keepdims=True)) / deviation
        want = want * gamma + beta if n % 2 else want
        limit = 1e-5 + 2e-6 / deviation
        assert_close(y.view, want, limit + HALF_STEP * abs(want) * (stored[1] == BF16))
    y.check_gaps()


@every("shape", cases.LAYER_NORM, ids=str)
@every("stored", [(FP32, BF16), (BF16, FP32), (BF16, BF16), (FP32, FP32)])
def test_rms_norm(
    winograd_lib: ctypes.CDLL, shape: tuple[int, int], stored: tuple[np.dtype, np.dtype]
) -> None:
    rng = np.random.default_rng(12)
    rows, n = shape
    x, gamma = at_page_end(rng.standard_normal(shape), stored[0]), at_page_end(rng.random(n))
    y = Rows(rows, n, dtype=stored[1])
    storage = abi.Storage(_code(stored[0]), _code(FP32), _code(stored[1]))
    pointers = x.ctypes.data, gamma.ctypes.data, y.pointer
    assert winograd_lib.ext_rms_norm_bf16(rows, n, 1e-5, storage, *pointers) == 0
    if x.size:
        wide = x.astype(np.float64)
        want = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * gamma
        assert_close(y.view, want, 1e-5 + HALF_STEP * abs(want) * (stored[1] == BF16))
    y.check_gaps()


def test_layer_norm_of_other_dtypes_is_refused(winograd_lib: ctypes.CDLL) -> None:
    for codes in ((KERNEL_DTYPES.index("int32"), _code(BF16)), (_code(BF16), 99)):
        storage = abi.Storage(codes[0], 0, codes[1])
        assert winograd_lib.ext_layer_norm_bf16(1, 1, 0.0, storage, None, None, None, None) == 2
        assert winograd_lib.ext_rms_norm_bf16(1, 1, 0.0, storage, None, None, None) == 2
