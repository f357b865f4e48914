"""Products of 8-bit integers against numpy: exact sums, then what follows them in float64."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end
from tests.kernels.quantised import (
    EPILOGUES,
    INPUTS,
    PLAIN,
    SUMS,
    Output,
    Requantise,
    code,
    draw,
    matmul_params,
    pack,
    strided,
)

#: m, n, k with every tail of tiles, panels and groups.
_SIZES = range(1, 41)
SHAPES = (
    *((m, 37, 23) for m in _SIZES),
    *((7, n, 18) for n in _SIZES),
    *((5, 21, k) for k in _SIZES),
    *((m, n, k) for m in (0, 1, 3) for n in (0, 1, 16) for k in (0, 1, 4)),
    (70, 130, 64),
    (200, 48, 300),
    (9, 17, 4608),
    (1, 1000, 1280),
)


def _sums(a: np.ndarray, zero: int, w: np.ndarray) -> np.ndarray:
    return (a.astype(np.int64) - zero) @ w.astype(np.int64)


def multiply(
    lib: ctypes.CDLL, x: tuple[str, int], a: np.ndarray, w: np.ndarray, case: Requantise, gap: int
) -> None:
    """One product of a [m, k] and w [k, n], rows ``gap`` apart, and its check."""
    (m, k), n = a.shape, w.shape[1]
    rows = strided(a, gap)
    out = Output(np.random.default_rng(m + n), case, m, w.sum(0, np.int64), k, gap)
    p = matmul_params(m, n, k, rows.stride, out.y.stride)
    b = pack(w[None])
    dtype, zero = x
    status = lib.ext_qmatmul(
        p, code(dtype), zero, rows.pointer, b.ctypes.data, out.e, out.y.pointer
    )
    assert status == 0
    out.check(_sums(a, zero, w))


@every("shape", SHAPES, ids=str)
def test_sums_are_exact(quantised_lib: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    x = INPUTS[(m + n + k) % len(INPUTS)]
    a, w = draw(rng, x[0], m, k), draw(rng, "int8", k, n)
    multiply(quantised_lib, x, a, w, SUMS, (m + n) % 3)


@every("x", INPUTS, ids=str)
@every("k", [64, 65536])
def test_the_largest_numbers_do_not_saturate(
    quantised_lib: ctypes.CDLL, x: tuple[str, int], k: int
) -> None:
    """Where instructions that add pairs in 16 bits fail, and 32 bits nearly would."""
    limits = np.iinfo(x[0])
    for value in (limits.min, limits.max):
        a = np.full((3, k), value, x[0])
        w = np.full((k, 18), -128, np.int8)
        w[:, 1::2] = 127
        multiply(quantised_lib, x, a, w, SUMS, 0)


@every("x", [INPUTS[1], INPUTS[3]], ids=str)
@every("case", EPILOGUES, ids=str)
def test_what_follows_the_sums(
    quantised_lib: ctypes.CDLL, case: Requantise, x: tuple[str, int]
) -> None:
    rng = np.random.default_rng(7)
    a, w = draw(rng, x[0], 29, 45), draw(rng, "int8", 45, 43)
    multiply(quantised_lib, x, a, w, case, 3)


def test_many_results_are_as_many_near_ties_as_expected(quantised_lib: ctypes.CDLL) -> None:
    rng = np.random.default_rng(8)
    multiply(quantised_lib, INPUTS[1], draw(rng, "uint8", 150, 64), draw(rng, "int8", 64, 96),
              PLAIN, 0)  # fmt: skip


@every("x", [INPUTS[1], INPUTS[4]], ids=str)
@every("transposed", [False, True], ids=["rows", "columns"])
def test_batches_of_any_layout(
    quantised_lib: ctypes.CDLL, x: tuple[str, int], transposed: bool
) -> None:
    rng, (m, n, k) = np.random.default_rng(9), (11, 19, 24)
    dtype, zero = x
    a = draw(rng, dtype, 2, 1, *((k, m) if transposed else (m, k)))
    w = draw(rng, "int8", k, n)
    out = Output(rng, Requantise(residual="int8"), 2 * 3 * m, w.sum(0, np.int64), k, gap=2)
    a = at_page_end(a, dtype)
    p = matmul_params(m, n, k, 1 if transposed else k, out.y.stride)
    p.a_col = m if transposed else 1
    p.batch_ndim = 2
    p.batch[:2], p.a_batch[:2] = (2, 3), (m * k, 0)
    p.y_batch[:2] = (3 * m * out.y.stride, m * out.y.stride)
    row = out.e.residual_stride
    p.residual_batch[:2] = (3 * m * row, m * row)
    b = pack(w[None])
    status = quantised_lib.ext_qmatmul(
        p, code(dtype), zero, a.ctypes.data, b.ctypes.data, out.e, out.y.pointer
    )
    assert status == 0
    plain = a.swapaxes(-1, -2) if transposed else a
    sums = np.broadcast_to(_sums(plain, zero, w), (2, 3, m, n))
    out.check(sums.reshape(-1, n))


@every("times", [1, 4], ids=["tail", "tiles"])
@every("y", ["uint8", "int8"])
def test_halves_nan_and_what_does_not_fit(quantised_lib: ctypes.CDLL, y: str, times: int) -> None:
    """v = bias here; as ONNX's QuantizeLinear and ONNX Runtime on x86-64 have it."""
    held, zero = np.iinfo(y), 3
    steps = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, 1e30, np.inf, -np.inf, np.nan, 124.5])
    steps = np.tile(steps, times)
    want = np.rint(np.where(np.isnan(steps), -1e9, steps)) + zero
    n = len(steps)
    out = Output(np.random.default_rng(0), Requantise(y, zero), 5, np.zeros(n), 1)
    bias = at_page_end(np.concatenate([steps * 0.25, np.zeros(-n % 16)]))
    out.e.bias, out.e.y_scale = bias.ctypes.data, 0.25
    b, a = pack(np.zeros((1, 4, n), np.int8)), at_page_end(np.ones((5, 4)), np.uint8)
    p = matmul_params(5, n, 4, 4, out.y.stride)
    call = (p, code("uint8"), 0, a.ctypes.data, b.ctypes.data, out.e, out.y.pointer)
    assert quantised_lib.ext_qmatmul(*call) == 0
    np.testing.assert_array_equal(
        out.y.view, np.broadcast_to(np.clip(want, held.min, held.max), (5, n))
    )
    out.y.check_gaps()


