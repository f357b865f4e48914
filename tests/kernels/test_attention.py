"""attention against softmax(scale q k^T + mask) v in float64."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import SENTINEL, assert_close, at_page_end


@dataclass(frozen=True)
class Case:
    """Sizes, the axes along which the mask is one value (None: no mask), and the layout.

    ``heads_inside`` has the heads of a row side by side, as projections write them.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    mask: tuple[int, ...] | None = None
    heads_inside: bool = False
    shared_keys: bool = False  # one head of keys and values for all
    group: int = 1  # heads that share one of keys and values


CASES = (
    Case(1, 2, 8, 8, 4, 4),
    Case(2, 3, 17, 23, 13, 19),
    Case(2, 3, 17, 23, 13, 19, mask=()),
    Case(2, 3, 17, 23, 13, 19, mask=(1, 2), heads_inside=True),
    Case(1, 2, 9, 40, 16, 32, mask=(0, 1)),
    Case(2, 2, 5, 31, 64, 64, mask=(3,)),
    Case(1, 12, 128, 128, 64, 64, mask=(1, 2), heads_inside=True),
    Case(1, 1, 1, 70, 64, 64),
    Case(3, 1, 1, 1, 1, 1, mask=()),
    Case(1, 2, 130, 700, 24, 20, heads_inside=True),
    Case(1, 1, 40, 3000, 8, 8),
    Case(2, 4, 6, 10, 8, 8, shared_keys=True),
    Case(0, 4, 6, 10, 8, 8),
    Case(1, 4, 0, 10, 8, 8),
    Case(1, 4, 6, 10, 8, 0),
    Case(2, 6, 17, 23, 13, 19, mask=(1,), group=3),
    Case(1, 16, 70, 40, 16, 16, heads_inside=True, group=8),
    # Few queries, for which keys are not packed.
    Case(1, 1, 1, 1, 1, 1),
    Case(2, 3, 2, 63, 13, 19, mask=(1,)),
    Case(1, 14, 1, 2001, 64, 64, mask=(0, 1, 2), heads_inside=True, group=7),
    Case(3, 4, 3, 65, 100, 130, mask=(), group=2),
    Case(2, 2, 4, 64, 128, 64, heads_inside=True, group=2),
    Case(1, 2, 1, 700, 24, 80, mask=(3,)),
    Case(2, 4, 1, 10, 8, 8, shared_keys=True),
    Case(2, 4, 1, 10, 8, 0),
    Case(0, 4, 1, 10, 8, 8),
    # Groups whose keys lie side by side, in parts for several threads, or too short for these.
    Case(2, 6, 1, 700, 64, 64, mask=(1, 2), heads_inside=True, group=3),
    Case(1, 3, 2, 130, 20, 36, mask=(3,), heads_inside=True),
    Case(1, 10, 1, 33, 16, 16, mask=(0,), heads_inside=True, group=5),
    # Rows that share keys and their mask, of which a CPU may give a lane to each.
    Case(2, 8, 1, 77, 20, 37, mask=(1,), group=8),
    Case(1, 6, 2, 95, 33, 48, heads_inside=True, group=3),
    Case(1, 7, 1, 45, 34, 24, group=7),
    Case(1, 12, 1, 600, 16, 128, mask=(0, 1, 3), heads_inside=True, group=6),
)


def _split(memory: np.ndarray, inside: bool) -> np.ndarray:
    """[batch, heads, rows, columns] over memory in either layout."""
    return memory.transpose(0, 2, 1, 3) if inside else memory


