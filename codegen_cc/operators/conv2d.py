"""conv2d over channels-last images: implicit GEMM, Winograd, kernels for groups or channels.

An implicit GEMM reads the image in place, or packs patches of it first.  Which is faster depends
on the distance of pixels and on the height of a register tile, which each level has its own of, and
the level is chosen when the library is loaded.  So a call says up to which height tiles read in
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from codegen_cc.dim import Dim, is_static, product, same, symbol
from codegen_cc.node import Node, Step
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Number, Operator
from codegen_cc.operators.bfloat16 import (
    BFLOAT16,
    BFLOAT16_PANELS,
    BFLOAT16X3_PANELS,
    in_bfloat16,
    in_parts,
    narrow,
    storage_struct,
)
from codegen_cc.operators.conv2d_ways import (
    Way,
    algorithm,
    algorithms,
    computes,
    is_column,
    is_depthwise,
    is_point,
    own_rows,
    shares_bytes,
    way_of,
)
from codegen_cc.operators.conv2d_weights import packed_weight
from codegen_cc.operators.dtype_rules import c_dtype
from codegen_cc.operators.epilogue import (
    QUANTISED_EPILOGUE,
    activation_struct,
    epilogue_struct,
)
from codegen_cc.operators.image_facts import (
    FAR_SIDES,
    IMAGE_NEUTRAL,
    IMAGE_TOLD,
    convolution_fields,
    image_numbers,
)
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import (
    FLOAT32_PANELS,
    join_groups,
    pack_conv2d,
    pack_depthwise,
    pack_grouped,
)
from codegen_cc.operators.placement import Placement
from codegen_cc.operators.requantise import (
    INT8_PANELS,
    REQUANTISE,
    SCALES,
    data_zero_point,
    is_quantised,
    product_dtypes,
    requantise_struct,
    sample_scales,
    unfit_integers,
)
from codegen_cc.operators.sample import REAL, Sample, fused, sample_node
from codegen_cc.plan.borders import without_border
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.plan.prologue import Prologue, channel_vector
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor
from codegen_cc.region.graph import RegionNode, Value


def supports(node: Node) -> str | None:
    """None if a kernel for constant weights can compute the convolution, else the reason."""
    weight = node.operand("weight").shape
    return unfit_weight(node, rank=4) or unfit_integers(node, product(weight[1:]))


def _supports(node: Node) -> str | None:
    """None if the kernels here can compute the convolution, else the reason."""
    weight = node.operand("weight")
    if weight.constant or is_quantised(node) or node.compute:
        return supports(node)
    if not is_static(weight.shape):
        return f"weight {list(weight.shape)} has open sizes; need fixed ones"
    return _unfit_shapes(node, rank=4)


def unfit_weight(node: Node, rank: int) -> str | None:
    """Why a convolution of tensors of that rank cannot be computed, or None."""
    return not_constant(node.operand("weight")) or _unfit_shapes(node, rank)


def _unfit_shapes(node: Node, rank: int) -> str | None:
    data, weight = node.operand("input"), node.operand("weight")
    if len(data.shape) != rank or len(weight.shape) != rank:
        return f"ranks {len(data.shape)} and {len(weight.shape)}; need {rank} and {rank}"
    groups = node.attrs["groups"]
    if weight.shape[1] * groups != data.shape[1] or weight.shape[0] % groups:
        return f"groups={groups} does not divide channels {data.shape[1]} -> {weight.shape[0]}"
    if min(node.attrs["padding"]) < 0:
        return f"padding {node.attrs['padding']}; need no negative padding"
    return None


def pixels(builder: PlanBuilder, tensor: Tensor, gaps: bool = True) -> Tensor:
    """The image channels-last, copied only if it is not, or has gaps that may not be."""
    if gaps and tensor.pixel_stride() is not None:
        return tensor
    return builder.dense(tensor, CHANNELS_LAST)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call, of ``ext_conv2d`` or of its forms for special cases.

    With a prologue it is ``ext_conv2d_prologue``, whatever else could be chosen.  For bfloat16 and
    for integers there are kernels of their own.
    """
    if is_quantised(node.node):
        lower_integers(node, builder)
    elif node in builder.prologues:
        lower_with_prologue(node, builder, builder.prologues[node])
    elif in_bfloat16(node.node):
        lower_bfloat16(node, builder)
    elif in_parts(node.node):
        weight, attrs = node.role("weight").data, node.node.attrs
        packed = builder.constant(pack_conv2d(weight, attrs["groups"], BFLOAT16X3_PANELS))
        call_kernel(node, builder, "ext_conv2d_bf16x3", packed, attrs["padding"][:2])
    else:
        lower_with(node, builder, way_of(node.node))


