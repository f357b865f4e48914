"""Convolutions of volumes as convolutions of images, whose kernels and algorithms then do the work.

    kernel [1, h, w]    planes are images: N D of them
    kernel [d, 1, 1]    a volume is an image, whose rows are the planes
    kernel [d, h, 1],   planes across another axis are images, once memory has that axis outside:
           [d, 1, w]    where a kernel of images gains more than the copies cost
    kernel [d, h, w]    sum over d of convolutions of planes, where Winograd's algorithm pays,
                        small groups have a kernel of their own, or inputs are few

In memory, channels last, planes and volumes are images as they lie.  The sum is built up in the
result, volume by volume: planes that the same taps of the depth reach are computed together, tap
after tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np

from codegen_cc.activations import ACTIVATIONS
from codegen_cc.dim import Dim, is_static, product
from codegen_cc.node import Node, Operand, Step
from codegen_cc.operators import conv2d
from codegen_cc.operators.conv2d_ways import is_depthwise, way_of
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.tensors import CHANNELS_LAST, Tensor, strides_for
from codegen_cc.region.graph import RegionNode, Value

#: NCDHW volumes with their channels innermost.
VOLUMES_LAST = (0, 2, 3, 4, 1)

#: The same with another axis of the volume outside, by that axis.
_TURNED = {2: (0, 4, 2, 3, 1), 1: (0, 3, 2, 4, 1)}

#: Floats of a line of taps from which on the kernel for volumes packs them by vectors.
_LONG_LINE = 16

#: The operands that are volumes.
_VOLUMES = ("input", "residual")

#: Calls that a convolution may become.
_MOST_CALLS = 64

#: Inputs up to which the products of planes take less time than packing the taps of all of a
#: volume's lines, which are short (AMD's Zen 4: 0.4 to 0.9 of the time with 1 to 16 of them).
_FEW_INPUTS = 16

Shape = tuple[Dim, ...]


def plane_images(volumes: Shape) -> Shape:
    batch, channels, depth, height, width = volumes
    return (product([batch, depth]), channels, height, width)


def _rows(volumes: Shape) -> Shape:
    batch, channels, depth, height, width = volumes
    return (batch, channels, depth, product([height, width]))


def images_of(node: Node) -> Node | None:
    """The one convolution of images that a convolution of volumes is, or None."""
    found = _images_and_order(node)
    return None if found is None else found[0]


def _images_and_order(node: Node) -> tuple[Node, tuple[int, ...]] | None:
    """The convolution of images, and the order of memory in which the volumes are these."""
    kernel = node.operand("weight").shape[2:]
    strides, padding = node.attrs["strides"], node.attrs["padding"]
    if kernel[0] == strides[0] == 1 and padding[0] == padding[3] == 0:
        return as_images(node, [1, 2], plane_images), VOLUMES_LAST
    in_planes = [*strides[1:], *padding[1:3], *padding[4:]]
    if [*kernel[1:], *in_planes] == [1, 1, 1, 1, 0, 0, 0, 0]:
        return as_images(node, [0, 1], _rows), VOLUMES_LAST
    for other, order in _TURNED.items():
        pads = padding[other] + padding[other + 3]
        if kernel[other] == strides[other] == 1 and pads == 0:
            images = _across(node, other)
            if _worth_turning(node, images):
                return images, order
    return None


def _worth_turning(node: Node, images: Node) -> bool:
    """Whether the images' kernel gains more than copies cost.

    The kernel for volumes packs line by line of taps, short ones float by float.
    """
    way = way_of(images)
    channels, *taps = node.operand("weight").shape[1:]
    longer = images.operand("weight").shape[3] > taps[-1]
    short = channels * taps[-1] < _LONG_LINE
    return bool(way.tile) or way.grouped or is_depthwise(images) or (longer and short)


def _across(node: Node, other: int) -> Node:
    """The node on images of all axes of the volume but one, which counts the images."""
    axes = [axis for axis in range(3) if axis != other]

    def shape(volumes: Shape) -> Shape:
        images = product([volumes[0], volumes[2 + other]])
        return (images, volumes[1], *(volumes[2 + axis] for axis in axes))

    return as_images(node, axes, shape)


def as_images(node: Node, axes: list[int], shape: Callable[[Shape], Shape]) -> Node:
    """The node on images of these axes of the volume."""
    attrs = {name: [node.attrs[name][axis] for axis in axes] for name in ("strides", "dilation")}
    attrs["padding"] = [node.attrs["padding"][side + axis] for side in (0, 3) for axis in axes]

    def of_images(operand: Operand) -> Operand:
        if operand.role == "weight":
            taps = (operand.shape[2 + axis] for axis in axes)
            return replace(operand, shape=(*operand.shape[:2], *taps))
        return replace(operand, shape=shape(operand.shape)) if operand.role in _VOLUMES else operand

    operands = tuple(map(of_images, node.operands))
    attrs |= {"groups": node.attrs["groups"]}
    return replace(node, op="conv2d", operands=operands, shape=shape(node.shape), attrs=attrs)


def lower_images(node: RegionNode, builder: PlanBuilder, images: Node) -> None:
    """Lower the convolution of images, of values that lie where those of the volumes do."""
    inputs: list[Value] = []
    _, order = _images_and_order(node.node) or (images, VOLUMES_LAST)
    for operand, value in zip(images.operands, node.inputs, strict=True):
        image = value
        if operand.role == "weight":
            data = value.data.reshape(operand.shape)
            image = Value(value.name, operand.shape, value.dtype, data)
        elif operand.role in _VOLUMES:
            volume = builder.dense(builder.tensor(value), order)
            image = Value(value.name, operand.shape, value.dtype)
            builder.place(image, dense_view(volume, operand.shape, CHANNELS_LAST))
        inputs.append(image)
    output = Value(node.output.name, images.shape, node.output.dtype)
    conv2d.lower(RegionNode(images, inputs, [output]), builder)
    result = dense_view(builder.tensor(output), node.output.shape, order)
    builder.place(node.output, result)


def dense_view(tensor: Tensor, shape: Shape, order: tuple[int, ...]) -> Tensor:
    """What is dense in memory as a tensor of another shape that is dense in an order."""
    return Tensor(tensor.buffer, shape, strides_for(shape, order), tensor.offset)


# ---------------------------------------------------------------- sums over the depth


def planes_of(node: Node) -> Node | None:
    """The convolution of one volume's planes by one tap of the depth, if the sum is faster."""
    attrs, depth = node.attrs, node.shape[2]
    inputs, *window = node.operand("weight").shape[1:]
    few = inputs <= _FEW_INPUTS and window[0] > 1 and product(window[1:]) > 1
    if (attrs["strides"][0] != 1 and not few) or not is_static([depth, _depth(node)]):
        return None
    if is_depthwise(node):
        return None
    kinds = [step.kind for step in node.epilogue]
    before = kinds[: kinds.index("residual")] if "residual" in kinds else []
    if any(kind in ACTIVATIONS for kind in before):
        return None  # the activation is of the whole sum, to which the residual is added
    runs = list(_runs(node))
    calls = sum(len(taps) for _, _, taps in runs)
    if calls > _MOST_CALLS or not all(taps for _, _, taps in runs):
        return None
    images = as_images(node, [1, 2], lambda volumes: plane_images((1, *volumes[1:])))
    way = way_of(images)
    gains = few or way.tile or way.grouped
    return images if gains and not node.compute else None


