"""Data movement: views where possible, else one ``ext_copy``."""

from __future__ import annotations

from dataclasses import replace

from codegen_cc.dim import Dim, estimate, is_static, normal, parse_dim, product, same, symbols
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Operator, operator_of
from codegen_cc.operators.bfloat16 import all_alike
from codegen_cc.operators.dtype_rules import only
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, Shape, sample_node
from codegen_cc.operators.told import unless
from codegen_cc.plan.builder import PlanBuilder, candidate_orders
from codegen_cc.plan.layout_cost import same_order
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor
from codegen_cc.region.graph import Region, RegionNode, Value


def check_dtypes(node: Node) -> str | None:
    """Bytes are bytes: operands and result have one dtype, whichever."""
    return only(node, (node.dtype,)) or only(node, KERNEL_DTYPES)


def supports(node: Node) -> str | None:
    """None if the node is a view or a copy of variable data, else the reason."""
    if node.op == "slice" and min(node.attrs["strides"], default=1) < 1:
        return f"strides {node.attrs['strides']}; need positive ones"
    if node.op == "reshape" and not _may_be_alike(node):
        shapes = f"{list(node.operands[0].shape)} to {list(node.shape)}"
        return f"reshape of {shapes}; need as many elements, or sizes of the operand alone"
    return all_constant(node)


def elements_too_many(node: Node) -> Dim:
    """Elements of a reshape's operand beyond those of its result: a call with any is refused.

    It is 0 where a condition on sizes holds, as of an image that is enlarged to the size of one
    that was rounded otherwise on its way.
    """
    return normal(product(node.operands[0].shape) - product(node.shape))


def _may_be_alike(node: Node) -> bool:
    """Whether calls tell: a symbol of the result alone may stand for a number that nobody knows."""
    rest = elements_too_many(node)
    told = symbols(node.operands[0].shape)
    return rest == 0 if is_static([rest]) else {*symbols(node.shape)} <= {*told}


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """Give the result a view of its operand; concat copies, a reshape puts its copy off."""
    descriptor = node.node
    if descriptor.op == "concat":
        _concat(node, builder)
        return
    value = node.inputs[0]
    pending = builder.pending(value)
    reshape = descriptor.op == "reshape"
    x = pending.source if reshape and pending is not None else builder.tensor(value)
    y = operator_of(descriptor.op).view(descriptor, x)
    if y is None:
        builder.put_off(node.output, x)
    else:
        builder.place(node.output, y)


def _concat(node: RegionNode, builder: PlanBuilder) -> None:
    shape, axis = node.node.shape, node.node.attrs["axis"]
    state = grown_state(builder.region, node)
    if state is not None:
        _append(node, builder, builder.tensor(state))
        return
    order = _order_of_whole(node, builder)
    if order == CHANNELS_LAST and axis == 1 and node.output.is_image:
        y = builder.joined(node)
    else:
        y = builder.space(shape, builder.stored_dtype(node.output), order)
    _pour_parts(node, builder, y, 0)
    builder.place(node.output, y)


def grown_state(region: Region, node: RegionNode) -> Value | None:
    """The state that a concatenation puts rows behind the first ones of; None for others."""
    if not region.states or node.node.op != "concat" or node.node.attrs["axis"] != 0:
        return None
    for reader in region.nodes:
        if reader.node.op != "slice" or reader.output is not node.inputs[0]:
            continue
        whole = zip(node.output.shape, reader.inputs[0].shape, strict=True)
        if _is_beginning(reader) and all(same(a, b) for a, b in whole):
            return reader.inputs[0] if reader.inputs[0] in region.states else None
    return None


def scattered_state(region: Region, node: RegionNode) -> Value | None:
    """The state that updates go into, which new rows were put behind just before; None for others.

    What it was before the updates nobody else may read: they are written where it lies.
    """
    if not region.states or node.node.op != "scatter_nd":
        return None
    data = node.role("data")
    readings = sum(reader.inputs.count(data) for reader in region.nodes)
    if readings != 1 or data in region.outputs:
        return None
    makers = (maker for maker in region.nodes if maker.output is data)
    return next((grown_state(region, maker) for maker in makers), None)


def _is_beginning(node: RegionNode) -> bool:
    """Whether a slice takes the first rows, whole and one after another."""
    begin, steps = node.node.attrs["begin"], node.node.attrs["strides"]
    inner = zip(node.inputs[0].shape[1:], node.output.shape[1:], strict=True)
    starts = all(same(parse_dim(first), 0) for first in begin)
    return starts and set(steps) <= {1} and all(same(a, b) for a, b in inner)


def _append(node: RegionNode, builder: PlanBuilder, state: Tensor) -> None:
    """Write new rows behind those that a state has, in the caller's memory."""
    y = replace(state, shape=node.output.shape)
    _pour_parts(node, builder, y, 1)
    builder.place(node.output, y)


