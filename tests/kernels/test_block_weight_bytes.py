"""Products with weights of 4 and 8 bits whose data may be rounded to bytes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.operators.packing import pad_channels
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end
from tests.kernels.test_block_weight import SHAPES, ZEROS, Weight

#: Rows of ``ext_isa.h`` without an instruction for products of bytes, which do not round.
EXACT = ("baseline", "avx2", "avx512", "neon", "dotprod", "i8mm")

#: Rows of the weight with one factor of the data, at most.
CHUNK = 128


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> bool:
    """Whether the library's row rounds."""
    params = request.node.callspec.params
    return params.get("quantised_library", params.get("byte_tiles_library")) not in EXACT


def rounded(a: np.ndarray, block: int) -> np.ndarray:
    """Float64 of the multiples that data become, by the kernels' own fp32 arithmetic."""
    out = np.zeros(a.shape)
    k, first = a.shape[1], 0
    while first < k:
        past = min(k, (first // block + 1) * block, first + CHUNK)
        part = a[:, first:past]
        largest = np.maximum(np.abs(part).max(1, keepdims=True), np.float32(2**-100))
        steps = np.rint(part * (np.float32(127) / largest).astype(np.float64))
        out[:, first:past] = steps * (largest / np.float32(127)).astype(np.float64)
        first = past
    return out


def _check(y: np.ndarray, a: np.ndarray, w: Weight, block: int, rounds: bool) -> None:
    seen = rounded(a, block) if rounds else a.astype(np.float64)
    sizes = np.abs(a.astype(np.float64)) @ np.abs(w.values)
    assert (np.abs(y - seen @ w.values) <= 3e-6 * sizes + 1e-30).all()


def _data(rng: np.random.Generator, m: int, k: int, gap: int = 0) -> Rows:
    a = Rows(m, k, k + gap)
    a.view[...] = rng.uniform(-1, 1, (m, k)) * 10.0 ** rng.integers(-3, 3, (m, 1))
    return a


def _multiply(lib: ctypes.CDLL, shape: tuple[int, int, int, int], rounds: bool) -> None:
    m, n, k, block = shape
    rng = np.random.default_rng(m + n * k)
    for bits in (4, 8):
        w = Weight(rng, bits, k, n, block, ZEROS[(m + n + k + bits) % 3])
        w.struct.data_bits = 8
        a, y = _data(rng, m, k, n % 3), Rows(m, n, n + k % 3)
        p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
        assert lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
        _check(y.view, a.view, w, block, rounds)
        y.check_gaps()


@pytest.mark.slow
@every("shape", [*SHAPES, (130, 300, 2120, 40), (85, 70, 900, 900)], ids=str)
def test_products(
    quantised_lib: ctypes.CDLL, shape: tuple[int, int, int, int], rounds: bool
) -> None:
    _multiply(quantised_lib, shape, rounds)


#: Rows and columns of whole tiles, and of every rest; blocks that are whole tiles of K, halves and
#: quarters of one, and none; and the end of K within each.
TILED = (
    *((m, 40, 200, 64) for m in (7, 8, 15, 16, 17, 31, 32, 33, 70)),
    *((40, n, 320, 128) for n in (1, 15, 16, 17, 31, 32, 33, 64, 65)),
    *((20, 33, k, block) for k in (60, 64, 72, 130) for block in (16, 32, 48, 64, 96, 128, 256)),
    (33, 48, 264, 24),
    (200, 70, 700, 256),
)


@pytest.mark.slow
@every("shape", TILED, ids=str)
def test_many_rows_in_tiles(
    byte_tiles: ctypes.CDLL, shape: tuple[int, int, int, int], rounds: bool
) -> None:
    _multiply(byte_tiles, shape, rounds)


@every("m", [1, 6, 20])
@every("factor", [False, True], ids=["sum", "product"])
@every("after", [cases.RELU, ("silu", 0, 0)], ids=str)
def test_epilogues(
    quantised_lib: ctypes.CDLL, m: int, after: cases.Act, factor: bool, rounds: bool
) -> None:
    n, k = 45, 64
    rng = np.random.default_rng(m)
    w = Weight(rng, 4, k, n, 32, "uint8")
    w.struct.data_bits = 8
    a, y, residual = _data(rng, m, k), Rows(m, n, n + 1), _data(rng, m, n, 3)
    bias = rng.uniform(-1, 1, n).astype(np.float32)
    padded = at_page_end(pad_channels(bias))
    e = abi.Epilogue(
        bias=padded.ctypes.data,
        residual=residual.pointer,
        residual_stride=residual.stride,
        after=abi.activation(*after),
        residual_is_factor=factor,
    )
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, e, y.pointer) == 0
    seen = rounded(a.view, 32) if rounds else a.view.astype(np.float64)
    want = reference.epilogue(seen @ w.values, bias, cases.NONE, residual.view, after, factor)
    sizes = (
        np.abs(a.view.astype(np.float64)) @ np.abs(w.values) + np.abs(bias) + np.abs(residual.view)
    )
    assert (np.abs(y.view - want) <= 1e-5 * sizes).all()
    y.check_gaps()


@every("m", [1, 2, 12])
@every("bits", [4, 8])
def test_batches_of_turned_rows(
    quantised_lib: ctypes.CDLL, m: int, bits: int, rounds: bool
) -> None:
    """a is [3, 2, k, m], read as [3, 2, m, k]."""
    n, k, block = 20, 72, 16
    rng = np.random.default_rng(m)
    w = Weight(rng, bits, k, n, block, None)
    w.struct.data_bits = 8
    stored = rng.uniform(-1, 1, (3, 2, k, m)).astype(np.float32)
    a, y = at_page_end(stored), Rows(6 * m, n, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=1, a_col=m, y_row=n, batch_ndim=2)
    p.batch[:2], p.a_batch[:2], p.y_batch[:2] = (3, 2), (2 * m * k, m * k), (2 * m * n, m * n)
    status = quantised_lib.ext_matmul_block(p, w.struct, a.ctypes.data, None, y.pointer)
    assert status == 0
    _check(y.view, stored.transpose(0, 1, 3, 2).reshape(-1, k), w, block, rounds)


@every("m", [1, 3, 20])
@every("value", [np.nan, np.inf, -np.inf, 3e38])
def test_numbers_that_are_none_or_huge_are_not_rounded(
    quantised_lib: ctypes.CDLL, m: int, value: float
) -> None:
    n, k = 40, 70
    rng = np.random.default_rng(7)
    w = Weight(rng, 4, k, n, 16, "uint8")
    w.struct.data_bits = 8
    a, y, same = _data(rng, m, k), Rows(m, n, n), Rows(m, n, n)
    a.view[m - 1, 50] = value
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
    w.struct.data_bits = 0
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, same.pointer) == 0
    np.testing.assert_array_equal(y.view, same.view)


def test_rows_of_zeros_and_of_tiny_numbers(quantised_lib: ctypes.CDLL, rounds: bool) -> None:
    n, k = 33, 64
    rng = np.random.default_rng(3)
    w = Weight(rng, 8, k, n, 32, "float32")
    w.struct.data_bits = 8
    a, y = _data(rng, 10, k), Rows(10, n, n)
    a.view[0], a.view[4] = 0, 1e-44
    p = abi.MatmulParams(m=10, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
    assert (y.view[0] == 0).all()
    _check(y.view, a.view, w, 32, rounds)


def test_other_numbers_of_bits_are_refused(quantised_lib: ctypes.CDLL) -> None:
    p = abi.MatmulParams(m=1, n=16, k=64, a_row=64, a_col=1, y_row=16)
    weight = abi.BlockWeight(bits=4, block=32, data_bits=4)
    assert quantised_lib.ext_matmul_block(p, weight, None, None, None) != 0
