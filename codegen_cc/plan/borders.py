"""Borders of images whose widths are symbols, which convolutions and pools pad by themselves.

    conv(concat(zeros, concat(zeros, x, zeros), zeros))

is what padding that depends on the size of the image is imported as. Kernels are told where a
window begins when they are called, so that nothing needs to be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codegen_cc.dim import Dim, normal
from codegen_cc.dtypes import SINGLE
from codegen_cc.operator import operator_of
from codegen_cc.region.graph import Region, RegionNode, Value


@dataclass(frozen=True)
class Border:
    """The image inside, what is above it and left of it, and the nodes that put it there."""

    source: Value
    before: tuple[Dim, Dim]
    nodes: tuple[RegionNode, ...]


def find_borders(
    region: Region,
    private: Mapping[Value, RegionNode],
    is_ours: Callable[[RegionNode], bool],
) -> dict[RegionNode, Border]:
    """The border of each convolution and pool that has one; ``is_ours`` says whose kernels pad.

    ``private`` are the region's ``private_producers``.
    """
    producers = {value: node for node in region.nodes for value in node.outputs}

    def of(reader: RegionNode) -> Border | None:
        node = reader.node
        kernels = operator_of(node.op).kernels
        fill = kernels.border if kernels is not None else None
        if fill is None or node.compute or node.storage or not is_ours(reader):
            return None
        value, before, nodes = reader.role("input"), (0, 0), []
        while value in private and (part := _inside(value, producers, fill)):
            value, (above, left), around = part
            before = (normal(before[0] + above), normal(before[1] + left))
            nodes += [around[0], *(one for one in around[1:] if one.output in private)]
        return Border(value, before, tuple(nodes)) if nodes else None

    found = ((node, of(node)) for node in region.nodes)
    return {node: border for node, border in found if border is not None}


def without_border(
    border: Border | None, image: Value, pads: Sequence[Dim]
) -> tuple[Value, list[Dim]]:
    """What a kernel reads, and all the padding at the top and the left that it does itself."""
    if border is None:
        return image, list(pads)
    return border.source, [normal(a + b) for a, b in zip(pads, border.before, strict=True)]


def _inside(
    value: Value, producers: Mapping[Value, RegionNode], fill: float
) -> tuple[Value, tuple[Dim, Dim], list[RegionNode]] | None:
    """The one image in a concatenation of sides, what is before it, and the nodes around it."""
    joined = producers.get(value)
    if joined is None or joined.node.op != "concat" or value.dtype != SINGLE:
        return None
    axis = joined.node.attrs["axis"]
    borders = [_filled(producers.get(part), fill) for part in joined.inputs]
    if axis not in (2, 3) or borders.count(None) != 1:
        return None
    place = borders.index(None)
    ahead = normal(sum(part.shape[axis] for part in joined.inputs[:place]))
    around = [joined, *(border for border in borders if border is not None)]
    return joined.inputs[place], (ahead, 0) if axis == 2 else (0, ahead), around


def _filled(node: RegionNode | None, fill: float) -> RegionNode | None:
    """A node that repeats that number, or None."""
    if node is None or len(node.inputs) != 1 or not operator_of(node.node.op).moves:
        return None
    (source,) = node.inputs
    alike = source.data is not None and source.data.size == 1 and source.data.flat[0] == fill
    return node if alike else None