def _depth(node: Node) -> Dim:
    return node.operand("input").shape[2]


def _runs(node: Node) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """First plane, planes, and the taps of the depth that read planes of the input for them."""
    inside, taps = _depth(node), node.operand("weight").shape[2]
    stride = node.attrs["strides"][0]

    def reached(plane: int) -> tuple[int, ...]:
        return tuple(t for t in range(taps) if 0 <= _read(node, plane, t) < inside)

    def alike(plane: int) -> tuple[tuple[int, ...], int]:
        return reached(plane), plane if stride > 1 else 0  # planes apart are no images side by side

    for (found, _), members in groupby(range(node.shape[2]), alike):
        planes = list(members)
        yield planes[0], len(planes), found


def _read(node: Node, plane: int, tap: int) -> int:
    """The plane of the input that a tap of the depth reads for a plane of the result."""
    attrs = node.attrs
    stride, step, front = (attrs[name][0] for name in ("strides", "dilation", "padding"))
    return plane * stride - front + tap * step


def lower_planes(node: RegionNode, builder: PlanBuilder, planes: Node) -> None:
    """Sum up the convolutions of planes in the result."""
    descriptor = node.node
    volumes = {
        role: builder.dense(builder.tensor(node.role(role)), VOLUMES_LAST)
        for role in _VOLUMES
        if node.role(role) is not None
    }
    y = builder.space(descriptor.shape, descriptor.dtype, VOLUMES_LAST)
    with builder.repeated(descriptor.shape[0]) as image:
        for first, count, taps in _runs(descriptor):
            for tap in taps:
                begin = _read(descriptor, first, tap)
                here = {"input": _some(volumes["input"], image, begin, count)}
                target = _some(y, image, first, count)
                if tap != taps[0]:
                    here["residual"] = target
                elif "residual" in volumes:
                    here["residual"] = _some(volumes["residual"], image, first, count)
                ends = (tap == taps[0], tap == taps[-1])
                _lower_tap(node, builder, planes, tap, here, target, ends)
    builder.place(node.output, y)


def _some(volumes: Tensor, image: Dim, first: int, count: int) -> Tensor:
    """Neighbouring planes of one volume, as images."""
    _, channels, _, height, width = volumes.shape
    part = volumes.slice((image, 0, first, 0, 0), (1, channels, count, height, width), (1,) * 5)
    return dense_view(part, (count, channels, height, width), CHANNELS_LAST)


def _lower_tap(
    node: RegionNode,
    builder: PlanBuilder,
    planes: Node,
    tap: int,
    tensors: dict[str, Tensor],
    target: Tensor,
    ends: tuple[bool, bool],
) -> None:
    """Add what one tap gives: the first one brings the bias, the last one ends with activations."""
    values: dict[str, Value] = {}
    for role, tensor in tensors.items():
        values[role] = Value(role, tensor.shape, tensor.dtype)
        builder.place(values[role], tensor)
    weight = np.ascontiguousarray(node.role("weight").data[:, :, tap])
    values["weight"] = Value("weight", weight.shape, str(weight.dtype), weight)
    steps = [step for step in planes.epilogue if step.kind == "bias" and ends[0]]
    if steps:
        values["bias"] = node.role("bias")
    if "residual" in values:
        steps.append(Step("residual"))
    if ends[1]:
        steps += [step for step in planes.epilogue if step.kind in ACTIVATIONS]
    operands = tuple(
        Operand(role, value.shape, value.dtype, value.data is not None)
        for role, value in values.items()
    )
    part = replace(planes, operands=operands, shape=target.shape, epilogue=tuple(steps))
    output = Value(node.output.name, target.shape, target.dtype)
    builder.lay(output, target)
    conv2d.lower(RegionNode(part, list(values.values()), [output]), builder)
