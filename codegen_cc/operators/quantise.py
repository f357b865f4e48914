"""quantize, dynamic_quantize, dequantize: float32 and the integers of 8 bits that stand for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from codegen_cc.dim import Dim, product, same
from codegen_cc.dtypes import KERNEL_BYTES, SINGLE
from codegen_cc.node import Node, Operand, Result
from codegen_cc.operator import Facts, Kernels, Layout, Number, Operator
from codegen_cc.operators.dtype_rules import c_dtype, one_of, operands_only
from codegen_cc.operators.normalisation import adjacent
from codegen_cc.operators.operands import all_constant
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.operators.told import around
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode, Value

PARAMETERS = ("scale", "zero_point")

#: Integers of a tensor that is quantised by its own range; of ONNX's operators, one dtype.
RANGED = "uint8"


def check_dtypes(node: Node) -> str | None:
    """float32 to 8 bits, or from them or int32; zero points have the dtype of the integers."""
    x, scale, zero = (node.operand(role).dtype for role in ("input", *PARAMETERS))
    integers, needed = (
        (node.dtype, KERNEL_BYTES) if node.op == "quantize" else (x, (*KERNEL_BYTES, "int32"))
    )
    if node.op == "quantize":
        reason = one_of("input", x, (SINGLE,)) or one_of("result", node.dtype, needed)
    else:
        reason = one_of("input", x, needed) or one_of("result", node.dtype, (SINGLE,))
    return reason or one_of("scale", scale, (SINGLE,)) or one_of("zero_point", zero, (integers,))


def supports(node: Node) -> str | None:
    """None if the kernels can compute the node, else the reason."""
    shape, axis = node.operand("input").shape, node.attrs["axis"]
    parameters = [node.operand(role) for role in PARAMETERS]
    for operand in parameters:
        if not _is_one(operand) and not same(product(operand.shape), shape[axis]):
            return (
                f"{operand.role} has shape {list(operand.shape)}; need one element, or"
                f" {shape[axis]} as axis {axis} has"
            )
        if per_axis(node) and _is_one(operand) and not operand.constant:
            return f"{operand.role} is one that is computed; need one for each channel"
    return all_constant(node)


def per_axis(node: Node) -> bool:
    """Whether each channel has a scale or a zero point of its own."""
    return not all(_is_one(node.operand(role)) for role in PARAMETERS)


def _is_one(operand: Operand) -> bool:
    return same(product(operand.shape), 1)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_quantize`` or ``ext_dequantize``; gaps between pixels are read across."""
    descriptor = node.node
    axis = descriptor.attrs["axis"] if per_axis(descriptor) else None
    x, extents = _runs(builder, builder.tensor(node.role("input")), axis)
    y = builder.space(x.shape, descriptor.dtype, x.walk())
    channels = 1 if axis is None else x.shape[axis]
    parameters = [_parameter(builder, node.role(role), channels) for role in PARAMETERS]
    integers = y if descriptor.op == "quantize" else x
    names = ("outer", "channels", "inner", "x_stride")
    fields = {"dtype": c_dtype(integers.dtype), **dict(zip(names, extents, strict=True))}
    each = "" if axis is None else f" along axis {axis}"
    comment = f"{descriptor.composite} {x.dtype} to {y.dtype}{each}: {list(x.shape)}"
    arguments = [Struct("ext_quantise_params", fields), x, *parameters, y]
    builder.call(f"ext_{descriptor.op}", arguments, y, comment)
    builder.place(node.output, y)


def _runs(
    builder: PlanBuilder, x: Tensor, axis: int | None
) -> tuple[Tensor, tuple[Dim, Dim, Dim, Dim]]:
    """The tensor as the kernels read it; outer extent, channels, inner extent, outer stride."""
    if x.order() is None and len(x.shape) == 4 and axis in (None, 1):
        stride, channels = x.pixel_stride(), x.shape[1]
        if stride is not None:
            pixels = product((x.shape[0], *x.shape[2:]))
            extents = (1, channels) if axis is None else (channels, 1)
            return x, (pixels, *extents, stride)
    if axis is None:
        x = builder.compact(x)
        return x, (1, 1, x.size, x.size)
    x, outer, channels, inner = adjacent(builder, x, [axis])
    return x, (outer, channels, inner, channels * inner)


