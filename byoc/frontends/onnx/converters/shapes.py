"""Operators whose result has another shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax.frontend.onnx.onnx_frontend import _tensor_to_shape_expr, get_type

from byoc.frontends.onnx.converters import computed_resize, computed_sizes
from byoc.frontends.onnx.converters.node import Node, is_float
from byoc.frontends.onnx.fitting_extents import fitted
from byoc.frontends.onnx.resize import axes_of, resize
from byoc.frontends.onnx.weights_apart import MAX_SHAPE
from codegen_cc.dim import Dim, is_static, same, slice_bounds

#: The first axis of an image's pixels.
_SPACE = 2


def one_hot(node: Node) -> relax.Expr:
    """``depth`` comparisons of each index, of the dtype of the values.

    A fraction equals none of them, as in ONNX Runtime and the reference evaluator. Raises
    ``ValueError`` for a depth of none: PyTorch's exporter writes -1 for what data decide.
    """
    indices, _, values = node.inputs
    known = node.constant(1)
    if node.dtype() not in ("int32", "int64") and not is_float(node.dtype()):
        indices = relax.op.astype(indices, "int64")
    indices = node.emit(indices)
    dtype, rank = str(indices.ty.dtype), indices.ty.ndim + 1
    axis = node.attrs.get("axis", -1) % rank
    shape = [-1 if i == axis else 1 for i in range(rank)]
    if known is None:
        depth = computed_sizes.single_extent(node, 1, "depth")
        whole = relax.op.astype(relax.op.reshape(node.inputs[1], []), dtype)
        places = relax.op.reshape(
            node.emit(relax.op.arange(0, depth, 1, dtype)), [depth if e == -1 else 1 for e in shape]
        )
    else:
        depth = int(known.reshape(-1)[0])
        if depth < 1:
            raise ValueError(f"depth {depth}; need 1 or more, as F.one_hot's num_classes gives")
        whole = relax.const(depth, dtype)
        places = relax.const(np.arange(depth, dtype=dtype).reshape(shape), dtype)
    zero = relax.const(0, dtype)
    wrapped = relax.op.where(relax.op.less(indices, zero), relax.op.add(indices, whole), indices)
    hot = relax.op.equal(relax.op.expand_dims(wrapped, axis), places)
    off, on = (relax.op.take(values, relax.const(i, "int64"), 0) for i in (0, 1))
    return relax.op.where(hot, on, off)


def eye_like(node: Node) -> relax.Expr:
    """Of the dtype that is asked for, else the input's."""
    wanted = node.attrs.get("dtype")
    dtype = node.dtype() if wanted is None else get_type(wanted)
    rows, columns = node.inputs[0].ty.shape.values
    return relax.op.eye(rows, columns, node.attrs.get("k", 0), dtype)


def along_axes(node: Node) -> relax.Expr:
    """Squeeze and Unsqueeze, whose axes ONNX Runtime takes as one number without axes as well.

    To it, no axes among the attributes are all of them.
    """
    if node.operator == "Squeeze" and not node.attrs.get("axes", True):
        node.attrs.pop("axes")
    axes = node.constant(1)
    if axes is not None and axes.ndim == 0:
        node.inputs[1] = relax.const(axes.reshape(1), "int64")
    return node.tvm()


def trilu(node: Node) -> relax.Expr:
    """Of no elements as well."""
    if 0 not in (node.shape() or ()):
        return node.tvm()
    node.attrs.get("upper")
    node.inputs[1:]
    return node.inputs[0]


def concat(node: Node) -> relax.Expr:
    """Constants of more elements than shapes have: TVM would take a vector of them for a shape."""
    parts = [node.constant(place) for place in range(len(node.inputs))]
    if any(part is None for part in parts) or sum(part.size for part in parts) <= MAX_SHAPE:
        return node.tvm()
    return relax.const(np.concatenate(parts, node.attrs["axis"]), node.dtype())


