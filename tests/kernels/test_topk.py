"""topk against numpy's stable sorts."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

INT64, INT32 = (KERNEL_DTYPES.index(name) for name in ("int64", "int32"))
#: (outer, extent, inner), k
SHAPES = [
    ((1, 1, 1), 1),
    ((3, 2, 1), 2),
    ((3, 1000, 1), 5),
    ((3, 65, 1), 65),
    ((2, 20000, 1), 9000),
    ((2, 49, 3), 1),
    ((2, 33, 65), 7),
    ((1, 300, 70), 200),  # heaps for fewer than 64 columns at a time
    ((2, 5, 3), 0),
    ((2, 0, 3), 0),
    ((0, 4, 4), 2),
    ((4, 4, 0), 2),
]
KINDS = ("normal", "ties", "one value", "rising", "special", "NaN")


def ordered(x: np.ndarray, least: int) -> np.ndarray:
    """Indices along axis 1: NaN is the greatest value, equal ones keep their order."""
    if least:
        return np.argsort(x, axis=1, kind="stable")
    missing = np.isnan(x)
    return np.lexsort((-np.where(missing, 0, x), ~missing), axis=1)


def values_of(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    draw = np.random.default_rng(31)
    x = draw.standard_normal(shape)
    if kind == "ties":
        return np.round(x)
    if kind == "one value":
        return np.ones(shape)
    if kind == "rising":
        return np.broadcast_to(np.arange(shape[1])[:, None], shape)
    if kind == "special":
        odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3.4e38])
        return np.where(draw.uniform(size=shape) < 0.5, draw.choice(odd, shape), x)
    return np.full(shape, np.nan) if kind == "NaN" else x


@every("least", [0, 1], ids=["greatest", "least"])
@every(("shape", "k"), SHAPES, ids=str)
def test_topk(lib: ctypes.CDLL, shape: tuple[int, int, int], k: int, least: int) -> None:
    outer, _, inner = shape
    for kind, dtype in itertools.product(KINDS, (INT64, INT32)):
        x = at_page_end(values_of(kind, shape))
        order = ordered(x, least)[:, :k]
        values = Rows(outer * k, inner)
        indices = at_page_end(np.full((outer, k, inner), -1), KERNEL_DTYPES[dtype])
        params = abi.TopkParams(*shape, k, least, dtype)
        assert lib.ext_topk(params, x.ctypes.data, values.pointer, indices.ctypes.data) == 0
        np.testing.assert_array_equal(indices, order)
        want = np.take_along_axis(x, order, 1).reshape(outer * k, inner)
        # The bits, so that zeros keep their signs.
        np.testing.assert_array_equal(values.view.view("uint32"), want.view("uint32"))
        values.check_gaps()


@every("least", [0, 1], ids=["greatest", "least"])
@every(("shape", "k"), SHAPES, ids=str)
@every("name", ["int32", "int64"])
def test_topk_of_integers(
    lib: ctypes.CDLL, name: str, shape: tuple[int, int, int], k: int, least: int
) -> None:
    outer, _, inner = shape
    draw, limits = np.random.default_rng(7), np.iinfo(name)
    for low, high in ((-2, 3), (-1000, 70000), (limits.min, limits.max)):
        x = at_page_end(draw.integers(low, high, shape, name, endpoint=True), name)
        if x.size:
            x.flat[0], x.flat[-1] = high, low
        order = np.argsort(x if least else ~x, axis=1, kind="stable")[:, :k]
        values = at_page_end(np.zeros((outer, k, inner)), name)
        indices = at_page_end(np.full((outer, k, inner), -1), "int32")
        params = abi.TopkParams(*shape, k, least, INT32)
        code = KERNEL_DTYPES.index(name)
        given = (x.ctypes.data, values.ctypes.data, indices.ctypes.data)
        assert lib.ext_topk_integers(code, params, *given) == 0
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
        assert lib.ext_topk_integers(code, params, given[0], None, given[2]) == 0


def test_one_result_alone(lib: ctypes.CDLL) -> None:
    x = at_page_end([[3, 1, 2, 5]])
    values, indices = at_page_end(np.zeros(2)), at_page_end(np.zeros(2), np.int64)
    params = abi.TopkParams(1, 4, 1, 2, 0, INT64)
    assert lib.ext_topk(params, x.ctypes.data, values.ctypes.data, None) == 0
    assert lib.ext_topk(params, x.ctypes.data, None, indices.ctypes.data) == 0
    assert values.tolist() == [5, 3] and indices.tolist() == [3, 0]


@every(
    ("extent", "k", "code"),
    [(3, 4, INT64), (0, 1, INT64), (2**32, 1, INT64), (2**31, 1, INT32), (3, 1, 0)],
)
def test_what_is_refused(lib: ctypes.CDLL, extent: int, k: int, code: int) -> None:
    params = abi.TopkParams(1, extent, 1, k, 0, code)
    assert lib.ext_topk(params, None, None, None) == 2
    if extent < 2**32:
        assert lib.ext_topk_integers(INT64, params, None, None, None) == 2


def test_integers_alone_are_integers(lib: ctypes.CDLL) -> None:
    params = abi.TopkParams(1, 3, 1, 1, 0, INT64)
    assert lib.ext_topk_integers(0, params, None, None, None) == 2