def _parameter(builder: PlanBuilder, value: Value, channels: Dim) -> Tensor:
    """A scale or a zero point for each channel."""
    if value.data is None or value.data.size != 1 or channels == 1:
        return builder.dense(builder.tensor(value))
    return builder.constant(np.full(channels, value.data.reshape(()), value.data.dtype))


def check_dynamic_dtypes(node: Node) -> str | None:
    """float32 to uint8, with a scale and a zero point of their dtypes."""
    needed = zip(node.results, (RANGED, SINGLE, RANGED), strict=True)
    reasons = (one_of("result", result.dtype, (dtype,)) for result, dtype in needed)
    return operands_only(node, (SINGLE,)) or next(filter(None, reasons), None)


def lower_dynamic(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_dynamic_quantize``; the integers lie in the order of the operand."""
    x = builder.compact(builder.tensor(node.role("input")))
    order = (x.walk(), None, None)
    tensors = [
        builder.space(value.shape, value.dtype, axes)
        for value, axes in zip(node.outputs, order, strict=True)
    ]
    comment = f"{node.node.composite} {x.dtype} to {RANGED} by its range: {list(x.shape)}"
    builder.call("ext_dynamic_quantize", [x.size, x, *tensors], tensors, comment)
    for value, tensor in zip(node.outputs, tensors, strict=True):
        builder.place(value, tensor)


# ---------------------------------------------------------------- the records


def _numbers(node: Node) -> dict[str, Number]:
    if not per_axis(node):
        return {"outer": 1, "channels": 1, "inner": product(node.shape)}
    extents = around(node, [node.attrs["axis"]])
    return {"outer": extents["outer"], "channels": extents["reduce"], "inner": extents["inner"]}


def _axis_is_neutral(node: Node, told: Collection[str]) -> bool:
    del told
    return not per_axis(node)


def _samples(op: str) -> Iterator[Sample]:
    shape = (1, 16, 8, 8)
    for dtype in KERNEL_BYTES:
        kinds = (REAL, dtype) if op == "quantize" else (dtype, REAL)
        for variant, own in ((dtype, ()), (f"{dtype} by channel", (16,))):
            operands = (
                Operand("input", shape, kinds[0]),
                Operand("scale", own, REAL, True),
                Operand("zero_point", own, dtype, True),
            )
            yield Sample(variant, Node(op, operands, shape, kinds[1], {"axis": 1}))


def _operator(op: str, about: str) -> Operator:
    return Operator(
        op,
        roles=("input", *PARAMETERS),
        attributes={"axis": "of scale and zero_point, where they have more than one element"},
        about=about,
        layout=Layout.KEEP_GAPS,
        facts=Facts(
            names=("outer", "channels", "inner"),
            numbers=_numbers,
            told_by={"axis": ("outer channels inner",)},
            neutral={"axis": _axis_is_neutral},
        ),
        kernels=Kernels(lower, check_dtypes, supports),
        samples=lambda: _samples(op),
    )


def _dynamic_samples() -> Iterator[Sample]:
    node = sample_node("dynamic_quantize", {"input": ((4, 32), REAL)}, (4, 32), RANGED)
    yield Sample("", replace(node, further=(Result((), SINGLE), Result((), RANGED))))


DYNAMIC_QUANTIZE = Operator(
    "dynamic_quantize",
    roles=("input",),
    attributes={},
    results=("integers", *PARAMETERS),
    about="quantize with the scale (high - low) / 255 and the zero point -low / scale; high is the"
    " greatest element or 0, low the least or 0; scale 1 for a tensor of zeros",
    layout=Layout.KEEP,
    facts=Facts(
        names=("size",),
        numbers=lambda node: {"size": product(node.shape)},
    ),
    kernels=Kernels(lower_dynamic, check_dynamic_dtypes),
    samples=_dynamic_samples,
)


OPERATORS = (
    DYNAMIC_QUANTIZE,
    _operator(
        "quantize",
        "input / scale, rounded to the nearest integer, halves to the even one, plus zero_point;"
        " limited to the result's dtype",
    ),
    _operator("dequantize", "(input - zero_point) * scale"),
)
