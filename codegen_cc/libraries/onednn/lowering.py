"""Calls of ``ext_onednn.h``: the built-in kernels' parameter blocks, and plain weights.

oneDNN is fast on images without gaps, on matrices with contiguous rows or columns, and where a
residual lies as the result does; what differs is copied.
"""

from __future__ import annotations

from codegen_cc.node import Step
from codegen_cc.operators.conv2d import place_conv2d
from codegen_cc.operators.conv3d import place_conv3d
from codegen_cc.operators.elementwise import loop_fields
from codegen_cc.operators.epilogue import activation_struct
from codegen_cc.operators.matmul import place_matmul
from codegen_cc.operators.normalisation import adjacent, innermost
from codegen_cc.operators.pooling import place_pool2d
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

#: C type of what the adapter keeps for each call.
SITE = "ext_onednn_site"


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """Record the call of a node that ``rules.supports`` accepted."""
    _LOWER[node.node.op](node, builder)


def _convolution(node: RegionNode, builder: PlanBuilder) -> None:
    if node.node.op == "conv3d":
        placed = place_conv3d(node, builder)
    else:
        placed = place_conv2d(node, builder, node.node.attrs["padding"][:2], gaps=False)
    weight = builder.tensor(node.role("weight"))
    arguments = [_site(builder), placed.params, placed.inputs["input"], weight]
    arguments += [placed.epilogue, placed.output]
    placed.call(node, builder, f"ext_onednn_{node.node.op}", arguments)


def _matmul(node: RegionNode, builder: PlanBuilder) -> None:
    placed = place_matmul(node, builder, plain=True)
    constant = node.role("rhs").data is not None
    lhs, rhs = placed.inputs["lhs"], placed.inputs["rhs"]
    arguments = [_site(builder), placed.params, lhs, rhs, placed.epilogue, placed.output]
    function = "ext_onednn_matmul_constant" if constant else "ext_onednn_matmul"
    placed.call(node, builder, function, arguments)


def _pool(node: RegionNode, builder: PlanBuilder) -> None:
    placed = place_pool2d(node, builder, gaps=False)
    arguments = [_site(builder), placed.params, placed.inputs["input"], placed.output]
    placed.call(node, builder, f"ext_onednn_{node.node.op}", arguments)


def _softmax(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    axis = attrs["axis"]
    x, outer, reduce, inner = adjacent(builder, builder.tensor(node.role("input")), [axis])
    if inner != 1:
        rest = tuple(a for a in range(len(x.shape)) if a != axis)
        x, outer, reduce, inner = adjacent(builder, builder.dense(x, (*rest, axis)), [axis])
    y = builder.space(x.shape, node.node.dtype, x.order())
    comment = f"{node.node.composite} axis {axis}: {list(x.shape)}"
    arguments = [_site(builder), outer, reduce, inner, int(attrs["log"]), x, y]
    _record(node, builder, "ext_onednn_softmax", arguments, y, comment)


def _layer_norm(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    axes = list(attrs["axes"])
    x, rows, n = innermost(builder, builder.tensor(node.role("input")), axes)
    y = builder.space(x.shape, node.node.dtype, x.order())
    affine = [builder.tensor(value) for value in node.inputs[1:]]
    comment = f"{node.node.composite} axes {axes}: {list(x.shape)}"
    arguments = [_site(builder), rows, n, float(attrs["epsilon"]), x, *affine, y]
    _record(node, builder, "ext_onednn_layer_norm", arguments, y, comment)


def _unary(node: RegionNode, builder: PlanBuilder) -> None:
    attrs = node.node.attrs
    x = builder.tensor(node.role("input"))
    if x.order() is None:
        x = builder.dense(x)
    y = builder.space(x.shape, node.node.dtype, x.order())
    step = Step(attrs["kind"], attrs.get("alpha", 0.0), attrs.get("beta", 0.0))
    comment = f"{node.node.composite}: {list(x.shape)}"
    arguments = [_site(builder), activation_struct(step), x.size, x, y]
    _record(node, builder, "ext_onednn_unary", arguments, y, comment)


def _binary(node: RegionNode, builder: PlanBuilder) -> None:
    shape = node.node.shape
    a, b = (builder.tensor(node.role(role)) for role in ("lhs", "rhs"))
    if a.shape != shape:
        a, b = b, a
    if a.order() is None:
        a = builder.dense(a)
    if b.shape == shape:
        b = builder.dense(b, a.order())
    elif b.order() is None:
        b = builder.dense(b)
    y = builder.space(shape, node.node.dtype, a.order())
    fields: dict[str, object] = {"kind": f"EXT_{node.node.attrs['kind'].upper()}"}
    if node.node.epilogue:
        fields["activation"] = activation_struct(node.node.epilogue[0])
    fields |= loop_fields({"a": a, "b": b}, shape, a.order())
    comment = f"{node.node.composite}: {list(a.shape)}, {list(b.shape)} -> {list(shape)}"
    arguments = [_site(builder), Struct("ext_binary_params", fields), a, b, y]
    _record(node, builder, "ext_onednn_binary", arguments, y, comment)


def _site(builder: PlanBuilder) -> str:
    return builder.state(SITE)


def _record(
    node: RegionNode,
    builder: PlanBuilder,
    function: str,
    arguments: list[Argument],
    y: Tensor,
    comment: str,
) -> None:
    builder.call(function, arguments, y, comment)
    builder.place(node.output, y)


_LOWER = {
    "conv2d": _convolution,
    "conv2d_transpose": _convolution,
    "conv3d": _convolution,
    "matmul": _matmul,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "unary": _unary,
    "binary": _binary,
}
