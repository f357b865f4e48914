"""Data movement: views where possible, else one ``ext_copy``."""

from __future__ import annotations

from codegen_cc.builder import PlanBuilder
from codegen_cc.dim import parse_dim, product, same
from codegen_cc.libraries.builtin.dtypes import ANY, only
from codegen_cc.libraries.builtin.operands import all_constant
from codegen_cc.node import Node
from codegen_cc.region import RegionNode
from codegen_cc.tensor import CHANNELS_LAST


def check_dtypes(node: Node) -> str | None:
    """Bytes are bytes: operands and result have one dtype, whichever."""
    return only(node, (node.dtype,)) or only(node, ANY)


def supports(node: Node) -> str | None:
    """None if the node is a view or a copy of variable data, else the reason."""
    if node.op == "slice" and min(node.attrs["strides"], default=1) < 1:
        return f"strides {node.attrs['strides']}; need positive ones"
    if node.op == "reshape" and not same(product(node.shape), product(node.operands[0].shape)):
        # A symbol of the result may stand for a number that only the importer's checks know.
        shapes = f"{list(node.operands[0].shape)} to {list(node.shape)}"
        return f"reshape of {shapes}; need provably as many elements"
    return all_constant(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """Give the result a view of its operand; copy where concat and reshapes need it."""
    descriptor = node.node
    if descriptor.op == "concat":
        _concat(node, builder)
        return
    x = builder.tensor(node.inputs[0])
    if descriptor.op == "permute":
        y = x.permute(tuple(descriptor.attrs["axes"]))
    elif descriptor.op == "slice":
        attrs = descriptor.attrs
        begin = tuple(map(parse_dim, attrs["begin"]))
        y = x.slice(begin, descriptor.shape, tuple(attrs["strides"]))
    elif descriptor.op == "broadcast_to":
        y = x.broadcast_to(descriptor.shape)
    else:
        y = x.reshape(descriptor.shape) or builder.dense(x).reshape(descriptor.shape)
    builder.place(node.output, y)


def _concat(node: RegionNode, builder: PlanBuilder) -> None:
    shape, axis = node.node.shape, node.node.attrs["axis"]
    parts = [builder.tensor(value) for value in node.inputs]
    order = tuple(range(len(shape)))
    images = len(shape) == 4 and node.node.dtype == "float32"
    if images and any(not part.is_dense() and part.pixel_stride() is not None for part in parts):
        order = CHANNELS_LAST
    if order == CHANNELS_LAST and axis == 1:
        y = builder.joined(node)
    else:
        y = builder.space(shape, order, node.node.dtype)
    begin = 0
    for index, part in enumerate(parts):
        corner = tuple(begin if i == axis else 0 for i in range(len(shape)))
        target = y.slice(corner, part.shape, (1,) * len(shape))
        if part != target:  # else its producer wrote it there
            builder.copy(part, target, f"{node.node.composite} axis {axis}: part {index}")
        begin += part.shape[axis]
    builder.place(node.output, y)
