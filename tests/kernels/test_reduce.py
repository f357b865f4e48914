"""Pooling, reductions, softmax and layer normalisation against numpy in float64."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_BYTES, KERNEL_DTYPES, KERNEL_INDICES
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

#: What a maximum over windows begins with, as in ONNX Runtime.
LOWEST = float(np.finfo(np.float32).min)


def _pool_params(case: cases.Conv, x_stride: int, y_stride: int, include: bool) -> abi.Pool2dParams:
    return abi.Pool2dParams(
        case.n, case.h, case.w, case.c, *case.out, *case.kernel, *case.strides, *case.padding,
        *case.dilation, x_stride, y_stride, include,
    )  # fmt: skip


def _pool(lib: ctypes.CDLL, case: cases.Conv, kind: str, x: np.ndarray) -> Rows:
    rows = Rows(case.n * case.h * case.w, case.c, case.c + case.x_gap)
    rows.view[...] = x.reshape(rows.view.shape)
    y = Rows(case.n * case.out[0] * case.out[1], case.c, case.c + case.y_gap)
    p = _pool_params(case, rows.stride, y.stride, kind == "average_padded")
    function = lib.ext_max_pool2d if kind == "max" else lib.ext_avg_pool2d
    assert function(p, rows.pointer, y.pointer) == 0
    y.check_gaps()
    return y


def _windows(case: cases.Conv, x: np.ndarray, fill: float) -> np.ndarray:
    windows = reference.im2col(
        x, case.kernel, case.strides, case.padding, case.dilation, case.out, fill
    )
    pixels = case.n * case.out[0] * case.out[1]
    return windows.reshape(pixels, case.kernel[0] * case.kernel[1], case.c)


@every("kind", ["max", "average", "average_padded"])
@every("case", cases.POOL, ids=str)
def test_pool(lib: ctypes.CDLL, case: cases.Conv, kind: str) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((case.n, case.h, case.w, case.c)).astype(np.float32)
    y = _pool(lib, case, kind, x)
    if kind == "max":
        np.testing.assert_array_equal(y.view, _windows(case, x, LOWEST).max(1))
        return
    total = _windows(case, x, 0.0).sum(1)
    # No case here lets a window reach past the padded image, so that all taps count.
    inside = _windows(case, np.ones_like(x), 1.0 if kind == "average_padded" else 0.0).sum(1)
    assert_close(y.view, total / inside, 2e-6)


@every("dtype", KERNEL_BYTES)
@every("case", cases.POOL, ids=str)
def test_pool_of_bytes(lib: ctypes.CDLL, case: cases.Conv, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(9).integers(
        limits.min, limits.max + 1, (case.n, case.h, case.w, case.c)
    )
    pixels = (case.n * case.h * case.w, case.n * case.out[0] * case.out[1])
    given, found = (
        at_page_end(np.full((count, case.c + gap), 77), np.dtype(dtype))
        for count, gap in zip(pixels, (case.x_gap, case.y_gap), strict=True)
    )
    given[:, : case.c] = x.reshape(pixels[0], case.c)
    p = _pool_params(case, case.c + case.x_gap, case.c + case.y_gap, False)
    code = KERNEL_DTYPES.index(dtype)
    assert lib.ext_max_pool2d_bytes(p, code, given.ctypes.data, found.ctypes.data) == 0
    want = _windows(case, x, limits.min).max(1)
    np.testing.assert_array_equal(found[:, : case.c], want)
    assert (found[:, case.c :] == 77).all()


def test_pool_of_other_dtypes_is_refused(lib: ctypes.CDLL) -> None:
    case = cases.Conv(6, 6, 4, 4, kernel=(2, 2), strides=(2, 2))
    p = _pool_params(case, 4, 4, False)
    for dtype in set(KERNEL_DTYPES) - set(KERNEL_BYTES):
        assert lib.ext_max_pool2d_bytes(p, KERNEL_DTYPES.index(dtype), None, None) == 2


def test_average_pool_in_ceil_mode_counts_up_to_the_padding(lib: ctypes.CDLL) -> None:
    # 5 wide, kernel 3, stride 2, padding 1 and 2: the fourth window has two padded taps.
    x = np.arange(1, 6, dtype=np.float32)
    y = np.zeros(4, np.float32)
    p = abi.Pool2dParams(1, 1, 5, 1, 1, 4, 1, 3, 1, 2, 0, 1, 0, 2, 1, 1, 1, 1, 1)
    assert lib.ext_avg_pool2d(p, x.ctypes.data, y.ctypes.data) == 0
    assert_close(y, [3 / 3, 9 / 3, 9 / 3, 0 / 2], 1e-6)


@every("channels", [1, 16, 70])
def test_max_pool_keeps_nan(lib: ctypes.CDLL, channels: int) -> None:
    case = cases.Conv(6, 6, channels, channels, kernel=(2, 2), strides=(2, 2))
    x = np.zeros((1, 6, 6, channels), np.float32)
    x[0, 0, 0], x[0, 3, 3], x[0, 4, 5] = np.nan, np.nan, -np.inf
    want = np.zeros((9, channels))
    want[0], want[4] = np.nan, np.nan
    np.testing.assert_array_equal(_pool(lib, case, "max", x).view, want)


@every("channels", [1, 16, 70])
def test_max_pool_of_nothing_is_the_lowest_number(lib: ctypes.CDLL, channels: int) -> None:
    """A window of padding alone, which dilation makes possible, and one of -inf alone."""
    case = cases.Conv(
        1, 1, channels, channels, kernel=(2, 2), dilation=(2, 2), padding=(1, 1, 1, 1)
    )
    pooled = _pool(lib, case, "max", np.full((1, 1, 1, channels), -2.5, np.float32))
    np.testing.assert_array_equal(pooled.view, np.full((1, channels), LOWEST))
    case = cases.Conv(4, 4, channels, channels, kernel=(2, 2), strides=(2, 2))
    pooled = _pool(lib, case, "max", np.full((1, 4, 4, channels), -np.inf, np.float32))
    np.testing.assert_array_equal(pooled.view, np.full((4, channels), LOWEST))


#: What no kernel of integers computes.
_REAL_KINDS = ("mean", "sum_squares", "mean_squares")


@every("kind", abi.REDUCE_KIND)
@every("shape", cases.REDUCE, ids=str)
def test_reduce(lib: ctypes.CDLL, shape: tuple[int, int, int], kind: str) -> None:
    x = at_page_end(np.random.default_rng(9).standard_normal(shape))
    y = Rows(shape[0], shape[2])
    code = abi.REDUCE_KIND.index(kind)
    assert lib.ext_reduce(code, *shape, x.ctypes.data, y.pointer) == 0
    wide = x.astype(np.float64)
    assert_close(y.view, *reference.reduced(kind, wide))
    y.check_gaps()


@every("inner", [1, 5, 70])
@every("kind", abi.REDUCE_KIND)
def test_reduce_keeps_nan(lib: ctypes.CDLL, kind: str, inner: int) -> None:
    x = np.ones((4, 90, inner), np.float32)
    x[0, 0], x[1, 77], x[2, 89], x[3, 5] = np.nan, np.nan, np.inf, -np.inf
    y = np.empty((4, inner), np.float32)
    code = abi.REDUCE_KIND.index(kind)
    assert lib.ext_reduce(code, *x.shape, x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, reference.reduced(kind, x.astype(np.float64))[0])


def test_reduce_of_nothing(lib: ctypes.CDLL) -> None:
    y = np.zeros(1, np.float32)
    for kind, want in zip(abi.REDUCE_KIND, (0, 0, -np.inf, np.inf, 1, 0, 0), strict=True):
        code = abi.REDUCE_KIND.index(kind)
        assert lib.ext_reduce(code, 1, 0, 1, y.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, np.float32([want]))


@every("dtype", KERNEL_INDICES)
@every("kind", [kind for kind in abi.REDUCE_KIND if kind not in _REAL_KINDS])
@every("shape", cases.REDUCE, ids=str)
def test_reduce_integers(
    lib: ctypes.CDLL, shape: tuple[int, int, int], kind: str, dtype: str
) -> None:
    """Sums and products wrap around; of nothing each kind gives what changes no other element."""
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(19).integers(limits.min, limits.max, shape, dtype) | 1
    x = at_page_end(drawn, np.dtype(dtype))
    y = at_page_end(np.zeros((shape[0], shape[2])), np.dtype(dtype))
    codes = KERNEL_DTYPES.index(dtype), abi.REDUCE_KIND.index(kind)
    assert lib.ext_reduce_integers(*codes, *shape, x.ctypes.data, y.ctypes.data) == 0
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
    neutral = {"sum": 0, "prod": 1, "max": limits.min, "min": limits.max}[kind]
    want = ufunc.reduce(x, axis=1, dtype=dtype, initial=neutral)
    np.testing.assert_array_equal(y, want)


def test_other_reductions_of_integers_are_refused(lib: ctypes.CDLL) -> None:
    for dtype in KERNEL_DTYPES:
        code = KERNEL_DTYPES.index(dtype)
        for kind in _REAL_KINDS if dtype in KERNEL_INDICES else ("sum",):
            kind_code = abi.REDUCE_KIND.index(kind)
            assert lib.ext_reduce_integers(code, kind_code, 1, 1, 1, None, None) == 2


def test_long_sum_is_accurate(lib: ctypes.CDLL) -> None:
    for shape in ((1, 1 << 20, 1), (1, 1 << 18, 4)):
        x = np.full(shape, 0.1, np.float32)
        y = np.zeros(shape[2], np.float32)
        assert lib.ext_reduce(0, *shape, x.ctypes.data, y.ctypes.data) == 0
        assert_close(y, x.astype(np.float64).sum((0, 1)), 2e-5 * shape[1] * 0.1)


def _softmax(x: np.ndarray, logarithm: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        shifted = x - x.max(1, keepdims=True)
        total = np.exp(shifted).sum(1, keepdims=True)
        return shifted - np.log(total) if logarithm else np.exp(shifted) / total


@every("logarithm", [False, True], ids=["softmax", "log_softmax"])
@every("shape", cases.REDUCE, ids=str)
def test_softmax(lib: ctypes.CDLL, shape: tuple[int, int, int], logarithm: bool) -> None:
    x = at_page_end(10 * np.random.default_rng(10).standard_normal(shape))
    y = Rows(shape[0] * shape[1], shape[2])
    assert lib.ext_softmax(*shape, logarithm, x.ctypes.data, y.pointer) == 0
    if x.size:
        want = _softmax(x.astype(np.float64), logarithm)
        limit = (4e-7 * np.abs(want) + 4e-6) if logarithm else (2e-6 * want + 1e-12)
        assert_close(y.view.reshape(shape), want, limit)
    y.check_gaps()
    assert lib.ext_softmax(*shape, logarithm, x.ctypes.data, x.ctypes.data) == 0
    np.testing.assert_array_equal(x.reshape(y.view.shape), y.view)


@every("logarithm", [False, True], ids=["softmax", "log_softmax"])
@every("inner", [1, 3, 16])
def test_softmax_of_special_values(lib: ctypes.CDLL, inner: int, logarithm: bool) -> None:
    x = np.zeros((5, 40, inner), np.float32)
    x[0] = -np.inf
    x[1, 3] = np.nan
    x[2, 39] = np.inf
    x[3, 1:] = -np.inf
    x[4, ::2] = -3e38
    y = np.empty_like(x)
    assert lib.ext_softmax(*x.shape, logarithm, x.ctypes.data, y.ctypes.data) == 0
    assert_close(y, _softmax(x.astype(np.float64), logarithm), 1e-6)


@every("affine", [True, False], ids=["affine", "plain"])
@every("shape", cases.LAYER_NORM, ids=str)
def test_layer_norm(lib: ctypes.CDLL, shape: tuple[int, int], affine: bool) -> None:
    rng = np.random.default_rng(11)
    rows, n = shape
    x = at_page_end(rng.standard_normal(shape) + 30)
    gamma, beta = at_page_end(rng.standard_normal(n)), at_page_end(rng.standard_normal(n))
    y = Rows(rows, n)
    pointers = (gamma.ctypes.data, beta.ctypes.data) if affine else (None, None)
    assert lib.ext_layer_norm(rows, n, 1e-5, x.ctypes.data, *pointers, y.pointer) == 0
    if x.size:
        wide = x.astype(np.float64)
        want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        want = want * gamma + beta if affine else want
        # The mean of values near 30 is known to 2e-6 or so; division by a deviation of 0 (n = 1)
        # or near it magnifies that.
        deviation = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
        assert_close(y.view, want, 1e-5 + 8e-6 / deviation)
    y.check_gaps()
    assert lib.ext_layer_norm(rows, n, 1e-5, x.ctypes.data, *pointers, x.ctypes.data) == 0
    np.testing.assert_array_equal(x, y.view)