def _pour_parts(node: RegionNode, builder: PlanBuilder, y: Tensor, first: int) -> None:
    """Put the parts of a concatenation from ``first`` on into their places in the whole."""
    axis, begin = node.node.attrs["axis"], 0
    for index, part in enumerate(node.inputs):
        corner = tuple(begin if i == axis else 0 for i in range(len(y.shape)))
        target = y.slice(corner, part.shape, (1,) * len(y.shape))
        if index >= first:
            builder.pour(part, target, f"{node.node.composite} axis {axis}: part {index}")
        begin += part.shape[axis]


def _order_of_whole(node: RegionNode, builder: PlanBuilder) -> tuple[int, ...]:
    """Channels-last if one of the images is; else what costs parts and readers the least."""
    if builder.is_joined(node):
        return CHANNELS_LAST
    parts = [builder.tensor(value) for value in node.inputs if builder.pending(value) is None]
    if node.output.is_image and any(
        not part.is_dense() and part.pixel_stride() is not None for part in parts
    ):
        return CHANNELS_LAST

    def turned(order: tuple[int, ...]) -> int:
        """Elements of parts that lie in another order, whose copies are slower."""
        other = (part for part in parts if not same_order(part.walk(), order, part))
        return sum(estimate(part.size) for part in other)

    return builder.layout_cost.best(node.output, candidate_orders(node.node.shape), turned)


# ---------------------------------------------------------------- the records

_SHAPE: Shape = (4, 32)
_INPUT = {"input": (_SHAPE, REAL)}


def _reads(node: Node) -> tuple[tuple[Dim, Dim], ...]:
    """The first element of each axis that a slice takes, where it takes any, and one past the
    last."""
    begins, steps = map(parse_dim, node.attrs["begin"]), node.attrs["strides"]
    counts = zip(begins, steps, node.shape, strict=True)
    return tuple((begin, begin + (count - 1) * step + 1) for begin, step, count in counts)


def _sliced(node: Node, x: Tensor) -> Tensor:
    begin, steps = tuple(map(parse_dim, node.attrs["begin"])), tuple(node.attrs["strides"])
    return x.slice(begin, node.shape, steps)


_KERNELS = Kernels(lower, check_dtypes, supports, narrow=all_alike)

RESHAPE = Operator(
    "reshape",
    roles=("input",),
    about="to the shape of the result",
    layout=Layout.VIEW,
    view=lambda node, x: x.reshape(node.shape),
    moves=True,
    kernels=_KERNELS,
    differences=lambda node: (elements_too_many(node),),
    samples=lambda: [Sample("", sample_node("reshape", _INPUT, (128,)))],
)

PERMUTE = Operator(
    "permute",
    roles=("input",),
    attributes={"axes": "their order"},
    layout=Layout.VIEW,
    view=lambda node, x: x.permute(tuple(node.attrs["axes"])),
    moves=True,
    facts=Facts(told_by={"axes": ()}),
    kernels=_KERNELS,
    samples=lambda: [Sample("", sample_node("permute", _INPUT, (32, 4), axes=[1, 0]))],
)

_PAIR = {f"input{i}": (_SHAPE, REAL) for i in range(2)}

CONCAT = Operator(
    "concat",
    roles=("input0", "input1"),
    repeats="input",
    attributes={"axis": "one"},
    layout=Layout.FREE,
    moves=True,
    facts=Facts(told_by={"axis": ()}),
    kernels=_KERNELS,
    samples=lambda: [Sample("", sample_node("concat", _PAIR, (8, 32), axis=0))],
)

_BOUNDS = {"begin": [0, 0], "end": [2, 32], "strides": [1, 1]}

SLICE = Operator(
    "slice",
    roles=("input",),
    attributes={"begin": "one per axis", "end": "one per axis", "strides": "one per axis, above 0"},
    layout=Layout.VIEW,
    view=_sliced,
    reads=_reads,
    moves=True,
    facts=Facts(
        told_by={"begin": (), "strides": ()},
        neutral={"begin": unless("begin", 0), "strides": unless("strides", 1)},
    ),
    kernels=_KERNELS,
    samples=lambda: [Sample("", sample_node("slice", _INPUT, (2, 32), **_BOUNDS))],
)

_ROW = {"input": ((1, 32), REAL)}

BROADCAST_TO = Operator(
    "broadcast_to",
    roles=("input",),
    about="to the shape of the result",
    layout=Layout.VIEW,
    view=lambda node, x: x.broadcast_to(node.shape),
    moves=True,
    kernels=_KERNELS,
    samples=lambda: [Sample("", sample_node("broadcast_to", _ROW, _SHAPE))],
)

OPERATORS = (RESHAPE, PERMUTE, CONCAT, SLICE, BROADCAST_TO)
