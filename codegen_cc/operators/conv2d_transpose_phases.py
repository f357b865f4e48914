"""A transposed convolution as convolutions, one for each place of a result in a stride.

    y[s q + p] = sum over the k with (p + pad - k d) % s == 0 of x[q + (p + pad - k d) / s] w[k]

along each axis: results that lie a stride apart have the same taps, and are those of a convolution
of stride 1, which reads the image in place and writes them where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as pairs
from math import gcd, prod

import numpy as np

from codegen_cc.dim import ceil_div, estimate, same
from codegen_cc.node import Node
from codegen_cc.operators.conv2d import place_conv2d
from codegen_cc.operators.conv2d_ways import is_column
from codegen_cc.operators.packing import (
    FLOAT32_PANELS,
    PANEL,
    join_groups,
    pack_conv2d,
    together,
)
from codegen_cc.operators.placement import Placement
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

#: Calls that a transposed convolution may become.
_MOST_CALLS = 64

#: Share of a panel's columns that outputs of a group have to take.
_LEAST_SHARE = 0.6

#: Inputs of a group up to which columns may be empty: with few of them a product's windows take
#: longer to write and read than to compute (4 to 16 inputs, 17x20 and 56x56: 0.7 to 0.85).
_FEW_INPUTS = 16


#: Outputs up to which it pays that pixels share vectors, along rows of so many inputs: 16 -> 3
#: channels take 0.5 of what phases take, 16 -> 8 1.3 (AMD's Zen 4).
_FEW_OUTPUTS, _LONG_ROW = PANEL // 3, 2 * PANEL


@dataclass(frozen=True)
class Phase:
    """The results ``first``, ``first + stride`` ... of an axis.

    ``taps`` are those of the kernel, in the order of the elements that they read: result q reads
    q + begin, and each ``gap`` further.
    """

    first: int
    taps: tuple[int, ...]
    begin: int
    gap: int


def phases(kernel: int, stride: int, dilation: int, pad: int) -> Iterator[Phase]:
    """All of an axis; one may have no taps."""
    for first in range(stride):
        taps = [k for k in range(kernel) if (first + pad - k * dilation) % stride == 0][::-1]
        begin = (first + pad - taps[0] * dilation) // stride if taps else 0
        yield Phase(first, tuple(taps), begin, dilation // gcd(dilation, stride))


def has_all_taps(
    kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: Sequence[int]
) -> bool:
    """Whether every result has a tap, and calls are not too many; the padding begins with that
    before each axis."""
    axes = zip(kernel, strides, dilation, padding[: len(kernel)], strict=True)
    some = all(phase.taps for axis in axes for phase in phases(*axis))
    return some and prod(strides) <= _MOST_CALLS


def node_has_all_taps(node: Node) -> bool:
    """``has_all_taps`` of a transposed convolution."""
    numbers = (node.attrs[name] for name in ("strides", "dilation", "padding"))
    return has_all_taps(node.operand("weight").shape[2:], *numbers)


def prefers_phases(node: Node) -> bool:
    """Whether convolutions are faster than products whose windows are added up.

    Those have all taps of all outputs in their panels, but read and write each window.
    """
    inputs, outputs = node.operand("weight").shape[:2]
    groups = node.attrs["groups"]
    joined = together(outputs, groups) if _joins(node) else 1
    if _share_vectors(node):
        return False
    few = inputs // groups * joined <= _FEW_INPUTS
    return (few or fills_panels(outputs)) and node_has_all_taps(node)


def _share_vectors(node: Node) -> bool:
    """Whether the kernel of windows adds up several pixels in a vector (transposed_planes.h)."""
    if node.attrs["groups"] > 1 or node.operand("weight").shape[1] > _FEW_OUTPUTS:
        return False
    height, width = node.operand("input").shape[2:]
    if same(height, 1) or is_column(node):
        return set(node.attrs["dilation"]) == {1}
    return estimate(width) >= _LONG_ROW


def _joins(node: Node) -> bool:
    """Whether groups may be one, with weights of 0, of which what is infinite makes NaN."""
    return not node.exact


def fills_panels(outputs: int) -> bool:
    """Whether few columns of panels are left over by the outputs of a group."""
    return outputs >= _LEAST_SHARE * ceil_div(outputs, PANEL) * PANEL


def lower_phases(node: RegionNode, builder: PlanBuilder) -> None:
    """Record a call of ``ext_conv2d_apart`` for each place of a result in the strides."""
    placed = place_conv2d(node, builder, node.node.attrs["padding"][:2])
    groups, weight = node.node.attrs["groups"], node.role("weight").data
    if is_column(node.node):
        weight = weight.transpose(0, 1, 3, 2)
    weight = with_inputs_inside(weight[:, :, None], groups)
    if _joins(node.node):
        weight, placed.params.fields["groups"] = join_groups(weight, groups)
    call_phases(builder, placed, weight, {"depth": 1, "planes": 1})
    builder.place(node.output, placed.output)


def with_inputs_inside(weight: np.ndarray, groups: int) -> np.ndarray:
    """[I, O/groups, KD, KH, KW] of a transposed convolution as [O, KD I/groups, KH, KW]."""
    inputs, outputs, depth, *kernel = weight.shape
    split = weight.reshape(groups, inputs // groups, outputs, depth, *kernel)
    turned = split.transpose(0, 2, 3, 1, 4, 5)
    return turned.reshape(groups * outputs, depth * inputs // groups, *kernel)


def call_phases(
    builder: PlanBuilder, placed: Placement, weight: np.ndarray, depth: dict[str, object]
) -> None:
    """Record the calls over images.

    ``placed`` has the parameters of the transposed convolution of images, ``weight`` is that of
    ``with_inputs_inside``, and ``depth`` are the fields of ``ext_apart`` that say which planes of a
    volume are results.
    """
    fields = placed.params.fields
    axes = []
    for a, pad in (("h", "pad_top"), ("w", "pad_left")):
        numbers = (fields[f"{name}_{a}"] for name in ("kernel", "stride", "dilation"))
        axes.append(phases(*numbers, fields[pad]))
    x, y = placed.inputs["input"], placed.output
    for rows, columns in pairs(*axes):
        changed: dict[str, object] = {"pad_top": -rows.begin, "pad_left": -columns.begin}
        at = depth | {"height": fields["out_h"], "width": fields["out_w"]}
        for a, phase in (("h", rows), ("w", columns)):
            stride = fields[f"stride_{a}"]
            at |= {f"first_{a}": phase.first, f"step_{a}": stride}
            changed |= {
                f"kernel_{a}": len(phase.taps),
                f"stride_{a}": 1,
                f"dilation_{a}": phase.gap,
                f"out_{a}": ceil_div(fields[f"out_{a}"] - phase.first, stride),
            }
        params = Struct(placed.params.ctype, fields | changed)
        some = weight[:, :, rows.taps][..., columns.taps]
        packed = builder.constant(pack_conv2d(some, fields["groups"], FLOAT32_PANELS))
        comment = f"{placed.comment}, from ({rows.first}, {columns.first}) on"
        arguments = [params, Struct("ext_apart", at), x, packed, placed.epilogue, y]
        builder.call("ext_conv2d_apart", arguments, y, comment)
