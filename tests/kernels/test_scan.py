"""argreduce, cumsum, products, rms_norm and lrn against numpy."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels import cases
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

_ARG = {0: np.argmax, 1: np.argmin}


@every("least", [0, 1], ids=["argmax", "argmin"])
@every("shape", cases.REDUCE, ids=str)
def test_argreduce(lib: ctypes.CDLL, shape: tuple[int, int, int], least: int) -> None:
    outer, _, inner = shape
    rng = np.random.default_rng(12)
    for values in (
        rng.standard_normal(shape),
        rng.integers(0, 3, shape),  # ties
        np.where(rng.uniform(size=shape) < 0.02, np.nan, rng.standard_normal(shape)),
        np.full(shape, np.inf if least else -np.inf),
    ):
        x = at_page_end(values)
        y = at_page_end(np.full((outer, inner), -1), np.int64)
        assert lib.ext_argreduce(least, *shape, x.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, _ARG[least](x, axis=1))


def test_the_extreme_of_nothing_is_refused(lib: ctypes.CDLL) -> None:
    assert lib.ext_argreduce(0, 1, 0, 1, None, None) == 2


@every("reverse", [0, 1], ids=["forward", "reverse"])
@every("exclusive", [0, 1], ids=["inclusive", "exclusive"])
@every("shape", cases.REDUCE, ids=str)
def test_cumsum(
    lib: ctypes.CDLL, shape: tuple[int, int, int], exclusive: int, reverse: int
) -> None:
    x = at_page_end(np.random.default_rng(13).standard_normal(shape))
    y = Rows(1, x.size)
    assert lib.ext_cumsum(exclusive, reverse, *shape, x.ctypes.data, y.pointer) == 0
    wide = x.astype(np.float64)[:, :: -1 if reverse else 1]
    want = np.cumsum(wide, axis=1) - (wide if exclusive else 0)
    want = want[:, :: -1 if reverse else 1]
    # Every addition rounds: half an ULP of the sum so far, for each of the terms.
    limit = 6e-8 * shape[1] * (1 + np.abs(want).max(initial=0))
    assert_close(y.view[0].reshape(shape), want, limit)
    y.check_gaps()
    assert lib.ext_cumsum(exclusive, reverse, *shape, x.ctypes.data, x.ctypes.data) == 0
    np.testing.assert_array_equal(x.ravel(), y.view[0])


@every("reverse", [0, 1], ids=["forward", "reverse"])
@every("exclusive", [0, 1], ids=["inclusive", "exclusive"])
@every("dtype", ["int32", "int64"])
@every("shape", cases.REDUCE, ids=str)
def test_cumsum_of_integers(
    lib: ctypes.CDLL, shape: tuple[int, int, int], dtype: str, exclusive: int, reverse: int
) -> None:
    """Sums wrap around."""
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(17).integers(limits.min, limits.max, shape, dtype)
    x = at_page_end(drawn, np.dtype(dtype))
    y = at_page_end(np.zeros(shape), np.dtype(dtype))
    code = KERNEL_DTYPES.index(dtype)
    assert lib.ext_cumsum_integers(code, exclusive, reverse, *shape, *_at(x, y)) == 0
    turned = x[:, :: -1 if reverse else 1]
    want = np.cumsum(turned, axis=1, dtype=dtype) - (
        turned if exclusive else np.dtype(dtype).type(0)
    )
    np.testing.assert_array_equal(y, want[:, :: -1 if reverse else 1])
    assert lib.ext_cumsum_integers(code, exclusive, reverse, *shape, *_at(x, x)) == 0
    np.testing.assert_array_equal(x, y)


def _at(*arrays: np.ndarray) -> list[int]:
    return [array.ctypes.data for array in arrays]


@every("reverse", [0, 1], ids=["forward", "reverse"])
@every("exclusive", [0, 1], ids=["inclusive", "exclusive"])
@every("dtype", ["float32", "int32", "int64"])
@every("shape", cases.REDUCE, ids=str)
def test_cumprod(
    lib: ctypes.CDLL, shape: tuple[int, int, int], dtype: str, exclusive: int, reverse: int
) -> None:
    """Of floats near 1; integers wrap around."""
    rng = np.random.default_rng(18)
    drawn = rng.uniform(0.9, 1.1, shape) if dtype == "float32" else rng.integers(-9, 9, shape)
    x = at_page_end(drawn, np.dtype(dtype))
    y = at_page_end(np.zeros(shape), np.dtype(dtype))
    code = KERNEL_DTYPES.index(dtype)
    assert lib.ext_cumprod(code, exclusive, reverse, *shape, *_at(x, y)) == 0
    wide = x.astype(np.float64) if dtype == "float32" else x
    turned = wide[:, :: -1 if reverse else 1]
    if exclusive:
        turned = np.concatenate([np.ones_like(turned[:, :1]), turned[:, :-1]], axis=1)
    want = np.cumprod(turned, axis=1, dtype=wide.dtype)[:, : shape[1]][:, :: -1 if reverse else 1]
    if dtype == "float32":
        assert_close(y, want, 1.2e-7 * (shape[1] + 1) * np.abs(want))
    else:
        np.testing.assert_array_equal(y, want)
    assert lib.ext_cumprod(code, exclusive, reverse, *shape, *_at(x, x)) == 0
    np.testing.assert_array_equal(x, y)


def test_running_results_of_bytes_are_refused(lib: ctypes.CDLL) -> None:
    code = KERNEL_DTYPES.index("int8")
    assert lib.ext_cumsum_integers(code, 0, 0, 1, 1, 1, None, None) == 2
    assert lib.ext_cumprod(code, 0, 0, 1, 1, 1, None, None) == 2


@every("shape", cases.REDUCE, ids=str)
def test_product(lib: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    x = at_page_end(np.random.default_rng(14).uniform(0.95, 1.05, shape))
    y = Rows(shape[0], shape[2])
    kind = abi.REDUCE_KIND.index("prod")
    assert lib.ext_reduce(kind, *shape, x.ctypes.data, y.pointer) == 0
    want = x.astype(np.float64).prod(axis=1)
    assert_close(y.view, want, 1.2e-7 * (shape[1] + 1) * np.abs(want))
    y.check_gaps()


@every("shape", cases.LAYER_NORM, ids=str)
def test_rms_norm(lib: ctypes.CDLL, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(15)
    rows, n = shape
    x, gamma = at_page_end(rng.standard_normal(shape) * 5), at_page_end(rng.standard_normal(n))
    y = Rows(rows, n)
    assert lib.ext_rms_norm(rows, n, 1e-5, x.ctypes.data, gamma.ctypes.data, y.pointer) == 0
    if x.size:
        wide = x.astype(np.float64)
        want = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5) * gamma
        assert_close(y.view, want, 1e-6 * np.abs(want) + 1e-7)
    y.check_gaps()
    assert lib.ext_rms_norm(rows, n, 1e-5, x.ctypes.data, gamma.ctypes.data, x.ctypes.data) == 0
    np.testing.assert_array_equal(x, y.view)


@every("size", [1, 2, 5, 40])
@every("beta", [0.75, 0.5, 1.0, 1.25])
@every("shape", [*cases.REDUCE, (2, 41, 1), (1, 3, 37)], ids=str)
def test_lrn(lib: ctypes.CDLL, shape: tuple[int, int, int], beta: float, size: int) -> None:
    x = at_page_end(np.random.default_rng(16).standard_normal(shape))
    y = Rows(1, x.size)
    params = abi.LrnParams(*shape, size, 0.5, beta, 1.5)
    assert lib.ext_lrn(params, x.ctypes.data, y.pointer) == 0
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0)])
    total = sum(squares[:, k : k + shape[1]] for k in range(size))
    want = x / (1.5 + 0.5 / size * total) ** beta
    assert_close(y.view[0].reshape(shape), want, 4e-6)
    y.check_gaps()


def test_lrn_of_no_channels_is_refused(lib: ctypes.CDLL) -> None:
    params = abi.LrnParams(1, 1, 1, 0, 1.0, 1.0, 1.0)
    assert lib.ext_lrn(params, None, None) == 2