def lower_integers(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_qconv2d``, ``ext_qdepthwise_conv2d`` or ``ext_qgrouped_conv2d``."""
    descriptor, weight = node.node, node.role("weight").data
    placed = place_conv2d(node, builder, descriptor.attrs["padding"][:2])
    if is_depthwise(descriptor):
        function, packed = "ext_qdepthwise_conv2d", pack_depthwise(weight)
    elif shares_bytes(descriptor):
        function, packed = "ext_qgrouped_conv2d", pack_grouped(weight, INT8_PANELS)
    else:
        function = "ext_qconv2d"
        joined, groups = join_groups(weight, descriptor.attrs["groups"])
        packed = pack_conv2d(joined, groups, INT8_PANELS, whole_taps=True)
        placed.params.fields["groups"] = groups
    x, y = placed.inputs["input"], placed.output
    zero = data_zero_point(node, builder)
    arguments = [placed.params, c_dtype(x.dtype), zero, x, builder.constant(packed)]
    placed.call(node, builder, function, [*arguments, placed.epilogue, y])


def lower_bfloat16(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_conv2d_bf16``."""
    attrs = node.node.attrs
    placed = place_conv2d(node, builder, attrs["padding"][:2])
    packed = pack_conv2d(node.role("weight").data, attrs["groups"], BFLOAT16_PANELS)
    x, y = placed.inputs["input"], placed.output
    if reads_again(node.node) and x.dtype != BFLOAT16 and x.order() is not None:
        x = builder.rounded(x, BFLOAT16)
        placed = replace(placed, inputs={"input": x})
    arguments = [placed.params, placed_storage(placed), x, builder.constant(packed)]
    placed.call(node, builder, "ext_conv2d_bf16", [*arguments, placed.epilogue, y])


def reads_again(node: Node) -> bool:
    """Whether windows overlap, so that a pixel is packed more than once."""
    window, strides = node.operand("weight").shape[2:], node.attrs["strides"]
    return product(window) > product(strides)


def placed_storage(placed: Placement) -> Struct:
    """The ``ext_storage`` of a convolution that has been placed."""
    residual = placed.epilogue.fields.get("residual") if placed.epilogue else None
    return storage_struct(placed.inputs["input"], residual, placed.output)


def lower_with_prologue(node: RegionNode, builder: PlanBuilder, before: Prologue) -> None:
    """The call of a 1 x 1 convolution whose kernel also computes what comes before it."""
    channels = node.role("input").shape[1]
    placed = place_conv2d(node, builder, [0, 0], source=before.source)
    fields: dict[str, object] = {}
    if before.scale is not None and before.scale.data is not None:
        fields["scale"] = builder.constant(channel_vector(before.scale, channels))
    elif before.scale is not None:
        fields["scale"] = builder.dense(builder.tensor(before.scale))
        if not (len(before.scale.shape) < 4 or same(before.scale.shape[0], 1)):
            fields["scale_stride"] = channels
    if before.shift is not None:
        fields["shift"] = builder.constant(channel_vector(before.shift, channels))
    if before.activation is not None:
        fields["activation"] = activation_struct(before.activation)
    placed = replace(placed, comment=f"{placed.comment}; {before} of the input first")
    x, y, epilogue = placed.inputs["input"], placed.output, placed.epilogue
    arguments: list[Argument] = [placed.params, Struct("ext_prologue", fields)]
    narrow = in_bfloat16(node.node)
    if narrow:
        arguments.append(placed_storage(placed))
    panels = BFLOAT16_PANELS if narrow else FLOAT32_PANELS
    weight = builder.constant(pack_conv2d(node.role("weight").data, 1, panels))
    function = "ext_conv2d_bf16_prologue" if narrow else "ext_conv2d_prologue"
    placed.call(node, builder, function, [*arguments, x, weight, epilogue, y])


def lower_with(node: RegionNode, builder: PlanBuilder, way: Way) -> None:
    """The call for a node computed this way."""
    pads, weight = node.node.attrs["padding"][:2], packed_weight(node, builder, way)
    if is_depthwise(node.node):
        call_as_stored(node, builder, "ext_depthwise_conv2d", weight)
    elif way.tile:
        placed = place_conv2d(node, builder, pads)
        x, y, before = placed.inputs["input"], placed.output, [placed.params, way.tile]
        function, storage = "ext_conv2d_winograd", placed_storage(placed)
        if c_dtype(BFLOAT16) in storage.fields.values():
            function, before = f"{function}_bf16", [*before, storage]
        placed.call(node, builder, function, [*before, x, weight, placed.epilogue, y])
    elif way.grouped:
        call_as_stored(node, builder, "ext_grouped_conv2d", weight)
    elif way.dots:
        call_kernel(node, builder, "ext_conv2d_few", weight, pads)
    else:
        call_product(node, builder, weight, pads, way)


def call_as_stored(node: RegionNode, builder: PlanBuilder, function: str, weight: Tensor) -> None:
    """One call of a kernel, or of its form for an image in bfloat16; ``weight`` is packed."""
    placed = place_conv2d(node, builder, node.node.attrs["padding"][:2])
    x, y = placed.inputs["input"], placed.output
    before: list[Argument] = [placed.params]
    if x.dtype == BFLOAT16:
        function, before = f"{function}_bf16", [placed.params, c_dtype(y.dtype)]
    placed.call(node, builder, function, [*before, x, weight, placed.epilogue, y])


def narrow_storage(node: Node) -> Narrow:
    """Products in bfloat16 and Winograd's store all as they like; others widen what they read."""
    if in_bfloat16(node) or (not node.compute and way_of(node).tile):
        return narrow("input", "residual")
    in_vectors = is_depthwise(node) or way_of(node).grouped
    return narrow("input", follows="input") if in_vectors else Narrow()


def call_product(
    node: RegionNode, builder: PlanBuilder, weight: Tensor, pads: list[int], way: Way
) -> None:
    """Record a call of ``ext_conv2d``, and place its result.

    ``weight`` are panels, ``pads`` the padding at the top and the left. What is the own choice for
    pixels side by side is made anew for the pixels as they lie.
    """
    placed = place_conv2d(node, builder, pads)
    if not is_point(node.node):
        rows, pixel = way.in_place_rows, placed.inputs["input"].pixel_stride()
        if rows == own_rows(node.node) and is_static([pixel]):
            rows = own_rows(node.node, pixel)
        placed.params.fields["in_place_rows"] = rows
    x, y = placed.inputs["input"], placed.output
    placed.call(node, builder, "ext_conv2d", [placed.params, x, weight, placed.epilogue, y])


def call_kernel(
    node: RegionNode, builder: PlanBuilder, function: str, weight: Tensor, pads: list[int]
) -> None:
    """Record one call of a kernel that takes ``ext_conv2d_params``, and place its result.

    ``weight`` is in that kernel's format, ``pads`` the padding at the top and the left.
    """
    placed = place_conv2d(node, builder, pads)
    x, y = placed.inputs["input"], placed.output
    placed.call(node, builder, function, [placed.params, x, weight, placed.epilogue, y])


#: Fields of ``ext_conv2d_params`` by the axis of the image.
_OF_AXES = (
    *((f"{name}_h", f"{name}_w") for name in ("in", "out", "kernel", "stride", "dilation")),
    ("pad_top", "pad_left"),
)


def place_conv2d(
    node: RegionNode,
    builder: PlanBuilder,
    pads: list[int],
    gaps: bool = True,
    source: Value | None = None,
) -> Placement:
    """Images channels-last and the ``ext_conv2d_params`` of a convolution or a transposed one.

    ``pads`` is the padding at the top and the left. Without ``gaps``, pixels that do not follow one
    another directly are copied.  ``source`` is what the kernel reads if not the node's input.
    """
    descriptor = node.node
    attrs = descriptor.attrs
    weight = node.role("weight")
    source, pads = without_border(builder.borders.get(node), source or node.role("input"), pads)
    x = pixels(builder, builder.tensor(source), gaps)
    residual, residual_stride = None, 0
    if node.role("residual") is not None:
        residual = pixels(builder, builder.tensor(node.role("residual")), gaps)
        residual_stride = residual.pixel_stride()
    y = builder.image_space(node.output, gaps)
    fields = convolution_fields(attrs, x, y, weight.shape[2:], pads)
    if is_column(descriptor):
        for pair in _OF_AXES:
            fields |= {
                name: fields[other] for name, other in zip(pair, reversed(pair), strict=True)
            }
    if is_quantised(descriptor):
        sums = weight.data.sum(axis=(1, 2, 3), dtype=np.int64)
        epilogue = requantise_struct(node, builder, sums, residual, residual_stride)
    else:
        epilogue = epilogue_struct(node, builder, residual, residual_stride)
    comment = f"{descriptor.composite}: {list(x.shape)} * {list(weight.shape)} -> {list(y.shape)}"
    params = Struct("ext_conv2d_params", fields)
    return Placement(params, {"input": x}, epilogue, y, comment)


# ---------------------------------------------------------------- the record

_NAMES = (
    "batch in_h in_w in_c out_h out_w out_c kernel_h kernel_w stride_h stride_w pad_top pad_left "
    "dilation_h dilation_w groups x_stride y_stride"
)

CONVOLUTION_ATTRIBUTES = {
    "strides": "one per axis of the image",
    "padding": "before each axis, then after each",
    "dilation": "one per axis of the image",
    "groups": "how many",
}


def convolution_macs(node: Node) -> Dim:
    """Every element of the result takes one product for each weight of its filter."""
    return product(node.shape) * product(node.operand("weight").shape[1:])


def _numbers(node: Node) -> dict[str, Number]:
    kernel_h, kernel_w = node.operand("weight").shape[2:]
    return image_numbers(node) | {
        "in_c": node.operand("input").shape[1],
        "out_c": node.shape[1],
        "kernel_h": kernel_h,
        "kernel_w": kernel_w,
        "groups": node.attrs["groups"],
    }


def place_near_sides(node: RegionNode, builder: PlanBuilder) -> Placement:
    """The placement of ``place_conv2d`` with the padding that the node says."""
    return place_conv2d(node, builder, node.node.attrs["padding"][:2])


CONVOLUTION_FACTS = Facts(
    ranks={"input": 4, "weight": 4},
    names=(*_NAMES.split(), *FAR_SIDES),
    numbers=_numbers,
    params="ext_conv2d_params",
    place=place_near_sides,
    told_by={**IMAGE_TOLD, "groups": ("groups",)},
    neutral=IMAGE_NEUTRAL,
)


def convolution_samples(op: str, rank: int) -> Iterator[Sample]:
    """A convolution over ``rank`` axes, its forms, and its epilogues."""

    def node(kernel: int = 3, per_group: int = 16, weight: str = "constant", **attrs) -> Node:
        groups = 16 // per_group
        plain = {"strides": [1] * rank, "padding": [kernel // 2] * (2 * rank)}
        plain |= {"dilation": [1] * rank, "groups": groups}
        if op.endswith("_transpose"):
            plain["output_padding"] = [0] * rank
        image = (2, 16, *(8,) * rank)
        operands = {
            "input": (image, REAL),
            "weight": ((16, per_group, *(kernel,) * rank), weight),
        }
        out = [4 if attrs.get("strides") and not op.endswith("_transpose") else 8] * rank
        return sample_node(op, operands, (2, 16, *out), **plain | attrs)

    yield Sample("", node())
    yield Sample("1x1", node(1))
    yield Sample("strided", node(strides=[2] * rank))
    yield Sample("dilated", node(dilation=[2] * rank, padding=[2] * (2 * rank)))
    yield Sample("grouped", node(per_group=4))
    yield Sample("depthwise", node(per_group=1))
    yield Sample("computed weight", node(weight=REAL))
    n = symbol("n")
    plain = node()
    data = replace(plain.operands[0], shape=(n, *plain.operands[0].shape[1:]))
    shape = (n, *plain.shape[1:])
    symbolic = replace(plain, operands=(data, *plain.operands[1:]), shape=shape)
    yield Sample("symbolic batch", symbolic)
    yield from fused(plain)


def _quantised_samples() -> Iterator[Sample]:
    """A product of integers that gives integers."""
    operands = {"input": ((2, 16, 8, 8), "uint8"), "weight": ((16, 16, 3, 3), "constant int8")}
    operands |= sample_scales("x") | {"w_scale": ((16,), "constant float32")} | sample_scales("y")
    attrs = {"strides": [1, 1], "padding": [1] * 4, "dilation": [1, 1], "groups": 1}
    node = sample_node("conv2d", operands, (2, 16, 8, 8), "uint8", **attrs)
    yield Sample("int8", replace(node, epilogue=(Step(REQUANTISE),)))


CONV2D = Operator(
    "conv2d",
    roles=("input", "weight", *SCALES),
    optional=SCALES,
    about="of 8-bit integers where it has their scales",
    attributes=CONVOLUTION_ATTRIBUTES,
    macs=convolution_macs,
    layout=Layout.IMAGE,
    epilogue=QUANTISED_EPILOGUE,
    channel_axis=1,
    weight_layout="OIHW",
    facts=CONVOLUTION_FACTS,
    kernels=Kernels(
        lower, product_dtypes, _supports, algorithm, algorithms, computes, narrow_storage, border=0
    ),
    samples=lambda: (*convolution_samples("conv2d", 2), *_quantised_samples()),
)

OPERATORS = (CONV2D,)
