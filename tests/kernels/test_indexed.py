"""gather and scatter against numpy: elements along an axis, and runs by coordinates."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import abi
from codegen_cc.dtypes import DTYPES, KERNEL_DTYPES, KERNEL_HALVES
from tests.kernels.every import every
from tests.kernels.guard import at_page_end

KINDS = {
    "update": None,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
COMBINED = ("float32", "int32", "int64")
Shape = tuple[int, ...]

#: Shapes of the data and of indices, and the axis.
ELEMENTS: list[tuple[Shape, Shape, int]] = [
    ((7,), (3,), 0),
    ((1, 9), (1, 17), 1),
    ((5, 6), (4, 3), 1),
    ((5, 6), (9, 6), 0),
    ((3, 40, 2), (2, 33, 2), 1),
    ((2, 3, 4, 5), (2, 3, 4, 1), 3),
    ((4, 3), (0, 3), 0),
    ((90, 50), (90, 47), 1),
]
#: Shapes of the data and of items, how many first axes they share, how many coordinates there are.
RUNS: list[tuple[Shape, Shape, int, int]] = [
    ((9,), (4,), 0, 1),
    ((5, 6), (), 0, 2),
    ((5, 6, 7), (3, 2), 0, 2),
    ((5, 6, 7), (11,), 0, 1),
    ((2, 5, 3), (2, 4), 1, 1),
    ((2, 3, 5, 6), (2, 3, 2), 2, 2),
    ((4, 3), (0,), 0, 1),
    ((4, 0), (2,), 0, 1),
    ((70, 90), (640,), 0, 1),
    # Runs that have as many bytes as an element of another dtype.
    *(((9, run), (5,), 0, 1) for run in (2, 4, 8)),
]


@dataclass(frozen=True)
class Case:
    """What a kernel is told, its indices, and where these point."""

    shape: Shape
    params: Any
    indices: np.ndarray
    places: tuple[np.ndarray, ...]


def numpy_of(dtype: str) -> np.dtype:
    """What holds the bits of a dtype that NumPy lacks."""
    if dtype == "bool" or dtype in KERNEL_HALVES:
        return np.dtype(f"uint{8 * DTYPES[dtype].bytes}")
    return np.dtype(dtype)


def strides(shape: Shape) -> list[int]:
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def params(items: Shape, own: list[int], dims: list[int], shape: Shape, run: int) -> Any:
    """``own`` are strides of the items, ``dims`` the axes that coordinates are of."""
    p = abi.IndexedParams(ndim=max(len(items), 1), coordinates=len(dims), run=run)
    for field, numbers in {
        "shape": items or (1,),
        "strides": own or [0],
        "extents": [shape[axis] for axis in dims],
        "steps": [strides(shape)[axis] for axis in dims],
    }.items():
        getattr(p, field)[: len(numbers)] = list(numbers)
    p.elements = int(np.prod(shape))
    return p


def by_element(shape: Shape, items: Shape, axis: int) -> Case:
    draw, extent = np.random.default_rng(3), shape[axis]
    indices = draw.integers(-extent, extent, items)
    own = [0 if a == axis else stride for a, stride in enumerate(strides(shape))]
    places = list(np.indices(items))
    places[axis] = indices % extent
    return Case(shape, params(items, own, [axis], shape, 1), indices, tuple(places))


def by_coordinates(shape: Shape, items: Shape, first: int, count: int) -> Case:
    draw, dims = np.random.default_rng(4), list(range(first, first + count))
    extents = np.array([shape[axis] for axis in dims])
    indices = draw.integers(-extents, extents, (*items, count))
    own = [*strides(shape)[:first], *[0] * (len(items) - first)]
    run = int(np.prod(shape[first + count :]))
    places = (*np.indices(items)[:first], *np.moveaxis(indices % extents, -1, 0))
    return Case(shape, params(items, own, dims, shape, run), indices, places)


CASES = [by_element(*case) for case in ELEMENTS] + [by_coordinates(*case) for case in RUNS]


def values(shape: Shape, dtype: str) -> np.ndarray:
    """Small whole numbers, whose sums and products are exact."""
    return at_page_end(np.random.default_rng(5).integers(1, 4, shape), numpy_of(dtype))


def told(case: Case, dtype: str, index: str) -> tuple[Any, np.ndarray]:
    """Parameters and indices of these dtypes."""
    case.params.dtype, case.params.index_dtype = map(KERNEL_DTYPES.index, (dtype, index))
    return case.params, at_page_end(case.indices, index)


@every("case", CASES, ids=lambda case: f"{case.shape} {case.indices.shape}")
def test_gather(lib: ctypes.CDLL, case: Case) -> None:
    for dtype in KERNEL_DTYPES:
        p, indices = told(case, dtype, "int32" if dtype in ("int8", "int64") else "int64")
        x = values(case.shape, dtype)
        want = x[case.places]
        y = at_page_end(np.full(want.shape, 77), x.dtype)
        assert lib.ext_gather(p, x.ctypes.data, indices.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, want)


@every("kind", KINDS)
@every("case", CASES, ids=lambda case: f"{case.shape} {case.indices.shape}")
def test_scatter(lib: ctypes.CDLL, case: Case, kind: str) -> None:
    """Several updates for one element: the last one stays, or all count."""
    code = abi.SCATTER_KIND.index(kind)
    for dtype in KERNEL_DTYPES if kind == "update" else COMBINED:
        p, indices = told(case, dtype, "int32" if dtype == "int8" else "int64")
        data = values(case.shape, dtype)
        updates = at_page_end(2 + np.arange(data[case.places].size) % 2, data.dtype)
        want, each = data.copy(), updates.reshape(data[case.places].shape)
        if KINDS[kind] is None:
            want[case.places] = each
        else:
            with np.errstate(over="ignore"):
                KINDS[kind].at(want, case.places, each)
        y = at_page_end(np.full(case.shape, 77), data.dtype)
        operands = (indices.ctypes.data, updates.ctypes.data)
        assert lib.ext_scatter(p, code, data.ctypes.data, *operands, y.ctypes.data) == 0
        np.testing.assert_array_equal(y, want)
        assert lib.ext_scatter(p, code, data.ctypes.data, *operands, data.ctypes.data) == 0
        np.testing.assert_array_equal(data, want)


@every("kind", ["max", "min"])
def test_extremes_keep_nan(lib: ctypes.CDLL, kind: str) -> None:
    case = by_element((4,), (6,), 0)
    p, _ = told(case, "float32", "int64")
    indices = np.array([0, 1, 1, 2, 3, 3])
    data = np.array([np.nan, 1, -np.inf, 5], np.float32)
    updates = np.array([3, np.nan, 7, np.inf, 9, -0.0], np.float32)
    want, y = data.copy(), np.empty_like(data)
    with np.errstate(invalid="ignore"):
        KINDS[kind].at(want, indices, updates)
    given = (data.ctypes.data, indices.ctypes.data, updates.ctypes.data, y.ctypes.data)
    assert lib.ext_scatter(p, abi.SCATTER_KIND.index(kind), *given) == 0
    np.testing.assert_array_equal(y, want)


@every("index", [5, -6])
def test_an_index_outside_is_an_error(lib: ctypes.CDLL, index: int) -> None:
    p, _ = told(by_coordinates((5, 6), (2,), 0, 2), "float32", "int64")
    x, y = values((5, 6), "float32"), np.zeros((5, 6), "float32")
    indices = np.array([[0, 0], [index, 1]])
    operands = (x.ctypes.data, indices.ctypes.data)
    assert lib.ext_gather(p, *operands, y.ctypes.data) == 4
    assert lib.ext_scatter(p, 0, *operands, x.ctypes.data, y.ctypes.data) == 4


@every(
    ("field", "value"),
    [
        *(("ndim", 0), ("ndim", 9), ("coordinates", 0), ("coordinates", 9), ("dtype", 8)),
        ("index_dtype", KERNEL_DTYPES.index("uint8")),
    ],
)
def test_what_is_refused(lib: ctypes.CDLL, field: str, value: int) -> None:
    p, _ = told(by_element((7,), (3,), 0), "float32", "int64")
    setattr(p, field, value)
    assert lib.ext_gather(p, None, None, None) == 2
    assert lib.ext_scatter(p, 0, None, None, None, None) == 2


def test_sums_of_bytes_are_refused(lib: ctypes.CDLL) -> None:
    p, _ = told(by_element((7,), (3,), 0), "uint8", "int64")
    assert lib.ext_scatter(p, abi.SCATTER_KIND.index("add"), None, None, None, None) == 2
