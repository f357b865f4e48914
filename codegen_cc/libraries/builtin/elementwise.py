"""unary and binary: one pass over memory, in whatever order the first full operand lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codegen_cc.call import Struct
from codegen_cc.libraries.builtin.epilogue import activation_struct
from codegen_cc.node import ACTIVATIONS, Node, Step
from codegen_cc.tensor import Tensor

if TYPE_CHECKING:
    from codegen_cc.plan import PlanBuilder
    from codegen_cc.region import RegionNode

BINARY_KINDS = ("add", "sub", "mul", "div", "max", "min", "pow")


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    known = ACTIVATIONS if node.op == "unary" else BINARY_KINDS
    if node.attrs["kind"] not in known:
        return f"{node.op} kind {node.attrs['kind']}; need one of {', '.join(known)}"
    if all(operand.constant for operand in node.operands):
        return "every operand is a constant"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_unary`` or ``ext_binary``."""
    (_unary if node.node.op == "unary" else _binary)(node, builder)


def _unary(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x = builder.tensor(node.role("input"))
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
    order = _common_order(a, b, shape)
    y = builder.space(shape, order)
    axes = [axis for axis in order if shape[axis] != 1] or list(order[-1:])
    wide = {"a_strides": a.broadcast_to(shape), "b_strides": b.broadcast_to(shape)}
    fields: dict[str, object] = {"kind": f"EXT_{node.node.attrs['kind'].upper()}"}
    if node.node.epilogue:
        fields["activation"] = activation_struct(node.node.epilogue[0])
    fields["ndim"] = max(len(axes), 1)
    fields["shape"] = [shape[axis] for axis in axes] or [1]
    for name, view in wide.items():
        fields[name] = [view.strides[axis] for axis in axes] or [1]
    comment = f"{node.node.composite}: {list(a.shape)}, {list(b.shape)} -> {list(shape)}"
    builder.call("ext_binary", [Struct("ext_binary_params", fields), a, b, y], y, comment)
    builder.place(node.output, y)


def _common_order(a: Tensor, b: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The memory order of the result: that of the first variable operand that has its shape."""
    full = [tensor for tensor in (a, b) if tensor.shape == shape and tensor.order() is not None]
    full.sort(key=lambda tensor: tensor.buffer.kind == "weights")
    return full[0].order() if full else tuple(range(len(shape)))
