"""Reductions and sums along axes that are computed while the model runs.

    y[i] = reduce over j of x[i + j],  0 <= j[a] < d[a] - e[a] + 1

x has the extents d, and y, before axes are dropped, the extents e: 1 for an axis that is reduced,
else d.  So one loop nest serves every choice of axes; the extents e are symbols of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx.onnx_frontend import _tensor_to_shape_expr

from byoc.frontends.onnx.converters.node import Node, is_float
from codegen_cc.dim import is_static

_INT64 = "int64"


def is_computed(node: Node) -> bool:
    """Whether a reduction's axes are an input that is no constant."""
    return len(node.inputs) > 1 and node.inputs[1] is not None and node.constant(1) is None


def reduction(node: Node) -> relax.Expr:
    """Any Reduce* of a tensor of known shape."""
    shape, count = node.shape(), node.shape(1)
    if shape is None or not is_static(shape) or count is None or not isinstance(count[0], int):
        raise ValueError("axes that are computed, of a tensor of unknown shape; need a known one")
    rank, keep = len(shape), node.attrs.get("keepdims", 1)
    empty = node.attrs.get("noop_with_empty_axes", 0)
    if count[0] == 0:
        node.inputs[1] = relax.const(np.arange(rank) if not empty else np.zeros(0, _INT64), _INT64)
        return node.part(node.operator, list(node.inputs), dict(node.attrs), node.opset)
    dims = relax.const(np.array(shape, _INT64), _INT64)
    flags = _flags(node, rank)
    one = relax.const(1, _INT64)
    reduced = node.emit(relax.op.equal(flags, one))
    kept = _tensor_to_shape_expr(
        node.bb, node.emit(relax.op.where(reduced, one, dims)), rank, "kept"
    )
    elements = node.emit(relax.op.prod(node.emit(relax.op.where(reduced, dims, one))))
    result = _of(node, kept.values, elements)
    if keep:
        return result
    left = rank - count[0]
    if left == 0:
        return relax.op.reshape(result, relax.ShapeExpr([]))
    # Axes that stay come first, in their order.
    rank_of = relax.op.add(
        relax.op.multiply(flags, relax.const(rank, _INT64)), relax.const(np.arange(rank), _INT64)
    )
    order = node.emit(relax.op.argsort(node.emit(rank_of), 0, dtype=_INT64))
    first = node.emit(relax.op.strided_slice(order, [0], [0], [left]))
    sizes = node.emit(relax.op.take(dims, first, 0))
    return relax.op.reshape(result, _tensor_to_shape_expr(node.bb, sizes, left, "left"))


def _flags(node: Node, rank: int) -> relax.Expr:
    """1 for each axis that is reduced, else 0."""
    axes = node.emit(relax.op.astype(node.inputs[1], _INT64))
    below = relax.op.less(axes, relax.const(0, _INT64))
    axes = relax.op.where(below, relax.op.add(axes, relax.const(rank, _INT64)), axes)
    hot = relax.op.equal(relax.op.expand_dims(axes, 1), relax.const(np.arange(rank), _INT64))
    return node.emit(relax.op.max(relax.op.astype(hot, _INT64), 0))


def _of(node: Node, kept: list[tirx.Expr], elements: relax.Expr) -> relax.Expr:
    """The node's reduction, every axis kept."""
    x, dtype, operator = node.inputs[0], node.dtype(), node.operator.removeprefix("Reduce")
    op = relax.op

    def over(kind: str, value: relax.Expr) -> relax.Expr:
        if 0 in node.shape():  # a loop nest that is never entered would leave memory as it was
            value = node.emit(value)
            nothing = relax.const(_NOTHING[kind](str(value.ty.dtype)), str(value.ty.dtype))
            return node.emit(op.broadcast_to(nothing, relax.ShapeExpr(kept)))
        return node.emit(node.bb.emit_te(_loops(kind, kept), node.emit(value)))

    if dtype == "bool":
        return op.astype(over(operator, op.astype(x, "uint8")), "bool")
    if operator in ("Sum", "Prod", "Max", "Min"):
        return over(operator, x)
    if operator == "Mean":
        total = over("Sum", x if is_float(dtype) or dtype.endswith("64") else op.astype(x, _INT64))
        kind = str(total.ty.dtype)
        return op.astype(op.divide(total, op.astype(elements, kind)), dtype)
    if operator == "L1":
        return over("Sum", op.abs(x) if not dtype.startswith("uint") else x)
    if operator == "SumSquare":
        return over("Sum", op.multiply(x, x))
    if operator == "L2":
        root = over("Sum", op.multiply(x, x))
        if is_float(dtype):
            return op.sqrt(root)
        return op.astype(op.sqrt(op.astype(root, "float64")), dtype)
    if operator == "LogSum":
        return op.log(over("Sum", x))
    if operator == "LogSumExp":
        most = over("Max", x)
        finite = op.where(op.isfinite(most), most, relax.const(0, dtype))
        if 0 in node.shape():
            return most
        moved = node.bb.emit_te(_minus, x, most)
        return op.add(op.log(over("Sum", op.exp(moved))), finite)
    raise ValueError(f"axes that are computed for {node.operator}; need constants")


