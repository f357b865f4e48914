"""A small tensor of expressions, as shapes are, and the operators that move its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

#: Most elements of a value that is looked at: shapes have a few, weights have many.
MAX_ELEMENTS = 64

FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64")


@dataclass(frozen=True)
class ShapeValue:
    """A small tensor of expressions: ``elements`` is an array of SymPy numbers and expressions."""

    elements: np.ndarray
    dtype: str = "int64"

    @classmethod
    def of(cls, elements: Sequence[Any] | np.ndarray, dtype: str = "int64") -> ShapeValue:
        """Numbers and expressions of any kind as a value."""
        array = np.empty(np.shape(elements), object)
        for index in np.ndindex(array.shape):
            array[index] = sympy.sympify(_plain(np.asarray(elements, object)[index]))
        return cls(array, dtype)

    @property
    def integers(self) -> list[int] | None:
        """The elements in order if all are plain integers, else None."""
        flat = self.elements.ravel().tolist()
        return [int(e) for e in flat] if all(e.is_Integer for e in flat) else None


def _plain(number: Any) -> Any:
    """A number as SymPy takes it exactly."""
    if isinstance(number, float | np.floating):
        return sympy.Rational(*float(number).as_integer_ratio())
    return number.item() if isinstance(number, np.generic) else number


def constant_value(array: np.ndarray) -> ShapeValue | None:
    """A constant as a value; None where it is too large, no number, or not finite."""
    dtype = str(array.dtype)
    if array.size > MAX_ELEMENTS or dtype not in (*FLOATS, *INTEGERS, "bool"):
        return None
    if dtype in FLOATS and not np.isfinite(array).all():
        return None
    return ShapeValue.of(array, dtype)


def _gather(attrs: dict[str, Any], x: ShapeValue, at: ShapeValue) -> ShapeValue | None:
    places = np.array(at.integers, np.int64).reshape(at.elements.shape)
    return _moved(x, np.take(x.elements, places, axis=attrs.get("axis", 0)))


def _slice(
    _: dict[str, Any],
    x: ShapeValue,
    begins: ShapeValue,
    ends: ShapeValue,
    axes: ShapeValue | None = None,
    steps: ShapeValue | None = None,
) -> ShapeValue | None:
    count = begins.elements.size
    along = range(count) if axes is None else axes.integers
    strides = [1] * count if steps is None else steps.integers
    cuts = [slice(None)] * x.elements.ndim
    for axis, begin, end, step in zip(along, begins.integers, ends.integers, strides, strict=True):
        cuts[axis] = slice(begin, end, step)
    return _moved(x, x.elements[tuple(cuts)])


def _pad(
    attrs: dict[str, Any], x: ShapeValue, widths: ShapeValue, fill: ShapeValue | None = None
) -> ShapeValue | None:
    """Elements with numbers around them, along all axes."""
    mode, numbers = attrs.get("mode", b"constant"), widths.integers
    if mode != b"constant" or min(numbers) < 0:
        return None
    value = sympy.Integer(0) if fill is None else fill.elements.ravel()[0]
    rank = x.elements.ndim
    pairs = list(zip(numbers[:rank], numbers[rank:], strict=True))
    return _moved(x, np.pad(x.elements, pairs, constant_values=value))


def _one_hot(
    attrs: dict[str, Any], at: ShapeValue, depth: ShapeValue, off_on: ShapeValue
) -> ShapeValue:
    """As exporters write the repeats of one axis among those of all: [1, n, 1]."""
    count, axis = depth.integers[0], attrs.get("axis", -1)
    at = np.array(at.integers).reshape(at.elements.shape)
    places = np.moveaxis(np.arange(count) == (at % count)[..., None], -1, axis)
    inside = np.expand_dims((at >= -count) & (at < count), axis)
    return ShapeValue(off_on.elements[(places & inside).astype(int)], off_on.dtype)


def _concat(attrs: dict[str, Any], *parts: ShapeValue) -> ShapeValue | None:
    return _moved(parts[0], np.concatenate([part.elements for part in parts], attrs["axis"]))


def _unsqueeze(_: dict[str, Any], x: ShapeValue, axes: ShapeValue) -> ShapeValue | None:
    return _moved(x, np.expand_dims(x.elements, tuple(axes.integers)))


def _squeeze(_: dict[str, Any], x: ShapeValue, axes: ShapeValue | None = None) -> ShapeValue | None:
    return _moved(x, np.squeeze(x.elements, None if axes is None else tuple(axes.integers)))


def _reshape(attrs: dict[str, Any], x: ShapeValue, shape: ShapeValue) -> ShapeValue | None:
    extents = shape.integers
    if 0 in extents and not attrs.get("allowzero"):
        extents = [e or x.elements.shape[axis] for axis, e in enumerate(extents)]
    return _moved(x, x.elements.reshape(extents))


def _transpose(attrs: dict[str, Any], x: ShapeValue) -> ShapeValue:
    return _moved(x, np.transpose(x.elements, attrs.get("perm")))


def _scatter(
    attrs: dict[str, Any], x: ShapeValue, at: ShapeValue, updates: ShapeValue
) -> ShapeValue | None:
    """Some elements of a vector as others, as exporters write the shape of index_copy's places."""
    if x.elements.ndim != 1 or attrs.get("reduction", b"none") != b"none":
        return None
    elements = x.elements.copy()
    for place, element in zip(at.integers, updates.elements.tolist(), strict=True):
        elements[place] = element
    return _moved(x, elements)


def _moved(x: ShapeValue, elements: Any) -> ShapeValue:
    # Indexing that leaves one element gives that element instead of an array without axes.
    array = np.empty(np.shape(elements), object)
    array[...] = elements
    return ShapeValue(array, x.dtype)


#: Rules of operators that leave the elements as they are.
MOVES: dict[str, Callable[..., ShapeValue | None]] = {
    "Identity": lambda _, x: x,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
}
