"""attention of bf16 operands against float64 on the rounded operands."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import assert_close, at_page_end
from tests.kernels.test_attention import (
    CASES,
    KEYS,
    NAN,
    Case,
    Drawn,
    draw,
    hidden,
    lowest,
    params,
    pointers,
    reference,
    special,
)
from tests.kernels.test_bf16 import BF16, FP32, HALF_STEP

#: Storage of q, k, v and y.
STORED = (
    (BF16, BF16, BF16, BF16),
    (FP32, FP32, FP32, FP32),
    (BF16, FP32, BF16, FP32),
    (FP32, BF16, FP32, BF16),
)
#: Windows of Swin, whose last panel of keys has one; rows and keys around tiles and panels.
WINDOWS = (
    Case(2, 3, 49, 49, 32, 32, mask=(0,), heads_inside=True),
    *(Case(1, 1, rows, rows + 1, 32, 33) for rows in range(12, 36)),
)
#: Queries of a step, for which keys and values in float32 are read as they are.
FEW = 4
SCALE = float(np.float32(0.3))
#: Beside roundings: of the polynomial behind exponentials, of sums and of scores in fp32.
APPROXIMATE = 1e-4


def _exact(values: np.ndarray) -> np.ndarray:
    return values.astype(BF16).astype(np.float64)


def _attend(lib: ctypes.CDLL, d: Drawn, guarded: int = 0) -> int:
    stored = (KERNEL_DTYPES.index(str(x.dtype)) for x in (d.q, d.k, d.v, d.y))
    return lib.ext_attention_bf16(
        params(d, SCALE, guarded), abi.AttentionStorage(*stored), *pointers(d)
    )


@pytest.mark.slow
@every(("index", "case"), [*enumerate((*CASES, *WINDOWS))], ids=str)
def test_attention(bf16_lib: ctypes.CDLL, index: int, case: Case) -> None:
    d = draw(case, STORED[index % len(STORED)])
    assert _attend(bf16_lib, d) == 0
    if not d.y.size:
        return
    exact = [_exact(x) for x in (d.q, d.k, d.v)]
    if case.queries <= FEW and d.k.dtype == d.v.dtype == FP32:
        exact = [x.astype(np.float64) for x in (d.q, d.k, d.v)]  # computed as they are
    want = reference(*exact, d.mask, SCALE)
    # Each weight is rounded, so that the result is off by a share of the sum of their products.
    magnitude = reference(exact[0], exact[1], abs(exact[2]), d.mask, SCALE)
    limit = (HALF_STEP + APPROXIMATE) * magnitude + 1e-6
    if d.y.dtype == BF16:
        limit = limit * (1 + HALF_STEP) + HALF_STEP * abs(want)
    assert_close(d.y, want, limit)


@every("stored", STORED, ids=lambda stored: "-".join(map(str, stored)))
def test_storage(bf16_lib: ctypes.CDLL, stored: tuple[np.dtype, ...]) -> None:
    d = draw(Case(2, 2, 19, 37, 24, 40, mask=(1, 2), heads_inside=True), stored)
    assert _attend(bf16_lib, d) == 0
    want = reference(*(_exact(x) for x in (d.q, d.k, d.v)), d.mask, SCALE)
    assert_close(d.y, want, 3 * HALF_STEP)


@every("stored", [(BF16, FP32, FP32, BF16), (FP32,) * 4])
def test_a_step_reads_keys_and_values_as_they_are(
    bf16_lib: ctypes.CDLL, stored: tuple[np.dtype, ...]
) -> None:
    d = draw(Case(2, 6, 1, 300, 40, 24, mask=(1,), heads_inside=True, group=3), stored)
    assert _attend(bf16_lib, d) == 0
    want = reference(*(x.astype(np.float64) for x in (d.q, d.k, d.v)), d.mask, SCALE)
    assert_close(d.y.astype(np.float64), want, 2e-5 if stored[3] == FP32 else HALF_STEP)


def test_special_values(bf16_lib: ctypes.CDLL) -> None:
    d = special(BF16)
    assert _attend(bf16_lib, d) == 0
    got = d.y.astype(np.float64)
    np.testing.assert_array_equal(d.y[0, 0, 0], d.v[0, 0, 0])
    assert np.isnan(got[0, 0, 1:5]).all()
    want = reference(*(_exact(x) for x in (d.q, d.k, d.v)), d.mask, SCALE)
    assert_close(got[0, 0, 5], want[0, 0, 5], 3 * HALF_STEP)


def test_guarded_rows_are_zero(bf16_lib: ctypes.CDLL) -> None:
    d, plain = special(BF16), special(BF16)
    assert _attend(bf16_lib, d, guarded=NAN) == 0 and _attend(bf16_lib, plain) == 0
    np.testing.assert_array_equal(d.y[0, 0, 1:5].astype(np.float64), 0.0)
    np.testing.assert_array_equal(d.y[0, 0, [0, 5]], plain.y[0, 0, [0, 5]])
    assert _attend(bf16_lib, d, guarded=KEYS) == 0
    np.testing.assert_array_equal(d.y[0, 0, 1].astype(np.float64), 0.0)
    np.testing.assert_array_equal(np.delete(_exact(d.y), 1, 2), np.delete(_exact(plain.y), 1, 2))


def test_masks_of_the_lowest_number_leave_all_keys_alike(bf16_lib: ctypes.CDLL) -> None:
    d = lowest(BF16, 9)
    assert _attend(bf16_lib, d) == 0
    want = np.broadcast_to(_exact(d.v).mean(2, keepdims=True), d.y.shape)
    assert_close(d.y.astype(np.float64), want, 3 * HALF_STEP)


@every("low", [-np.inf, float(np.finfo(np.float32).min)])
def test_keys_hidden_from_all_rows_are_left_out(bf16_lib: ctypes.CDLL, low: float) -> None:
    d, mask = hidden(BF16, low)
    assert _attend(bf16_lib, d) == 0
    want = reference(*(_exact(x) for x in (d.q, d.k[:, :, :128], d.v[:, :, :128])), mask, SCALE)
    assert_close(d.y.astype(np.float64), want, 3 * HALF_STEP)


def test_a_mask_beside_no_keys_is_not_read(bf16_lib: ctypes.CDLL) -> None:
    """One number for all keys lies past the end of memory where there are none."""
    x, keys = at_page_end(np.zeros((1, 1, 8, 2)), BF16), at_page_end(np.zeros((1, 1, 0, 2)), BF16)
    mask = at_page_end(np.zeros((1, 1, 8, 0)))
    p = abi.AttentionParams(batch=1, heads=1, queries=8, keys=0, depth=2, width=2, scale=1.0)
    for strides in (p.q_strides, p.y_strides):
        strides[:3] = (16, 16, 2)
    storage = abi.AttentionStorage(*[KERNEL_DTYPES.index("bfloat16")] * 4)
    y = at_page_end(np.zeros((1, 1, 8, 2)), BF16)
    pointers = x.ctypes.data, keys.ctypes.data, keys.ctypes.data, mask.ctypes.data, y.ctypes.data
    assert bf16_lib.ext_attention_bf16(p, storage, *pointers) == 0


def test_what_is_refused(bf16_lib: ctypes.CDLL) -> None:
    x = np.zeros((1, 1, 2, 2), BF16)
    mask = np.zeros((1, 1, 2, 2), np.float32)
    assert _attend(bf16_lib, Drawn(x, x, x, mask.swapaxes(2, 3), x)) == 2
    for place in range(4):
        operands = [x] * 4
        operands[place] = np.zeros((1, 1, 2, 2), np.int32)
        assert _attend(bf16_lib, Drawn(*operands[:3], None, operands[3])) == 2
