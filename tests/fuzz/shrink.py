"""Make the tensors of a failing graph small: extents of 1, 2 or 3 where there were more.

An extent is often shared, by a weight's axis or a number in a shape. So the axes of one symbol, or
of one extent, shrink together, with or without the constants that hold that number, and then each
axis alone. What ONNX Runtime still takes is tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from tests.fuzz.draft import Drawn

EXTENTS = (1, 2, 3)

#: Axes by tensor.
Axes = dict[str, list[int]]


def shrink(graph: Drawn, still_fails: Callable[[Drawn], bool]) -> Drawn:
    """The graph with axes as short as they can be; ``still_fails`` is asked about each try."""
    progress = True
    while progress:
        progress = False
        for axes, extent in _groups(graph):
            smaller = _first_that_fails(graph, axes, extent, still_fails)
            if smaller is not None:
                graph, progress = smaller, True
                break
    return graph


def _first_that_fails(
    graph: Drawn, axes: Axes, extent: int, still_fails: Callable[[Drawn], bool]
) -> Drawn | None:
    for new in EXTENTS:
        if new >= extent:
            break
        for numbers_too in (False, True):
            candidate = _cut(graph, axes, extent, new, numbers_too)
            if candidate is not None and still_fails(candidate):
                return candidate
    return None


def _groups(graph: Drawn) -> Iterator[tuple[Axes, int]]:
    """Axes that may shrink together, and their extent (in the first run, where it is symbolic)."""
    symbols: dict[str, Axes] = defaultdict(lambda: defaultdict(list))
    extents: dict[int, Axes] = defaultdict(lambda: defaultdict(list))
    alone: list[tuple[Axes, int]] = []
    sizes: dict[str, int] = {}
    fed = graph.feeds[0]
    for name, array in (*fed.items(), *_constants(graph.model).items()):
        given = graph.shapes.get(name, ()) if name in fed else ()
        for axis, extent in enumerate(array.shape):
            if axis < len(given) and isinstance(given[axis], str):
                symbols[given[axis]][name].append(axis)
                sizes[given[axis]] = extent
            else:
                extents[extent][name].append(axis)
                alone.append(({name: [axis]}, extent))
    yield from ((axes, sizes[symbol]) for symbol, axes in symbols.items())
    for extent in sorted(extents, reverse=True):
        yield extents[extent], extent
    yield from alone


def _constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {name: numpy_helper.to_array(tensor) for name, tensor in _tensors(model)}


def _tensors(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers and the values of Constant nodes, by name."""
    for tensor in model.graph.initializer:
        yield tensor.name, tensor
    for node in model.graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t


def _cut(graph: Drawn, axes: Axes, extent: int, new: int, numbers_too: bool) -> Drawn | None:
    """The graph with the first ``new`` elements of these axes; None if no number would change."""

    def first(name: str, array: np.ndarray) -> np.ndarray:
        for axis in axes.get(name, ()):
            array = np.take(array, range(min(new, array.shape[axis])), axis)
        return array

    model = onnx.ModelProto.FromString(graph.model.SerializeToString())
    changed = False
    for name, tensor in list(_tensors(model)):
        array = numpy_helper.to_array(tensor)
        kept = first(name, array)
        if numbers_too and name not in axes and array.dtype.kind == "i" and (array == extent).any():
            kept, changed = np.where(array == extent, new, array).astype(array.dtype), True
        if kept is not array:
            tensor.CopyFrom(numpy_helper.from_array(kept, tensor.name))
    if numbers_too and not changed:
        return None
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for axis in axes.get(value.name, ()):
            if dims[axis].HasField("dim_value"):
                dims[axis].dim_value = new
    feeds = [{name: first(name, array) for name, array in run.items()} for run in graph.feeds]
    shapes = {
        name: [
            new if axis in axes.get(name, ()) and not isinstance(e, str) else e
            for axis, e in enumerate(shape)
        ]
        for name, shape in graph.shapes.items()
    }
    return Drawn(model, feeds, shapes, graph.special)
