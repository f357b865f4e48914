"""Pools that say where their maximum was, and what puts elements back there."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax, te, tirx

from byoc.frontends.onnx.converters import windows
from byoc.frontends.onnx.converters.computed_sizes import extents_of, is_computed
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.places_of_greatest import number_of, places_of_greatest

#: Of larger windows loops look for the places: operators for each tap would be too many.
_MOST_TAPS = 100


def max_pool(node: Node) -> relax.Expr:
    """MaxPool; with its second result the places of the maxima in the whole tensor, the first ones.

    Places count along rows, or along columns with ``storage_order`` 1.
    """
    if node.outputs == 1:
        return windows.pool(node)
    if node.shape() is None:
        raise ValueError(
            "places of maxima of an image of unknown rank; need one whose shape is known"
        )
    by_columns = bool(node.attrs.get("storage_order", 0))
    strides, dilations, pads, kernel = _window(node)
    node.attrs["tvm_custom"] = {**node.attrs["tvm_custom"], "num_outputs": 1}
    values = node.emit(windows.pool(node))
    image, each = node.inputs[0], list(zip(kernel, strides, dilations, pads, strict=False))
    if node.dtype() == "float32" and prod(kernel) <= _MOST_TAPS:
        places = places_of_greatest(node.emit, image, values, each, False, by_columns)
        return relax.Tuple([values, node.emit(_in_all_images(node, node.emit(places)))])

    def loops(x: te.Tensor, found: te.Tensor) -> te.Tensor:
        shape = x.shape
        inside = [te.reduce_axis((0, size), name=f"t{i}") for i, size in enumerate(kernel)]

        def at(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            there = [
                p * s + t * d - b
                for p, s, t, d, b in zip(place, strides, inside, dilations, pads, strict=False)
            ]
            fits = tirx.all(
                *(tirx.And(i >= 0, i < e) for i, e in zip(there, shape[2:], strict=True))
            )
            index = n * shape[1] + c
            for extent, i in zip(shape[2:], there, strict=True):
                index = index * extent + i
            inner = [tirx.max(tirx.min(i, e - 1), 0) for i, e in zip(there, shape[2:], strict=True)]
            same = _is_best(x(n, c, *inner), found(n, c, *place))
            none = tirx.const(np.iinfo(np.int64).max, "int64")
            chosen = tirx.Select(tirx.And(fits, same), tirx.Cast("int64", index), none)
            return te.min(chosen, axis=inside)

        places = te.compute(found.shape, at, name="places")
        if not by_columns:
            return places
        return te.compute(found.shape, lambda *to: _by_columns(places(*to), shape[2:]))

    return relax.Tuple([values, node.bb.emit_te(loops, node.inputs[0], values)])


def _in_all_images(node: Node, places: relax.Expr) -> relax.Expr:
    """Places in the whole tensor, of those in their images."""
    count, channels, *sizes = node.inputs[0].ty.shape.values
    planes = node.emit(relax.op.arange(0, count * channels, 1, "int64"))
    planes = node.emit(relax.op.reshape(planes, (count, channels, *[1] * len(sizes))))
    volume = number_of(node.emit, prod(sizes[1:], start=sizes[0]))
    return relax.op.add(places, node.emit(relax.op.multiply(planes, volume)))


def _is_best(value: tirx.Expr, best: tirx.Expr) -> tirx.Expr:
    """Whether an element is the greatest of its window, which NaN is as well.

    The greatest of a window of minus infinity alone is the lowest number, which is not in it.
    """
    dtype = str(value.ty.dtype)
    if "float" not in dtype:
        return value == best
    nothing = tirx.And(best == tirx.min_value(dtype), value < best)
    nan = tirx.And(tirx.isnan(value), tirx.isnan(best))  # value != value is simplified away
    return tirx.Or(value == best, tirx.Or(nothing, nan))


def _by_columns(place: tirx.Expr, extents: Sequence[tirx.Expr]) -> tirx.Expr:
    """A place that counts along rows, along columns: the first of equals is the first in rows."""
    inside = []
    for extent in reversed(extents):
        inside.append(tirx.floormod(place, extent))
        place = tirx.floordiv(place, extent)
    for extent, i in zip(reversed(extents), inside, strict=True):
        place = place * extent + i
    return place


def _window(node: Node) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, padding in front, and extents of a pool's window."""
    kernel, attrs = list(node.attrs["kernel_shape"]), node.attrs
    ones = [1] * len(kernel)
    strides, dilations = (list(attrs.get(name, ones)) for name in ("strides", "dilations"))
    named = attrs.get("auto_pad", b"NOTSET")
    pads = list(attrs.get("pads", [0] * 2 * len(kernel)))
    if named.startswith(b"SAME"):
        lower = named == b"SAME_LOWER"
        pads = windows.same_pads(node.shape()[2:], kernel, strides, dilations, lower, pool=True)
    return strides, dilations, pads, kernel


def max_unpool(node: Node) -> relax.Expr:
    """Elements where their places say, zeros elsewhere."""
    if node.shape() is None:
        raise ValueError("an image of unknown rank; need a known one")
    shape = node.inputs[0].ty.shape.values
    kernel = node.attrs["kernel_shape"]
    strides = node.attrs.get("strides", [1] * len(kernel))
    pads = node.attrs.get("pads", [0] * 2 * len(kernel))
    sizes = [
        (extent - 1) * s + k - pads[i] - pads[len(kernel) + i]
        for i, (extent, s, k) in enumerate(zip(shape[2:], strides, kernel, strict=True))
    ]
    wanted: list = [*shape[:2], *sizes]
    given = node.inputs[2] if len(node.inputs) > 2 else None
    if given is not None:
        known = node.constant(2)
        wanted = (
            extents_of(node, given, len(shape), "unpooled")
            if is_computed(node, 2)
            else [int(extent) for extent in known]
        )
    count = wanted[0]
    for extent in wanted[1:]:
        count = count * extent
    zeros = node.emit(relax.op.zeros([count], node.dtype()))
    values, places = (node.emit(relax.op.reshape(node.inputs[i], [-1])) for i in (0, 1))
    filled = relax.op.scatter_elements(zeros, places, values, axis=0)
    return relax.op.reshape(node.emit(filled), wanted)
