"""conv3d: implicit GEMM over dense channels-last volumes, depthwise, or as images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codegen_cc.dim import Dim
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Number, Operator
from codegen_cc.operators import conv2d_ways
from codegen_cc.operators.conv2d import (
    CONVOLUTION_ATTRIBUTES,
    convolution_macs,
    convolution_samples,
    unfit_weight,
)
from codegen_cc.operators.conv3d_images import (
    VOLUMES_LAST,
    images_of,
    lower_images,
    lower_planes,
    planes_of,
)
from codegen_cc.operators.conv3d_stacked import lower_stack, stack_of
from codegen_cc.operators.dtype_rules import only_single
from codegen_cc.operators.epilogue import FULL_EPILOGUE, epilogue_struct
from codegen_cc.operators.image_facts import FAR_SIDES, IMAGE_NEUTRAL, IMAGE_TOLD
from codegen_cc.operators.packing import FLOAT32_PANELS, pack_conv3d, pack_depthwise
from codegen_cc.operators.placement import Placement
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

#: The way of the kernel for volumes.
_DIRECT = "implicit GEMM"


def supports(node: Node) -> str | None:
    """None if the kernel can compute the convolution, else the reason."""
    return unfit_weight(node, rank=5)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_conv3d`` or ``ext_depthwise_conv3d``, or convolutions of images."""
    images = images_of(node.node)
    if images is not None:
        lower_images(node, builder, images)
        return
    chosen = algorithm(node.node)
    for way in _ways(node.node):
        if way.name == chosen:
            way.lower(node, builder, way.images)
            return
    weight, groups = node.role("weight").data, node.node.attrs["groups"]
    _call(node, builder, "ext_conv3d", pack_conv3d(weight, groups, FLOAT32_PANELS))


def _lower_depthwise(node: RegionNode, builder: PlanBuilder, _: Node) -> None:
    _call(node, builder, "ext_depthwise_conv3d", pack_depthwise(node.role("weight").data))


def _call(node: RegionNode, builder: PlanBuilder, function: str, weight: np.ndarray) -> None:
    packed, placed = builder.constant(weight), place_conv3d(node, builder)
    x, y = placed.inputs["input"], placed.output
    placed.call(node, builder, function, [placed.params, x, packed, placed.epilogue, y])


def place_conv3d(node: RegionNode, builder: PlanBuilder) -> Placement:
    """Dense channels-last volumes, and the ``ext_conv3d_params``."""
    descriptor = node.node
    weight = node.role("weight")
    x = builder.dense(builder.tensor(node.role("input")), VOLUMES_LAST)
    residual = None
    if node.role("residual") is not None:
        residual = builder.dense(builder.tensor(node.role("residual")), VOLUMES_LAST)
    y = builder.space(descriptor.shape, descriptor.dtype, VOLUMES_LAST)
    numbers = _sizes(descriptor, x.shape, weight.shape, y.shape)
    fields: dict[str, object] = {name: numbers[name] for name in _NAMES}
    epilogue = epilogue_struct(node, builder, residual, descriptor.shape[1])
    comment = f"{descriptor.composite}: {list(x.shape)} * {list(weight.shape)} -> {list(y.shape)}"
    return Placement(Struct("ext_conv3d_params", fields), {"input": x}, epilogue, y, comment)


class _Way(NamedTuple):
    """A way that is no implicit GEMM of volumes; ``images`` is the convolution that it is over."""

    name: str
    images: Node
    lower: Callable[[RegionNode, PlanBuilder, Node], None]


def _ways(node: Node) -> Iterator[_Way]:
    """The ways that there are but implicit GEMM, the fastest first."""
    if conv2d_ways.is_depthwise(node):
        yield _Way("depthwise", node, _lower_depthwise)
    for kind, images, by in (
        ("stacked planes", stack_of(node), lower_stack),
        ("planes", planes_of(node), lower_planes),
    ):
        if images is not None:
            name = conv2d_ways.algorithm(replace(images, algorithm=""))
            yield _Way(f"{name} of {kind}", images, by)


def algorithms(node: Node) -> tuple[str, ...]:
    """The names of the ways to compute a node, the own choice first."""
    images = images_of(node)
    if images is not None:
        return conv2d_ways.algorithms(images)
    return (*(way.name for way in _ways(node)), _DIRECT)


def algorithm(node: Node) -> str:
    """The name of the way that the node says or that is chosen."""
    images = images_of(node)
    if images is not None:
        return conv2d_ways.algorithm(images)
    known = algorithms(node)
    return node.algorithm if node.algorithm in known else known[0]


# ---------------------------------------------------------------- the record

#: The fields of ``ext_conv3d_params``.
_NAMES = (
    *("batch", "in_d", "in_h", "in_w", "in_c", "out_d", "out_h", "out_w", "out_c"),
    *("kernel_d", "kernel_h", "kernel_w", "stride_d", "stride_h", "stride_w"),
    *("pad_front", "pad_top", "pad_left", "dilation_d", "dilation_h", "dilation_w", "groups"),
)


def _numbers(node: Node) -> dict[str, Number]:
    return _sizes(node, node.operand("input").shape, node.operand("weight").shape, node.shape)


def _sizes(
    node: Node, x: tuple[Dim, ...], weight: tuple[Dim, ...], y: tuple[Dim, ...]
) -> dict[str, Number]:
    attrs = node.attrs
    numbers: dict[str, Number] = {"batch": x[0], "in_c": x[1], "out_c": y[1]}
    for pattern, values in (
        ("in_{}", x[2:]),
        ("out_{}", y[2:]),
        ("kernel_{}", weight[2:]),
        ("stride_{}", attrs["strides"]),
        ("dilation_{}", attrs["dilation"]),
    ):
        numbers |= {pattern.format(a): v for a, v in zip("dhw", values, strict=True)}
    sides = ("front", "top", "left", "back", "bottom", "right")
    numbers |= {f"pad_{side}": pad for side, pad in zip(sides, attrs["padding"], strict=True)}
    return numbers | {"groups": attrs["groups"]}


CONV3D_FACTS = Facts(
    ranks={"input": 5, "weight": 5},
    names=(*_NAMES, "pad_back", *FAR_SIDES),
    numbers=_numbers,
    params="ext_conv3d_params",
    told_by={
        "batch": IMAGE_TOLD["batch"],
        "strides": ("stride_d stride_h stride_w",),
        "dilation": ("dilation_d dilation_h dilation_w",),
        "padding": ("pad_front pad_top pad_left out_d out_h out_w",),
        "groups": ("groups",),
    },
    neutral=IMAGE_NEUTRAL,
)

CONV3D = Operator(
    "conv3d",
    roles=("input", "weight"),
    attributes=CONVOLUTION_ATTRIBUTES,
    macs=convolution_macs,
    epilogue=FULL_EPILOGUE,
    channel_axis=1,
    weight_layout="OIDHW",
    facts=CONV3D_FACTS,
    kernels=Kernels(lower, only_single, supports, algorithm=algorithm, algorithms=algorithms),
    samples=lambda: convolution_samples("conv3d", 3),
)

OPERATORS = (CONV3D,)
