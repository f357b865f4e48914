"""Products with weights of 4 and 8 bits in blocks, against numpy in float64."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from codegen_cc.operators.packing import pack_block_numbers, pack_fields, pad_channels
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end
from tests.kernels.quantised import code

#: Zero points: the middle, integers, any numbers.
ZEROS = (None, "uint8", "float32")

#: m, n, k, block with every tail of walks, panels and words.
SHAPES = (
    *((1, n, 40, 16) for n in (1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 97, 129)),
    *((m, 37, 24, 8) for m in (2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 29)),
    *((1 + k % 3, 21, k, 16) for k in (*range(2, 19), 31, 32, 33)),
    *((4, 34, k, k) for k in (9, 127, 128, 129, 255)),
    *((m, 18, k, 32) for m in (9, 15) for k in (1, 7, 31, 33, 64, 70)),
    *((m, n, k, 32) for m in (0, 1, 20) for n in (0, 1) for k in (0, 1)),
    (5, 50, 300, 128),
    (40, 50, 300, 300),
    (1, 100, 2050, 256),
    (1, 1049, 40, 16),  # more columns than wait for their end at once
    (20, 33, 4104, 24),
)


class Weight:
    """A weight [k, n] of integers in blocks, packed so that nothing may be read past its end."""

    def __init__(
        self, rng: np.random.Generator, bits: int, k: int, n: int, block: int, zeros: str | None
    ) -> None:
        blocks = -(-k // block)
        q = rng.integers(0, 1 << bits, (k, n), np.uint8)
        scale = rng.uniform(-1, 1, (blocks, n)).astype(np.float32)
        middle = np.full((blocks, n), 1 << (bits - 1), np.float32)
        zero = middle if zeros is None else rng.uniform(0, (1 << bits) - 1, (blocks, n))
        zero = zero.astype(zeros or "float32")
        self._keep = [at_page_end(pack_fields(q, bits), np.uint32)]
        self._keep += [at_page_end(pack_block_numbers(scale))]
        self.struct = abi.BlockWeight(
            bits=bits,
            block=block,
            values=self._keep[0].ctypes.data,
            scale=self._keep[1].ctypes.data,
        )
        if zeros is not None:
            self._keep += [at_page_end(pack_block_numbers(zero), zeros)]
            self.struct.zero = self._keep[2].ctypes.data
            self.struct.zero_dtype = code(zeros)
        rows = np.arange(k) // block
        self.values = (q - zero[rows].astype(np.float64)) * scale[rows].astype(np.float64)


def _floats(rng: np.random.Generator, m: int, k: int, gap: int = 0) -> Rows:
    a = Rows(m, k, k + gap)
    a.view[...] = rng.uniform(-1, 1, (m, k))
    return a


def _close(y: np.ndarray, want: np.ndarray, a: np.ndarray, w: np.ndarray) -> None:
    """Errors are a share of the sum of the products' sizes."""
    sizes = np.abs(a.astype(np.float64)) @ np.abs(w)
    assert (np.abs(y - want) <= 2e-6 * sizes + 1e-30).all()


@every("shape", SHAPES, ids=str)
def test_products(quantised_lib: ctypes.CDLL, shape: tuple[int, int, int, int]) -> None:
    m, n, k, block = shape
    rng = np.random.default_rng(m + n * k)
    for bits in (4, 8):
        zeros = ZEROS[(m + n + k + bits) % 3]
        w = Weight(rng, bits, k, n, block, zeros)
        a, y = _floats(rng, m, k, n % 3), Rows(m, n, n + k % 3)
        p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
        status = quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer)
        assert status == 0
        _close(y.view, a.view.astype(np.float64) @ w.values, a.view, w.values)
        y.check_gaps()


@every("kind", ["none", "relu"])
def test_several_blocks_of_rows_columns_and_sums(quantised_lib: ctypes.CDLL, kind: str) -> None:
    """With a residual that y replaces, and with sums in memory of their own."""
    m, n, k, block = 130, 300, 2120, 40
    rng = np.random.default_rng(5)
    w = Weight(rng, 4, k, n, block, "uint8")
    a, y = _floats(rng, m, k), Rows(m, n, n + 3)
    y.view[...] = rng.uniform(-1, 1, (m, n))
    want = a.view.astype(np.float64) @ w.values
    want = (np.maximum(want, 0.0) if kind == "relu" else want) + y.view
    e = abi.Epilogue(residual=y.pointer, residual_stride=y.stride)
    e.before = abi.activation(kind, 0.0, 0.0) if kind == "relu" else e.before
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, e, y.pointer) == 0
    _close(y.view, want, a.view, w.values)
    y.check_gaps()


