"""Rotary embedding against numpy in double precision, in every form of memory."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import ml_dtypes
import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import Rows, assert_close, at_page_end

BF16, FP32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


class Case(NamedTuple):
    """x [batch, heads, rows, 2 half] as it lies: heads before rows or between them."""

    batch: int
    heads: int
    rows: int
    half: int
    doubled: bool = True  # whether tables have the angles twice
    heads_last: bool = False  # x is [batch, rows, heads, 2 half] in memory
    tables_of_batch: bool = False


CASES = [
    *(Case(1, 2, 3, half) for half in (1, 3, 8, 15, 16, 17, 32, 33, 64)),
    *(Case(2, 3, 5, half, doubled=False) for half in (1, 7, 16, 40)),
    # Complex numbers: pairs side by side along the rows, or by one angle for each row of heads.
    *(Case(b, h, n, 1, doubled=False) for b, h, n in ((1, 1, 8), (2, 3, 40), (1, 2, 57))),
    *(Case(1, n, 3, 1, doubled=False, heads_last=True) for n in (5, 35)),
    Case(2, 2, 33, 1, doubled=False, tables_of_batch=True),
    *(Case(2, 14, 7, 32, heads_last=True, doubled=d) for d in (False, True)),
    *(Case(3, 4, 6, 20, heads_last=h, tables_of_batch=True) for h in (False, True)),
    *(Case(1, 1, 1, 32), Case(1, 9, 300, 32), Case(0, 2, 3, 8), Case(2, 2, 0, 8), Case(2, 2, 3, 0)),
]


def _run(
    lib: ctypes.CDLL, case: Case, stored: tuple[np.dtype, np.dtype] | None, in_place: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel gives, and what numpy does; ``stored`` of the one that is told it."""
    rng = np.random.default_rng(7)
    dtypes = stored or (FP32, FP32)
    storage = [abi.Storage(*(KERNEL_DTYPES.index(str(d)) for d in (dtypes[0], FP32, dtypes[1])))]
    function, told = (lib.ext_rotary_bf16, storage) if stored else (lib.ext_rotary, [])
    width, columns = 2 * case.half, (2 if case.doubled else 1) * case.half
    inner = (case.rows, case.heads) if case.heads_last else (case.heads, case.rows)
    x = at_page_end(rng.standard_normal((case.batch, *inner, width)), dtypes[0])
    tables = [
        at_page_end(
            rng.standard_normal((case.batch if case.tables_of_batch else 1, case.rows, columns))
        )
        for _ in range(2)
    ]
    y = Rows(case.batch * case.heads * case.rows, width, dtype=dtypes[1])
    apart = case.rows * columns if case.tables_of_batch else 0
    steps = (columns, 0) if case.heads_last else (0, columns)
    p = abi.RotaryParams(ndim=3, half=case.half, turned=case.half if case.doubled else 0)
    p.shape[:3] = (case.batch, *inner)
    p.x_strides[:3] = (inner[0] * inner[1] * width, inner[1] * width, width)
    p.cosine_strides[:3] = p.sine_strides[:3] = (apart, *steps)
    given = x.astype(np.float64)
    target = x.ctypes.data if in_place else y.pointer
    pointers = [table.ctypes.data for table in tables]
    assert function(p, *told, x.ctypes.data, *pointers, target) == 0
    found = (x if in_place else y.view).astype(np.float64).reshape(given.shape)
    if not in_place:
        y.check_gaps()
    cosine, sine = (np.asarray(t, np.float64) for t in tables)
    if not case.doubled:
        cosine, sine = (np.concatenate([t, t], -1) for t in (cosine, sine))
    place = 2 if case.heads_last else 1
    cosine, sine = (np.expand_dims(t, place) for t in (cosine, sine))
    first, second = given[..., : case.half], given[..., case.half :]
    return found, given * cosine + np.concatenate([-second, first], -1) * sine


@every("in_place", [False, True], ids=["", "in place"])
@every("case", CASES, ids=str)
def test_rows_of_float32(lib: ctypes.CDLL, case: Case, in_place: bool) -> None:
    found, want = _run(lib, case, None, in_place)
    if want.size:
        assert_close(found, want, 1e-6 + 1e-6 * np.abs(want))


@every("stored", [(FP32, BF16), (BF16, FP32), (BF16, BF16), (FP32, FP32)])
@every("case", CASES[::2], ids=str)
def test_rows_of_bfloat16(
    winograd_lib: ctypes.CDLL, case: Case, stored: tuple[np.dtype, np.dtype]
) -> None:
    found, want = _run(winograd_lib, case, stored)
    if want.size:
        assert_close(found, want, 2e-6 + (2.0**-8 * (stored[1] == BF16) + 1e-6) * np.abs(want))


def test_nan_and_infinities_stay_in_their_pairs(lib: ctypes.CDLL) -> None:
    p = abi.RotaryParams(ndim=1, half=20, turned=0)
    p.shape[0], p.x_strides[0], p.cosine_strides[0], p.sine_strides[0] = 1, 40, 20, 20
    x, table, y = at_page_end(np.ones(40)), at_page_end(np.full(20, 0.5)), Rows(1, 40)
    x[3], x[19] = np.nan, np.inf
    assert lib.ext_rotary(p, x.ctypes.data, table.ctypes.data, table.ctypes.data, y.pointer) == 0
    assert np.isnan(y.view[0, [3, 23]]).all() and (y.view[0, [19, 39]] == np.inf).all()
    assert np.isfinite(np.delete(y.view[0], [3, 23, 19, 39])).all()


def test_what_is_refused(lib: ctypes.CDLL, winograd_lib: ctypes.CDLL) -> None:
    for fields in ({"ndim": 0}, {"ndim": 9}, {"ndim": 1, "half": 4, "turned": 2}):
        assert lib.ext_rotary(abi.RotaryParams(**fields), None, None, None, None) == 2
    integers = abi.Storage(KERNEL_DTYPES.index("int32"), 0, KERNEL_DTYPES.index("bfloat16"))
    p = abi.RotaryParams(ndim=1)
    assert winograd_lib.ext_rotary_bf16(p, integers, None, None, None, None) == 2