def _loops(kind: str, kept: list[tirx.Expr]) -> Callable[[te.Tensor], te.Tensor]:
    reducer = _reducer(kind)

    def reduce(x: te.Tensor) -> te.Tensor:
        inside = [
            te.reduce_axis((0, extent - own + 1), name=f"j{axis}")
            for axis, (extent, own) in enumerate(zip(x.shape, kept, strict=True))
        ]

        def at(*place: tirx.Var) -> tirx.Expr:
            value = x(*(i + j for i, j in zip(place, inside, strict=True)))
            return reducer(value, axis=inside)

        return te.compute(kept, at, name=f"reduce_{kind.lower()}")

    return reduce


def _minus(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """The difference to what was reduced, where that is finite."""

    def at(*place: tirx.Var) -> tirx.Expr:
        most = y(*(tirx.min(i, own - 1) for i, own in zip(place, y.shape, strict=True)))
        return x(*place) - tirx.Select(tirx.isfinite(most), most, tirx.const(0, y.dtype))

    return te.compute(x.shape, at, name="minus")


def _greatest(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Of numbers; NaN if one is."""
    return tirx.Select(tirx.Or(a > b, a != a), a, b)


def _least(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    return tirx.Select(tirx.Or(a < b, a != a), a, b)


#: What a reduction of no elements gives, by dtype.
_NOTHING: dict[str, Callable[[str], float]] = {
    "Sum": lambda dtype: 0,
    "Prod": lambda dtype: 1,
    "Max": lambda dtype: -np.inf if is_float(dtype) else int(np.iinfo(dtype).min),
    "Min": lambda dtype: np.inf if is_float(dtype) else int(np.iinfo(dtype).max),
}

_COMBINED = {
    "Sum": lambda a, b: a + b,
    "Prod": lambda a, b: a * b,
    "Max": _greatest,
    "Min": _least,
}


def _reducer(kind: str) -> Callable[..., tirx.Expr]:
    return te.comm_reducer(
        _COMBINED[kind], lambda dtype: tirx.const(_NOTHING[kind](str(dtype)), dtype), name=kind
    )


def cum_sum(node: Node) -> relax.Expr:
    """CumSum and CumProd along an axis that may be computed: of all results the one asked for."""
    if node.constant(1) is not None:
        return _running(node, int(node.constant(1).reshape(-1)[0]))
    shape = node.shape()
    if shape is None:
        raise ValueError("an axis that is computed, of a tensor of unknown rank; need a known one")
    rank = len(shape)
    axis = relax.op.reshape(relax.op.astype(node.inputs[1], _INT64), [1] * rank)
    below = relax.op.less(axis, relax.const(0, _INT64))
    axis = node.emit(relax.op.where(below, relax.op.add(axis, relax.const(rank, _INT64)), axis))
    result = _running(node, 0)
    for place in range(1, rank):
        this = relax.op.equal(axis, relax.const(place, _INT64))
        result = node.emit(relax.op.where(this, _running(node, place), result))
    return result


def _running(node: Node, axis: int) -> relax.Expr:
    x, reverse = node.inputs[0], node.attrs.get("reverse", 0)
    function = relax.op.cumprod if node.operator == "CumProd" else relax.op.cumsum
    x = relax.op.flip(x, axis) if reverse else x
    y = node.emit(function(x, axis, node.dtype(), bool(node.attrs.get("exclusive", 0))))
    return relax.op.flip(y, axis) if reverse else y
