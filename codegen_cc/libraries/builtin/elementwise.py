"""unary and binary: one pass over memory, in whatever order the first full operand lies."""

from __future__ import annotations

import numpy as np

from codegen_cc.builder import PlanBuilder
from codegen_cc.call import Struct
from codegen_cc.dim import Dim
from codegen_cc.libraries.builtin.dtypes import INTEGERS, c_dtype, only
from codegen_cc.libraries.builtin.epilogue import activation_struct
from codegen_cc.libraries.builtin.operands import all_constant
from codegen_cc.node import ACTIVATIONS, Node, Step
from codegen_cc.region import RegionNode
from codegen_cc.tensor import Tensor

BINARY_KINDS = ("add", "sub", "mul", "div", "max", "min", "pow", "prelu")
#: What integers have of them, without an epilogue.
INTEGER_KINDS = ("add", "sub", "mul", "max", "min")


def check_dtypes(node: Node) -> str | None:
    """float32; integers for exact arithmetic, truth values for ``not``."""
    kind = node.attrs["kind"]
    if kind == "not":
        return only(node, ("bool",))
    if node.op == "binary" and kind in INTEGER_KINDS and not node.epilogue:
        return only(node, ("float32", *INTEGERS)) or only(node, (node.dtype,))
    return only(node, ("float32",))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    known = (*ACTIVATIONS, "not") if node.op == "unary" else BINARY_KINDS
    if node.attrs["kind"] not in known:
        return f"{node.op} kind {node.attrs['kind']}; need one of {', '.join(known)}"
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_unary`` or ``ext_binary``."""
    (_unary if node.node.op == "unary" else _binary)(node, builder)


def _unary(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x = builder.tensor(node.role("input"))
    if attrs["kind"] == "not":
        _not(node, builder, x)
        return
    if x.order() is None:
        x = builder.dense(x)
    y = builder.space(x.shape, x.order())
    step = Step(attrs["kind"], attrs.get("alpha", 0.0), attrs.get("beta", 0.0))
    comment = f"{node.node.composite}: {list(x.shape)}"
    builder.call("ext_unary", [activation_struct(step), x.size, x, y], y, comment)
    builder.place(node.output, y)


def _binary(node: RegionNode, builder: PlanBuilder) -> None:
    shape = node.node.shape
    a, b = (builder.tensor(node.role(role)) for role in ("lhs", "rhs"))
    y, loop = broadcast_loop(builder, {"a": a, "b": b}, shape, node.node.dtype)
    fields: dict[str, object] = {"kind": f"EXT_{node.node.attrs['kind'].upper()}"}
    if node.node.epilogue:
        fields["activation"] = activation_struct(node.node.epilogue[0])
    fields |= loop
    if node.node.dtype != "float32":
        fields["dtype"] = c_dtype(node.node.dtype)
    comment = f"{node.node.composite}: {list(a.shape)}, {list(b.shape)} -> {list(shape)}"
    builder.call("ext_binary", [Struct("ext_binary_params", fields), a, b, y], y, comment)
    builder.place(node.output, y)


def _not(node: RegionNode, builder: PlanBuilder, x: Tensor) -> None:
    """x differs from true."""
    true = builder.constant(np.ones((), np.bool_))
    y, loop = broadcast_loop(builder, {"a": x, "b": true}, x.shape, "bool")
    fields = {"kind": "EXT_XOR", "dtype": c_dtype("bool"), **loop}
    comment = f"{node.node.composite}: {list(x.shape)}"
    arguments = [Struct("ext_compare_params", fields), x, true, y]
    builder.call("ext_compare", arguments, y, comment)
    builder.place(node.output, y)


def broadcast_loop(
    builder: PlanBuilder, operands: dict[str, Tensor], shape: tuple[Dim, ...], dtype: str
) -> tuple[Tensor, dict[str, object]]:
    """Space for a result of ``shape``, and the fields ``ndim``, ``shape`` and ``<name>_strides``.

    Axes come in the result's memory order: that of the first variable operand of its shape.
    """
    full = [t for t in operands.values() if t.shape == shape and t.order() is not None]
    full.sort(key=lambda tensor: tensor.buffer.kind == "weights")
    order = full[0].order() if full else tuple(range(len(shape)))
    return builder.space(shape, order, dtype), loop_fields(operands, shape, order)


def loop_fields(
    operands: dict[str, Tensor], shape: tuple[Dim, ...], order: tuple[int, ...]
) -> dict[str, object]:
    """``ndim``, ``shape`` and ``<name>_strides``: operands repeated to ``shape``, axes in order."""
    axes = [axis for axis in order if shape[axis] != 1] or list(order[-1:])
    fields: dict[str, object] = {"ndim": max(len(axes), 1)}
    fields["shape"] = [shape[axis] for axis in axes] or [1]
    for name, tensor in operands.items():
        view = tensor.broadcast_to(shape)
        fields[f"{name}_strides"] = [view.strides[axis] for axis in axes] or [1]
    return fields