def _strides(array: np.ndarray, count: int = 3) -> list[int]:
    return [stride // array.itemsize for stride in array.strides[:count]]


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float
) -> np.ndarray:
    """In float64; heads of keys and values stand for as many of queries as there are to each."""
    k, v = (np.repeat(x, q.shape[1] // max(x.shape[1], 1), 1) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = scale * (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2))
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ v.astype(np.float64)


@dataclass
class Drawn:
    """Operands of a case, before pages that nobody may touch, and room for the result."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None
    y: np.ndarray


def draw(case: Case, stored: tuple[np.dtype, ...] = (np.dtype(np.float32),) * 4) -> Drawn:
    """``stored`` are the dtypes of q, k, v and y."""
    rng = np.random.default_rng(6)

    def heads(rows: int, columns: int, count: int, dtype: np.dtype) -> np.ndarray:
        shape = (case.batch, count, rows, columns)
        if case.heads_inside:
            shape = (case.batch, rows, count, columns)
        return _split(at_page_end(rng.standard_normal(shape), dtype), case.heads_inside)

    kv_heads = 1 if case.shared_keys else case.heads // case.group
    q = heads(case.queries, case.depth, case.heads, stored[0])
    k = heads(case.keys, case.depth, kv_heads, stored[1])
    v = heads(case.keys, case.width, kv_heads, stored[2])
    if case.shared_keys:
        k = np.broadcast_to(k, (*q.shape[:2], *k.shape[2:]))
        v = np.broadcast_to(v, (*q.shape[:2], *v.shape[2:]))
    mask = None
    if case.mask is not None:
        shape = (case.batch, case.heads, case.queries, case.keys)
        own = [1 if d in case.mask else size for d, size in enumerate(shape)]
        values = np.where(rng.uniform(size=own) < 0.3, -40, rng.standard_normal(own))
        mask = np.broadcast_to(at_page_end(values), shape)
    layout = [case.batch, case.heads, case.queries, case.width]
    if case.heads_inside:
        layout = [case.batch, case.queries, case.heads, case.width]
    y = _split(at_page_end(np.full(layout, SENTINEL), stored[3]), case.heads_inside)
    return Drawn(q, k, v, mask, y)


def one_row(d: Drawn, row: int) -> Drawn:
    """One query of a case, as a step of a decoder has."""
    rows = np.s_[:, :, row : row + 1]
    return Drawn(d.q[rows], d.k, d.v, d.mask[rows], np.empty_like(d.y[rows]))


def special(dtype: np.dtype) -> Drawn:
    """Rows of queries: with one key, without one, with NaN, two infinities, and a plain one."""
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((1, 1, 6, 20)).astype(dtype) for _ in range(3))
    mask = np.zeros((1, 1, 6, 6), np.float32)
    mask[0, 0, 0, 1:] = -np.inf  # only the first key
    mask[0, 0, 1] = -np.inf  # no key at all
    q[0, 0, 2, 3] = np.nan
    q[0, 0, 3, 3] = np.inf
    mask[0, 0, 4, 5] = np.inf
    return Drawn(q, k, v, mask, np.empty_like(q))


#: ``ext_guard``: which rows are 0.
NAN, KEYS = 1, 2


def params(d: Drawn, scale: float, guarded: int = 0) -> abi.AttentionParams:
    p = abi.AttentionParams(*d.q.shape[:3], d.k.shape[2], d.q.shape[3], d.v.shape[3], scale)
    p.guarded = guarded
    p.group = d.q.shape[1] // max(d.k.shape[1], 1)
    for name in ("q", "k", "v", "y"):
        getattr(p, f"{name}_strides")[:] = _strides(getattr(d, name))
    if d.mask is not None:
        p.mask_strides[:] = _strides(d.mask, 4)
    return p


def pointers(d: Drawn) -> list[int | None]:
    """Of the operands, the mask and the result, as kernels take them."""
    return [None if x is None else x.ctypes.data for x in (d.q, d.k, d.v, d.mask, d.y)]


def _run(lib: ctypes.CDLL, d: Drawn, scale: float, guarded: int = 0) -> int:
    return lib.ext_attention(params(d, scale, guarded), *pointers(d))


@every("case", CASES, ids=str)
def test_attention(lib: ctypes.CDLL, case: Case) -> None:
    d = draw(case)
    assert _run(lib, d, 0.3) == 0
    if d.y.size:
        assert_close(d.y, reference(d.q, d.k, d.v, d.mask, float(np.float32(0.3))), 2e-5)


def test_special_values(lib: ctypes.CDLL) -> None:
    d = special(np.dtype(np.float32))
    assert _run(lib, d, 0.5) == 0
    y = d.y
    assert_close(y, reference(d.q, d.k, d.v, d.mask, 0.5), 1e-5)
    np.testing.assert_allclose(y[0, 0, 0], d.v[0, 0, 0], rtol=1e-6)
    assert np.isnan(y[0, 0, 1:5]).all() and np.isfinite(y[0, 0, 5]).all()


def test_guarded_rows_are_zero(lib: ctypes.CDLL) -> None:
    """Those whose weights are NaN; a value that is no number shows through the weight 0."""
    d, plain = special(np.dtype(np.float32)), special(np.dtype(np.float32))
    assert _run(lib, d, 0.5, guarded=NAN) == 0 and _run(lib, plain, 0.5) == 0
    np.testing.assert_array_equal(d.y[0, 0, 1:5], 0.0)
    for row in (0, 5):
        np.testing.assert_array_equal(d.y[0, 0, row], plain.y[0, 0, row])
    d.v[0, 0, 3, 2] = np.inf
    assert _run(lib, d, 0.5, guarded=NAN) == 0
    assert np.isnan(d.y[0, 0, 1:5, 2]).all() and not np.isnan(d.y[0, 0, 1:5, 3]).any()


def test_rows_without_a_key_are_zero(lib: ctypes.CDLL) -> None:
    """No others, if asked for so."""
    d, plain = special(np.dtype(np.float32)), special(np.dtype(np.float32))
    assert _run(lib, d, 0.5, guarded=KEYS) == 0 and _run(lib, plain, 0.5) == 0
    np.testing.assert_array_equal(d.y[0, 0, 1], 0.0)
    np.testing.assert_array_equal(np.delete(d.y, 1, 2), np.delete(plain.y, 1, 2))


@every("guarded", [0, NAN, KEYS])
@every("copies", [1, 600])
@every("heads", [1, 7])
def test_special_values_of_one_query(
    lib: ctypes.CDLL, guarded: int, copies: int, heads: int
) -> None:
    """As among other queries, where the special keys are in one part of many as well."""
    whole = special(np.dtype(np.float32))
    if copies > 1:  # keys that no row sees, or only those that see all
        count = copies - whole.k.shape[2]
        more = np.ones((1, 1, count, 20), np.float32)
        hidden = np.full((1, 1, 6, count), -np.inf, np.float32)
        whole.k, whole.v = (np.concatenate([more, x], 2) for x in (whole.k, whole.v))
        whole.mask = np.concatenate([hidden, whole.mask], 3)
    whole.v[0, 0, -3, 2] = np.inf
    assert _run(lib, whole, 0.5, guarded) == 0
    for row in range(6):
        d = one_row(whole, row)
        d.q, d.y = (np.repeat(x, heads, 1) for x in (d.q, d.y))
        d.mask = np.broadcast_to(d.mask, (1, heads, *d.mask.shape[2:]))
        assert _run(lib, d, 0.5, guarded) == 0
        want = np.broadcast_to(whole.y[:, :, row : row + 1], d.y.shape)
        np.testing.assert_allclose(d.y, want, rtol=1e-5, atol=1e-6)


def lowest(dtype: np.dtype, queries: int) -> Drawn:
    """Rows whose mask is the lowest number everywhere, as exporters write it."""
    rng = np.random.default_rng(8)
    k, v = (rng.standard_normal((1, 2, 70, 16)).astype(dtype) for _ in range(2))
    q = rng.standard_normal((1, 2, queries, 16)).astype(dtype)
    mask = np.full((1, 2, queries, 70), np.finfo(np.float32).min)
    return Drawn(q, k, v, mask, np.empty_like(q))


@every("queries", [1, 9])
def test_masks_of_the_lowest_number_leave_all_keys_alike(lib: ctypes.CDLL, queries: int) -> None:
    d = lowest(np.dtype(np.float32), queries)
    assert _run(lib, d, 0.5) == 0
    assert_close(d.y, np.broadcast_to(d.v.mean(2, keepdims=True), d.y.shape), 1e-5)


def hidden(dtype: np.dtype, low: float) -> tuple[Drawn, np.ndarray]:
    """A causal mask behind padding, where keys that nobody sees are no numbers.

    Also the mask of the keys that some row sees.
    """
    rng = np.random.default_rng(9)
    k, v = (rng.standard_normal((1, 1, 150, 24)).astype(dtype) for _ in range(2))
    q = rng.standard_normal((1, 2, 90, 24)).astype(dtype)
    seen = np.arange(150) <= np.arange(90)[:, None] + 30
    seen[:, :5] = False
    k[:, :, 128:], v[:, :, 128:] = np.nan, np.inf
    mask = np.where(seen, 0.0, low).astype(np.float32)
    return Drawn(q, k, v, np.broadcast_to(mask, (1, 2, 90, 150)), np.empty_like(q)), mask[:, :128]


@every("low", [-np.inf, float(np.finfo(np.float32).min)])
def test_keys_hidden_from_all_rows_are_left_out(lib: ctypes.CDLL, low: float) -> None:
    d, mask = hidden(np.dtype(np.float32), low)
    assert _run(lib, d, 0.5) == 0
    assert_close(d.y, reference(d.q, d.k[:, :, :128], d.v[:, :, :128], mask, 0.5), 2e-5)


def test_a_row_without_a_key_keeps_all_keys_of_its_block(lib: ctypes.CDLL) -> None:
    d, _ = hidden(np.dtype(np.float32), float(np.finfo(np.float32).min))
    d.k[...], d.v[:, :, 128:] = 0.25, 3.0
    mask = d.mask.copy()
    mask[:, :, 4] = np.finfo(np.float32).min
    d = Drawn(d.q, d.k, d.v, mask, d.y)
    assert _run(lib, d, 0.5) == 0
    assert_close(d.y, reference(d.q, d.k, d.v, mask, 0.5), 2e-5)


def test_heads_that_no_group_divides_are_refused(lib: ctypes.CDLL) -> None:
    q, k = np.zeros((1, 5, 1, 4), np.float32), np.zeros((1, 2, 3, 4), np.float32)
    assert _run(lib, Drawn(q, k, k, None, np.empty_like(q)), 1.0) == 2


def test_strided_mask_columns_are_refused(lib: ctypes.CDLL) -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    assert _run(lib, Drawn(x, x, x, x.swapaxes(2, 3), x), 1.0) == 2