def test_blocks_that_cannot_be_are_refused(quantised_lib: ctypes.CDLL) -> None:
    def status(x: str = "uint8", zero: int = 0, block: dict | None = None, **fields: object) -> int:
        p = matmul_params(2, 3, 4, 4, 3)
        for name, value in fields.items():
            setattr(p, name, value)
        e = abi.Requantise(y_dtype=code("uint8"), y_scale=1.0)
        for name, value in (block or {}).items():
            setattr(e, name, value)
        return quantised_lib.ext_qmatmul(p, code(x), zero, None, None, e, None)

    assert status(m=0) == 0
    assert status("float32") == status("int32") == 2
    assert status("uint8", -1) == status("uint8", 256) == 2
    assert status("int8", -129) == status("int8", 128) == 2
    assert status(k=65537) == status(batch_ndim=5) == 2
    assert status(block={"y_dtype": code("int64")}) == status(block={"y_zero": -1}) == 2
    assert status(block={"y_dtype": code("int8"), "y_zero": 128}) == 2
    assert status(block={"inner_dtype": code("int64")}) == 2
    assert status(block={"inner_dtype": code("uint8"), "inner_zero": 256}) == 2
    y = Rows(2, 3)
    other = {"residual": y.pointer, "residual_dtype": code("int32")}
    assert status(block=other) == 2
    assert status(block={**other, "residual_dtype": code("int8"), "residual_zero": 200}) == 2
    p = {"batch_ndim": 1, "batch": (1,), "b_batch": (5,)}
    assert status(batch_ndim=p["batch_ndim"], batch=(ctypes.c_int64 * 4)(1),
                  b_batch=(ctypes.c_int64 * 4)(5)) == 2  # fmt: skip