@every("zeros", ZEROS)
@every("bits", [4, 8])
@every("m", [1, 2, 3, 4, 7, 9, 30])
def test_zero_points(quantised_lib: ctypes.CDLL, m: int, bits: int, zeros: str | None) -> None:
    n, k, block = 77, 100, 32
    rng = np.random.default_rng(m)
    w = Weight(rng, bits, k, n, block, zeros)
    a, y = _floats(rng, m, k), Rows(m, n, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
    _close(y.view, a.view.astype(np.float64) @ w.values, a.view, w.values)


@every(("m", "n"), [(1, 45), (1, 1049), (6, 45), (20, 45)])
@every("factor", [False, True], ids=["sum", "product"])
@every("after", [cases.NONE, cases.RELU, ("silu", 0, 0)], ids=str)
def test_epilogues(
    quantised_lib: ctypes.CDLL, m: int, n: int, after: cases.Act, factor: bool
) -> None:
    k = 64
    rng = np.random.default_rng(m)
    w = Weight(rng, 4, k, n, 32, "uint8")
    a, y, residual = _floats(rng, m, k), Rows(m, n, n + 1), _floats(rng, m, n, 3)
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
    sums = a.view.astype(np.float64) @ w.values
    assert_close(
        y.view, reference.epilogue(sums, bias, cases.NONE, residual.view, after, factor), 1e-4
    )
    y.check_gaps()


@every("m", [2, 12])
@every("k", [32, 37])
def test_batches_of_turned_rows(quantised_lib: ctypes.CDLL, m: int, k: int) -> None:
    """a is [3, 2, k, m], read as [3, 2, m, k]."""
    n = 20
    rng = np.random.default_rng(k)
    w = Weight(rng, 4, k, n, 16, None)
    stored = rng.uniform(-1, 1, (3, 2, k, m)).astype(np.float32)
    a, y = at_page_end(stored), Rows(6 * m, n, n)
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=1, a_col=m, y_row=n, batch_ndim=2)
    p.batch[:2], p.a_batch[:2], p.y_batch[:2] = (3, 2), (2 * m * k, m * k), (2 * m * n, m * n)
    status = quantised_lib.ext_matmul_block(p, w.struct, a.ctypes.data, None, y.pointer)
    assert status == 0
    rows = stored.transpose(0, 1, 3, 2).reshape(-1, k)
    _close(y.view, rows.astype(np.float64) @ w.values, rows, w.values)


@every("m", [1, 3, 20])
@every("value", [np.nan, np.inf, 1e-42, 3e38])
def test_special_values_reach_the_same_elements(
    quantised_lib: ctypes.CDLL, m: int, value: float
) -> None:
    n, k = 40, 70
    rng = np.random.default_rng(7)
    w = Weight(rng, 4, k, n, 16, "uint8")
    a, y = _floats(rng, m, k), Rows(m, n, n)
    a.view[m - 1] *= 1e-3
    a.view[m - 1, 50] = value
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
    with np.errstate(all="ignore"):
        want = (a.view.astype(np.float64)[:, :, None] * w.values).sum(1)
    special = ~np.isfinite(want)
    np.testing.assert_array_equal(np.isnan(y.view), np.isnan(want))
    usual = ~special & (np.abs(want) < 3e37)
    sizes = np.abs(a.view.astype(np.float64)) @ np.abs(w.values) if not special.any() else 100.0
    assert (np.abs(y.view - want)[usual] <= np.broadcast_to(2e-6 * sizes, want.shape)[usual]).all()


@every("bits", [4, 8])
def test_numbers_of_many_sizes(quantised_lib: ctypes.CDLL, bits: int) -> None:
    """Sums are right to a share of their terms where they differ by a million."""
    m, n, k = 3, 40, 256
    rng = np.random.default_rng(bits)
    w = Weight(rng, bits, k, n, 32, "uint8")
    a, y = _floats(rng, m, k), Rows(m, n, n)
    a.view[...] *= 10.0 ** rng.integers(-3, 4, (m, k)) * 1e-20 ** np.arange(m)[:, None]
    p = abi.MatmulParams(m=m, n=n, k=k, a_row=a.stride, a_col=1, y_row=y.stride)
    assert quantised_lib.ext_matmul_block(p, w.struct, a.pointer, None, y.pointer) == 0
    _close(y.view, a.view.astype(np.float64) @ w.values, a.view, w.values)


def test_what_no_kernel_reads_is_refused(quantised_lib: ctypes.CDLL) -> None:
    p = abi.MatmulParams(m=1, n=16, k=64, a_row=64, a_col=1, y_row=16)
    for fields in ({"bits": 5, "block": 32}, {"bits": 4, "block": 0}, {"bits": 4, "block": 20}):
        weight = abi.BlockWeight(**fields)
        assert quantised_lib.ext_matmul_block(p, weight, None, None, None) != 0
    batched = abi.MatmulParams(m=1, n=16, k=64, a_row=64, a_col=1, y_row=16, batch_ndim=1)
    batched.batch[0], batched.b_batch[0] = 2, 1024
    weight = abi.BlockWeight(bits=4, block=32)
    assert quantised_lib.ext_matmul_block(batched, weight, None, None, None) != 0
