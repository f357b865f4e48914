"""Reductions, norms and orders."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

from tvm import relax

from byoc.frontends.onnx.converters import computed_axes, computed_sizes
from byoc.frontends.onnx.converters.node import Node, is_float
from codegen_cc.dim import broadcast_shape, is_static

#: Reductions that end in a root or a logarithm.
_REAL = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def reduction(node: Node) -> relax.Expr:
    """Every Reduce*, by what is known of its axes and its dtype.

    A root or a logarithm of integers is computed in float64 and cut off.
    """
    dtype = node.dtype()
    if "axes" in node.attrs and not node.attrs["axes"]:
        node.attrs.pop("axes")  # none of them are all of them
    if node.operator in _REAL and not is_float(dtype):
        node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "float64"))
        return relax.op.astype(node.emit(reduction(node)), dtype)
    if computed_axes.is_computed(node):
        return computed_axes.reduction(node)
    special = {"Max": of_bool, "Min": of_bool, "Mean": mean}
    special |= dict.fromkeys(("L1", "L2", "LogSum", "SumSquare"), unreduced)
    found = special.get(node.operator.removeprefix("Reduce"))
    return node.tvm() if found is None else found(node)


def of_bool(node: Node) -> relax.Expr:
    """Greatest and least of truth values, through bytes."""
    if node.dtype() != "bool":
        return node.tvm()
    if 0 in (node.shape() or ()):
        raise ValueError("truth values of an empty tensor; need another dtype")
    node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "uint8"))
    return relax.op.astype(node.emit(node.tvm()), "bool")


def mean(node: Node) -> relax.Expr:
    """Of integers: their sum of 64 bits by their number, cut off, in the operand's dtype."""
    dtype = node.dtype()
    if is_float(dtype):
        return node.tvm()
    shape = node.shape()
    if shape is None or not is_static(shape) or 0 in shape:
        raise ValueError(f"integers of shape {list(shape or ())}; need extents known and above 0")
    if not dtype.endswith("64"):
        node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "int64"))
    result = node.emit(node.tvm())
    return result if dtype.endswith("64") else relax.op.astype(result, dtype)


def unreduced(node: Node) -> relax.Expr:
    """With ``noop_with_empty_axes`` and no axes, what is done to each element is left."""
    axes = node.constant(1)
    given = node.inputs[1] is not None and (axes is None or axes.size)
    if not node.attrs.get("noop_with_empty_axes", 0) or given:
        return node.tvm()
    image = node.inputs[0]
    node.attrs.get("keepdims")  # there is no axis to keep
    if node.operator == "ReduceSumSquare":
        return relax.op.multiply(image, image)
    by = {"ReduceLogSum": relax.op.log, "ReduceL1": relax.op.abs, "ReduceL2": relax.op.abs}
    return by[node.operator](image)


def hardmax(node: Node) -> relax.Expr:
    """1 at the first of the greatest elements along an axis, else 0.

    Before opset 13 it is the greatest of all the axes from ``axis`` on.
    """
    image, whole = node.inputs[0], node.opset < 13
    shape = image.ty.shape.values
    axis = node.attrs.get("axis", 1 if whole else -1) % max(1, len(shape))
    if 0 in (node.shape() or ()):  # to Relax's reshape 0 is an extent of the operand
        return relax.op.zeros(image.ty.shape, node.dtype())
    if whole:
        rows, columns = (reduce(operator.mul, part, 1) for part in (shape[:axis], shape[axis:]))
        image, axis = node.emit(relax.op.reshape(image, [rows, columns])), 1
    extents = image.ty.shape.values
    best = node.emit(relax.op.argmax(image, axis, keepdims=True))
    places = node.emit(relax.op.arange(0, extents[axis], 1, "int64"))
    along = [extents[axis] if i == axis else 1 for i in range(len(extents))]
    hot = relax.op.equal(best, node.emit(relax.op.reshape(places, along)))
    return relax.op.reshape(node.emit(relax.op.astype(hot, node.dtype())), list(shape))


def arg_extreme(node: Node) -> relax.Expr:
    """Along an axis that may be counted from the end in each opset."""
    if shape := node.shape():
        node.attrs["axis"] = node.attrs.get("axis", 0) % len(shape)
    return node.tvm()


def top_k(node: Node) -> relax.Expr:
    """In order, which is one of the orders that ``sorted`` 0 allows.

    TVM takes a ``k`` of 0 for all. In opset 10 ``k`` became an input, and nothing else changed.
    """
    node.attrs.pop("sorted", None)
    if node.opset < 10:
        k = node.attrs.get("k")
    else:
        if computed_sizes.is_computed(node, 1):
            return computed_sizes.top_k(node)
        given = node.constant(1)
        k = None if given is None else int(given.reshape(-1)[0])
    if k == 0:
        axis = node.attrs.get("axis", -1)
        nothing = node.emit(relax.op.strided_slice(node.inputs[0], [axis], [0], [0]))
        return relax.Tuple([nothing, relax.op.astype(nothing, "int64")])
    if node.opset == 10:
        if k is None:
            raise ValueError("k is computed; need a constant")
        node.attrs["k"] = k
    return node.tvm()


