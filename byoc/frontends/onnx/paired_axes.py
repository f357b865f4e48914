"""Axes that operands of an operator share, so that they have to be equally long.

Each image has a grid, each row of a batch a state, each place that is written to an element. Where
the inputs of a network have names of their own for such axes, as exporters write them that trace
each input apart, one name is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any

import sympy

from byoc.frontends.onnx.learned_axes import Unequal, size_or_pair
from codegen_cc.dim import Dim, at_most, same

Shape = tuple[Dim, ...]
Pair = tuple[Dim, Dim]
#: Shapes of operands by place; none for those that are left out or have no known one.
Shapes = Sequence[Shape | None]
Pairs = Iterable[Pair]


def _pairs(*shapes: Shape | None) -> Pairs:
    """All axes of two tensors, as far as both are known and have as many."""
    a, b = shapes
    return zip(a, b, strict=True) if a is not None and b is not None and len(a) == len(b) else ()


def _all_axes(first: int, second: int) -> Callable[[Shapes, Mapping[str, Any]], Pairs]:
    return lambda shapes, _: _pairs(shapes[first], shapes[second])


def _axes(*places: tuple[int, int, int, int]) -> Callable[[Shapes, Mapping[str, Any]], Pairs]:
    """Single axes: an operand and its axis, and those of the other one."""

    def told(shapes: Shapes, _: Mapping[str, Any]) -> Pairs:
        for one, axis, other, other_axis in places:
            a, b = shapes[one], shapes[other]
            if a is not None and b is not None:
                yield a[axis], b[other_axis]

    return told


def _rows_of_states(shapes: Shapes, attrs: Mapping[str, Any]) -> Pairs:
    """X, W, R, B, lengths of sequences, states."""
    batch = 0 if attrs.get("layout", 0) else 1
    states = (4, 0), (5, batch), (6, batch)
    return _axes(*((0, batch, place, axis) for place, axis in states))(shapes, attrs)


def _scattered_slices(shapes: Shapes, _: Mapping[str, Any]) -> Pairs:
    """Data, indices, updates: a slice of data for each index."""
    data, indices, updates = shapes[:3]
    if data is None or indices is None or not isinstance(indices[-1], int):
        return ()
    return _pairs((*indices[:-1], *data[indices[-1] :]), updates)


def _longer(shapes: Shapes, attrs: Mapping[str, Any]) -> Pairs:
    """Axes along which indices of elements may not be longer than the data: all but one.

    Without those of which that is known, or a sum or a product tells nothing.
    """
    data, indices = shapes[:2]
    if data is None or indices is None:
        return
    axis = attrs.get("axis", 0) % len(data)
    for place, pair in enumerate(_pairs(indices, data)):
        plain = all(isinstance(x, int) or x.is_Symbol for x in pair)
        if place != axis and plain and not at_most(*pair):
            yield pair


def _at_elements(shapes: Shapes, attrs: Mapping[str, Any]) -> Pairs:
    """Indices have names of the data's axes, and updates are as long."""
    yield from (pair for pair in _longer(shapes, attrs) if not isinstance(pair[0], int))
    yield from _pairs(*shapes[1:3])


def least_of_data(
    operator: str,
    shapes: Sequence[Shape | None],
    attrs: Mapping[str, Any],
    symbols: Collection[sympy.Symbol],
) -> dict[str, int]:
    """What the inputs' ``symbols`` are at least, so that data are as long as their indices."""
    if _OF.get(operator) is not _at_elements or len(shapes) < 2:
        return {}
    pairs = [pair for pair in _longer(shapes, attrs) if isinstance(pair[0], int)]
    return {
        str(most): max(found for found, other in pairs if other == most)
        for _, most in pairs
        if most in symbols
    }


def _gathered_batches(shapes: Shapes, attrs: Mapping[str, Any]) -> Pairs:
    data, indices = shapes[:2]
    count = attrs.get("batch_dims", 0)
    return () if data is None or indices is None else _pairs(data[:count], indices[:count])


def _batches_of_matrices(shapes: Shapes, _: Mapping[str, Any]) -> Pairs:
    """All but the last two axes, counted from the last; those of one element are repeated."""
    a, b = shapes[:2]
    if a is None or b is None:
        return ()
    both = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return [pair for pair in both if not any(isinstance(x, int) for x in pair)]


def _of_one_letter(shapes: Shapes, attrs: Mapping[str, Any]) -> Pairs:
    """Those of axes with one letter, where no ellipsis stands for others; 1 is repeated."""
    terms = attrs["equation"].decode().replace(" ", "").partition("->")[0].split(",")
    known = [
        zip(term, shape, strict=True)
        for term, shape in zip(terms, shapes, strict=False)
        if shape is not None and len(term) == len(shape) and "." not in term
    ]
    by_letter: dict[str, list[Dim]] = {}
    for letter, extent in chain(*known):
        if extent != 1:
            by_letter.setdefault(letter, []).append(extent)
    return chain(*(combinations(extents, 2) for extents in by_letter.values()))


#: The pairs of extents by the shapes of the operands and the attributes.
_OF: dict[str, Callable[[Shapes, Mapping[str, Any]], Pairs]] = {
    "Einsum": _of_one_letter,
    "GRU": _rows_of_states,
    "GatherElements": _at_elements,
    "GatherND": _gathered_batches,
    "GridSample": _axes((0, 0, 1, 0)),
    "LSTM": _rows_of_states,
    "MatMul": _batches_of_matrices,
    "MaxUnpool": _all_axes(0, 1),
    "NonMaxSuppression": _axes((0, 0, 1, 0), (0, 1, 1, 2)),
    "RNN": _rows_of_states,
    "RoiAlign": _axes((1, 0, 2, 0)),
    "Scatter": _at_elements,
    "ScatterElements": _at_elements,
    "ScatterND": _scattered_slices,
}
#: Most operands that a row above looks at.
_OPERANDS = 7


def note_paired(
    operator: str,
    shapes: Sequence[Shape | None],
    attrs: Mapping[str, Any],
    unequal: Unequal,
    symbols: Collection[sympy.Symbol],
) -> None:
    """Add the pairs that an operator goes through side by side to ``unequal``, where they differ.

    Raises ``ValueError`` where they may be equal for some sizes only, as nothing would check that
    later: for a number, or two of the inputs' own ``symbols``.
    """
    if operator not in _OF:
        return
    padded = [*shapes, *[None] * (_OPERANDS - len(shapes))]
    try:
        found = [pair for pair in _OF[operator](padded, attrs) if not same(*pair)]
    except IndexError:  # ranks do not fit
        return
    unequal += [size_or_pair(*pair) for pair in found]
    for pair in found:
        told = [isinstance(x, int) or x in symbols for x in pair]
        if all(told) and not all(isinstance(x, int) for x in pair):
            a, b = pair
            raise ValueError(f"{operator} takes {a} and {b} elements together; need as many")