def constant(node: Node) -> relax.Expr:
    """A tensor, a number, or a list of these."""
    for kind, dtype in (("float", "float32"), ("int", "int64")):
        for name in (f"value_{kind}", f"value_{kind}s"):
            if name in node.attrs:
                return relax.const(np.array(node.attrs[name], dtype), dtype)
    return node.tvm()


def constant_of_shape(node: Node) -> relax.Expr:
    """A shape that is computed while the model runs, or that of a number, which has no extents."""
    given = node.constant(0)
    if given is not None and not given.size:
        value = node.attrs.get("value")
        array = np.zeros(1, "f4") if value is None else numpy_helper.to_array(value)
        return relax.const(array.reshape(()), str(array.dtype))
    length = None if isinstance(node.inputs[0], relax.ShapeExpr) else node.shape()
    if node.constant(0) is None and length is not None and isinstance(length[0], int):
        node.inputs[0] = _tensor_to_shape_expr(node.bb, node.inputs[0], length[0], "extent")
    return node.tvm()


def expand(node: Node) -> relax.Expr:
    """A shape that is computed while the model runs: the larger extent wins over 1.

    A tensor without elements gets its new axes first, as TVM cannot broadcast it to more.
    """
    shape, wanted = node.shape(), node.inputs[1]
    known = node.constant(1)
    if known is not None and shape is not None and is_static(shape) and 0 in shape:
        more = list(range(len(known) - len(shape)))
        node.inputs[0] = node.emit(relax.op.expand_dims(node.inputs[0], more))
        return node.tvm()
    computed = not isinstance(wanted, relax.ShapeExpr) and known is None
    length = node.shape(1) if computed else None
    if length is None or shape is None or not isinstance(length[0], int):
        return node.tvm()
    rank = max(len(shape), length[0])
    padded = [*[tirx.IntImm("int64", 1)] * (rank - len(shape)), *node.inputs[0].ty.shape.values]
    own = node.emit(relax.op.shape_to_tensor(relax.ShapeExpr(padded)))
    ones = relax.const(np.ones(rank - length[0], "int64"), "int64")
    wanted = relax.op.concat([ones, wanted], 0) if length[0] < rank else wanted
    # An extent of 0 wins over 1 as well.
    larger = relax.op.where(relax.op.equal(own, relax.const(1, "int64")), wanted, own)
    extents = _tensor_to_shape_expr(node.bb, node.emit(larger), rank, "extent")
    value = node.inputs[0]
    for axis, extent in enumerate(value.ty.shape.values):
        if not isinstance(extent, tirx.IntImm):
            value = _once_or_as_often(node, value, axis, extents.values[rank - len(shape) + axis])
    return relax.op.broadcast_to(value, extents)


def _once_or_as_often(node: Node, value: relax.Expr, axis: int, extent: tirx.Expr) -> relax.Expr:
    """A tensor whose axis is ``extent`` long or, where it is 1, is repeated so often."""
    own = value.ty.shape.values[axis]
    last = node.emit(relax.op.shape_to_tensor(relax.ShapeExpr([own - 1])))
    places = relax.op.minimum(node.emit(relax.op.arange(0, extent, 1, "int64")), last)
    return node.emit(relax.op.take(value, node.emit(places), axis=axis))


def any_resize(node: Node) -> relax.Expr:
    """Axes of fixed extents here; symbolic ones TVM's way, where it has enough in the sizes."""
    shape = node.shape()
    if any(computed_sizes.is_computed(node, place) for place in range(1, len(node.inputs))):
        return computed_resize.resize(node)
    if shape is None:
        return node.tvm()
    opset = node.opset if node.operator == "Resize" else 0
    axes = axes_of(shape, node.inputs, node.attrs, opset)
    for axis in axes:
        if axis.is_symbolic and axis.axis < _SPACE < len(shape):
            told = f"axis {axis.axis} of {axis.size} becomes {axis.result}"
            raise ValueError(f"{told}, of whole images or channels; need the same extent")
    if any(axis.is_symbolic for axis in axes):
        uneven = [axis for axis in axes if not axis.is_symbolic and not axis.is_even]
        if uneven:
            told = ", ".join(f"{axis.scale:g} of axis {axis.axis}, {axis.size}" for axis in uneven)
            raise ValueError(f"scale {told} beside symbolic extents; need whole numbers")
        return node.tvm()
    return resize(node.bb, node.inputs, node.attrs, opset)