def layer_norm(node: Node) -> relax.Expr:
    """With mean and inverse deviation where they are asked for; parameters may broadcast."""
    shape = node.shape()
    axis = node.attrs.get("axis", -1) % len(shape)
    inside = shape[axis:]
    for place in (1, 2):
        given = None if node.inputs[place] is None else node.shape(place)
        if given is not None and given != inside and is_static(inside):
            wide = relax.op.broadcast_to(node.inputs[place], inside)
            node.inputs[place] = node.emit(wide)
    double = node.dtype() == "float64"
    result = None if double else node.tvm()
    if node.outputs == 1 and not double:
        return result
    dtype = "float64" if double else "float32"
    axes = list(range(axis, len(shape)))
    image = relax.op.astype(node.inputs[0], dtype)
    mean = node.emit(relax.op.mean(image, axes, keepdims=True))
    epsilon = relax.const(node.attrs.get("epsilon", 1e-5), dtype)
    variance = relax.op.variance(image, axes, keepdims=True)
    deviation = node.emit(relax.op.sqrt(relax.op.add(variance, epsilon)))
    if double:  # TVM has no code for that
        moved = relax.op.divide(relax.op.subtract(node.inputs[0], mean), deviation)
        y = relax.op.multiply(moved, node.inputs[1])
        y = y if node.inputs[2] is None else relax.op.add(y, node.inputs[2])
        if node.outputs == 1:
            return y
        result = [y]
    return relax.Tuple([result[0], mean, relax.op.divide(relax.const(1, dtype), deviation)])


def rms_norm(node: Node) -> relax.Expr:
    """With a scale that broadcasts; over all axes as the only row of a tensor with one more.

    TVM needs a scale of the extents that are normalised, and an axis before them.
    """
    shape, scale = node.shape(), node.shape(1)
    if None not in (shape, scale) and broadcast_shape(shape, scale) != shape:
        raise ValueError(
            f"scale {list(scale)} of an input {list(shape)}; need a scale that broadcasts to it at"
            " every size"
        )
    if shape is None:
        return node.tvm()
    axis = node.attrs.get("axis", -1) % len(shape)
    factor = _separate_scale(node, axis) if scale not in (None, shape[axis:]) else None
    if axis == 0:
        node.inputs[0] = node.emit(relax.op.expand_dims(node.inputs[0], 0))
        node.attrs["axis"] = 1
    result = node.emit(node.tvm())
    if axis == 0:
        result = node.emit(relax.op.squeeze(result, 0))
    return result if factor is None else relax.op.multiply(result, factor)


def _separate_scale(node: Node, axis: int) -> relax.Expr | None:
    """Give the scale the extents from ``axis`` on; if it has more axes, make it ones, and return it
    as a factor of the result."""
    inside = relax.ShapeExpr(list(node.inputs[0].ty.shape.values)[axis:])
    scale = node.inputs[1]
    if scale.ty.ndim <= len(inside):
        node.inputs[1] = node.emit(relax.op.broadcast_to(scale, inside))
        return None
    node.inputs[1] = node.emit(relax.op.ones(inside, node.dtype(1)))
    return scale


def instance_norm(node: Node) -> relax.Expr:
    """As one operator, whose axes may have any extents."""
    shape, dtype = node.shape(), node.dtype()
    if shape is None or len(shape) < 3 or dtype == "float64":
        return node.tvm()
    axes = list(range(2, len(shape)))
    return _in_float32(
        node,
        lambda x, scale, bias: relax.op.nn.instance_norm(
            x, scale, bias, 1, axes, node.attrs.get("epsilon", 1e-5)
        ),
    )


def group_norm(node: Node) -> relax.Expr:
    """With a scale and a bias for each channel; before opset 21 they were for each group."""
    shape, groups, dtype = node.shape(), node.attrs.get("num_groups", 0), node.dtype()
    known = shape is not None and len(shape) > 1 and isinstance(shape[1], int)
    if not known or groups < 1 or shape[1] % groups or dtype == "float64":
        return node.tvm()
    if node.opset < 21:
        for place in (1, 2):
            column = node.emit(relax.op.reshape(node.inputs[place], (groups, 1)))
            wide = node.emit(relax.op.broadcast_to(column, (groups, shape[1] // groups)))
            node.inputs[place] = node.emit(relax.op.reshape(wide, (shape[1],)))
    axes = list(range(2, len(shape)))
    return _in_float32(
        node,
        lambda x, scale, bias: relax.op.nn.group_norm(
            x, scale, bias, groups, 1, axes, node.attrs.get("epsilon", 1e-5)
        ),
    )


def _in_float32(node: Node, norm: Callable[..., relax.Expr]) -> relax.Expr:
    """A norm of the first three inputs, computed in float32, in the first one's dtype."""
    dtype = node.dtype()
    wide = [
        each if dtype == "float32" else node.emit(relax.op.astype(each, "float32"))
        for each in node.inputs[:3]
    ]
    result = node.emit(norm(*wide))
    return result if dtype == "float32" else relax.op.astype(result, dtype)
