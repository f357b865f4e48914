"""group_norm against numpy in double precision, in both layouts, stored as fp32 and bf16."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

BF16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)

#: Images, groups, channels, pixels: partial vectors of channels and of pixels, one of each, groups
#: of a channel and of all, several blocks, groups that no cache keeps, and nothing.
CASES = [
    *((1, 1, 1, 1), (2, 2, 6, 35), (1, 3, 3, 40), (3, 1, 5, 7), (2, 4, 64, 33), (1, 32, 96, 64)),
    *((2, 5, 35, 200), (1, 8, 320, 150), (1, 2, 4, 40000), (1, 1, 5000, 20), (4, 3, 12, 1)),
    *((0, 2, 4, 5), (2, 2, 4, 0)),
]


def _reference(x: np.ndarray, groups: int, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """x is [images, channels, pixels]."""
    if not x.size:
        return np.zeros(x.shape)
    parts = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(2, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * gamma[:, None] + beta[:, None]


def _params(
    case: tuple[int, ...], last: bool, strides: tuple[int, int] = (0, 0), after: int = 0
) -> ctypes.Structure:
    images, groups, channels, pixels = case
    p = abi.GroupNormParams(images, groups, channels, pixels, *strides, last, 1e-5)
    p.after.kind = after
    return p


def _laid(x: np.ndarray, last: bool) -> np.ndarray:
    return x.transpose(0, 2, 1) if last else x


def _draw(case: tuple[int, ...], offset: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    images, _, channels, pixels = case
    rng = np.random.default_rng(3)
    x = rng.standard_normal((images, channels, pixels)) + offset
    return x, *map(at_page_end, rng.standard_normal((2, channels)))


@every("last", [False, True], ids=["first", "last"])
@every("case", CASES, ids=str)
def test_group_norm(lib: ctypes.CDLL, case: tuple[int, ...], last: bool) -> None:
    images, groups, channels, pixels = case
    drawn, gamma, beta = _draw(case, 30.0)
    x = at_page_end(np.ascontiguousarray(_laid(drawn, last)))
    y = Rows(images, channels * pixels)
    p = _params(case, last, (channels, channels) if last else (0, 0))
    pointers = gamma.ctypes.data, beta.ctypes.data
    assert lib.ext_group_norm(p, x.ctypes.data, *pointers, y.pointer) == 0
    want = _laid(_reference(_laid(x, last), groups, gamma, beta), last)
    assert_close(y.view.reshape(want.shape), want, 4e-5)
    y.check_gaps()
    assert lib.ext_group_norm(p, x.ctypes.data, *pointers, x.ctypes.data) == 0
    np.testing.assert_array_equal(x.ravel(), y.view.ravel())


@every("last", [False, True], ids=["first", "last"])
@every("case", CASES[1:8], ids=str)
def test_activation_without_gamma_and_beta(
    lib: ctypes.CDLL, case: tuple[int, ...], last: bool
) -> None:
    _, groups, channels, _ = case
    drawn, *_ = _draw(case, 0.0)
    x = at_page_end(np.ascontiguousarray(_laid(drawn, last)))
    y = at_page_end(np.zeros(x.shape))
    silu = abi.UNARY_KIND.index("silu")
    p = _params(case, last, (channels, channels) if last else (0, 0), silu)
    assert lib.ext_group_norm(p, x.ctypes.data, None, None, y.ctypes.data) == 0
    normal = _reference(_laid(x, last), groups, np.ones(channels), np.zeros(channels))
    assert_close(_laid(y, last), normal / (1 + np.exp(-normal)), 4e-6)


@every("stored", [(a, b) for a in (FP32, BF16) for b in (FP32, BF16)], ids=str)
@every("case", [c for c in CASES if 0 not in c], ids=str)
def test_gaps_between_pixels(
    lib: ctypes.CDLL, case: tuple[int, ...], stored: tuple[np.dtype, np.dtype]
) -> None:
    """Channels last, in rows of wider tensors; what is stored as bf16 is rounded once."""
    images, groups, channels, pixels = case
    drawn, gamma, beta = _draw(case, 1.0)
    x = Rows(images * pixels, channels, channels + 3, dtype=stored[0])
    x.view[...] = drawn.transpose(0, 2, 1).reshape(x.view.shape)
    y = Rows(images * pixels, channels, channels + 5, dtype=stored[1])
    relu = abi.UNARY_KIND.index("relu")
    p = _params(case, True, (channels + 3, channels + 5), relu)
    s = abi.Storage(*(KERNEL_DTYPES.index(str(dtype)) for dtype in (stored[0], FP32, stored[1])))
    arguments = (x.pointer, gamma.ctypes.data, beta.ctypes.data, y.pointer)
    assert lib.ext_group_norm_bf16(p, s, *arguments) == 0
    read = x.view.astype(np.float64).reshape(images, pixels, channels).transpose(0, 2, 1)
    want = np.maximum(_reference(read, groups, gamma, beta), 0)
    found = y.view.astype(np.float64).reshape(images, pixels, channels).transpose(0, 2, 1)
    assert_close(found, want, 1e-5 + np.abs(want) * (2.0**-8 if stored[1] == BF16 else 0))
    y.check_gaps()
    if stored == (FP32, FP32):
        again = y.view.copy()
        assert lib.ext_group_norm(p, *arguments) == 0
        np.testing.assert_array_equal(y.view, again)


@every("stored", [(a, b) for a in (FP32, BF16) for b in (FP32, BF16)], ids=str)
@every("case", [c for c in CASES if 0 not in c], ids=str)
def test_stored_as_bf16_channels_first(
    lib: ctypes.CDLL, case: tuple[int, ...], stored: tuple[np.dtype, np.dtype]
) -> None:
    _, groups, *_ = case
    drawn, gamma, beta = _draw(case, 1.0)
    x, y = at_page_end(drawn, stored[0]), at_page_end(np.zeros(drawn.shape), stored[1])
    p = _params(case, False)
    s = abi.Storage(*(KERNEL_DTYPES.index(str(dtype)) for dtype in (stored[0], FP32, stored[1])))
    arguments = (x.ctypes.data, gamma.ctypes.data, beta.ctypes.data, y.ctypes.data)
    assert lib.ext_group_norm_bf16(p, s, *arguments) == 0
    want = _reference(x.astype(np.float64), groups, gamma, beta)
    limit = 1e-5 + np.abs(want) * (2.0**-8 if stored[1] == BF16 else 0)
    assert_close(y.astype(np.float64), want, limit)


@every("last", [False, True], ids=["first", "last"])
def test_nothing_cancels(lib: ctypes.CDLL, last: bool) -> None:
    """A mean of a thousand deviations, and one channel far from the others of its group."""
    case = (1, 2, 32, 5000)
    drawn, gamma, beta = _draw(case, 1000.0)
    drawn[:, 3] -= 900.0
    x = at_page_end(np.ascontiguousarray(_laid(drawn, last)))
    y = at_page_end(np.zeros(x.shape))
    p = _params(case, last, (32, 32) if last else (0, 0))
    pointers = gamma.ctypes.data, beta.ctypes.data
    assert lib.ext_group_norm(p, x.ctypes.data, *pointers, y.ctypes.data) == 0
    # Half an ULP of the mean, in deviations, times gamma.
    assert_close(_laid(y, last), _reference(_laid(x, last), 2, gamma, beta), 3e-4)


@every("last", [False, True], ids=["first", "last"])
def test_special_values_stay_in_their_group(lib: ctypes.CDLL, last: bool) -> None:
    case = (2, 3, 6, 300)
    drawn, gamma, beta = _draw(case, 0.0)
    drawn[0, 0, 7], drawn[0, 3, 250], drawn[1, 4, 0] = np.nan, np.inf, -np.inf
    x = at_page_end(np.ascontiguousarray(_laid(drawn, last)))
    y = at_page_end(np.zeros(x.shape))
    p = _params(case, last, (6, 6) if last else (0, 0))
    pointers = gamma.ctypes.data, beta.ctypes.data
    assert lib.ext_group_norm(p, x.ctypes.data, *pointers, y.ctypes.data) == 0
    found = np.isnan(_laid(y, last)).reshape(2, 3, -1)
    np.testing.assert_array_equal(found.all(2), [[True, True, False], [False, False, True]])
    np.testing.assert_array_equal(found.any(2), found.all(2))


def test_groups_that_do_not_divide_are_refused(lib: ctypes.CDLL) -> None:
    for groups in (0, 4):
        p = _params((1, groups, 6, 5), True, (6, 6))
        assert lib.ext_group_norm(p, None, None, None, None) == 2