def by_coordinates(node: Node) -> relax.Expr:
    """GatherND, ScatterND: how many coordinates there are says which rank is taken or put."""
    indices = node.shape(1)
    if indices is None or not isinstance(indices[-1], int):
        told = list(indices) if indices else "of unknown shape"
        raise ValueError(f"indices {told}; need a known last extent, the number of coordinates")
    if node.operator != "ScatterND":
        return relax.op.gather_nd(*node.inputs, node.attrs.get("batch_dims", 0))
    _let_updates_fit(node, indices)
    reduction = node.attrs.get("reduction", b"none").decode()
    return relax.op.scatter_nd(*node.inputs, "update" if reduction == "none" else reduction)


def gather_elements(node: Node) -> relax.Expr:
    """Negative indices count from the end for kernels, and ``no_index_out_of_leftovers`` counts."""
    return relax.op.gather_elements(*node.inputs, node.attrs.get("axis", 0))


def scatter_elements(node: Node) -> relax.Expr:
    """PyTorch's exporter writes extremes of opset 18 in opset 16, and ONNX Runtime runs them."""
    reduction = node.attrs.get("reduction")
    if reduction in (b"min", b"max") and 16 <= node.opset < 18:
        axis = node.attrs.get("axis", 0)
        return relax.op.scatter_elements(*node.inputs, axis, reduction.decode())
    return node.tvm()


def scatter(node: Node) -> relax.Expr:
    """ScatterElements by the name that it had up to opset 10."""
    attrs = {**node.attrs, "axis": node.attrs.get("axis", 0)}
    return node.part("ScatterElements", node.inputs, attrs, 11)


def _let_updates_fit(node: Node, indices: tuple[Dim, ...]) -> None:
    """Look at the run whether there are as many updates as coordinates, where values say so."""
    data, updates = node.shape(), node.shape(2)
    if data is None or updates is None or is_static((*indices, *data, *updates)):
        return
    wanted = (*indices[:-1], *data[int(indices[-1]) :])
    if len(wanted) != len(updates) or all(map(same, wanted, updates)):
        return
    before, after = (node.inputs[place].ty.shape.values for place in (1, 0))
    fitting = [*before[:-1], *after[int(indices[-1]) :]]
    node.inputs[2] = fitted(node.bb, node.inputs[2], fitting)


def with_shape_as_input(
    inputs: Sequence[relax.Expr], attrs: Mapping[str, Any]
) -> tuple[list[relax.Expr], dict[str, Any]]:
    """Inputs and attributes of a Reshape as of opset 5; before, the shape was an attribute."""
    others = {name: value for name, value in attrs.items() if name != "shape"}
    return [*inputs, relax.const(np.array(attrs["shape"], "int64"))], others


def slice_by_attributes(node: Node) -> relax.Expr:
    """A slice; up to opset 9 its bounds are attributes."""
    if node.opset >= 10:
        return node.tvm()
    starts, ends, axes = (node.attrs.get(name) for name in ("starts", "ends", "axes"))
    axes = list(range(len(starts))) if axes is None else axes
    shape = node.shape()
    if shape is None:
        raise ValueError("the shape of its input is not known")
    bounds = [
        slice_bounds(int(start), int(end), shape[axis])
        for start, end, axis in zip(starts, ends, axes, strict=True)
    ]
    first, last = zip(*bounds, strict=True)
    return relax.op.strided_slice(node.inputs[0], axes, first, last, assume_inbound=True)
