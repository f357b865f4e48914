"""Images that are joined along their channels: where in the whole each of them belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_cc.region.graph import RegionNode, Value

Consumers = Mapping[Value, Sequence[RegionNode]]


def concat_of(value: Value, consumers: Consumers) -> tuple[RegionNode, int] | None:
    """The concatenation of channels in which an image can lie, and its first channel there.

    Either the image itself is a part, or it is split and all its pieces are parts that follow one
    another in the same order, as in the blocks of YOLO.  None where neither is so.
    """
    for reader in consumers.get(value, ()):
        if _joins(reader):
            return reader, _first_channel(value, reader)
    pieces = [reader for reader in consumers.get(value, ()) if _is_channel_slice(reader)]
    for piece in pieces:
        for concat in consumers.get(piece.output, ()):
            if not _joins(concat):
                continue
            first = _first_channel(piece.output, concat) - piece.node.attrs["begin"][1]
            inside = [
                (other.node.attrs["begin"][1], other.output.shape[1])
                for other in pieces
                if other.output in concat.inputs
                and _first_channel(other.output, concat) - other.node.attrs["begin"][1] == first
            ]
            if _cover(inside, value.shape[1]):
                return concat, first
    return None


def continuation(concat: RegionNode, consumers: Consumers) -> RegionNode | None:
    """The longest concatenation of channels that begins with the parts of this one, and has more.

    DenseNets write x0, then x0 a1, then x0 a1 a2: each is the beginning of the last.
    """
    parts = concat.inputs
    found = [
        other
        for other in dict.fromkeys(consumers.get(parts[0], ()))
        if len(other.inputs) > len(parts) and other.inputs[: len(parts)] == parts and _joins(other)
    ]
    return max(found, key=lambda other: len(other.inputs), default=None)


def _joins(node: RegionNode) -> bool:
    return node.node.op == "concat" and node.node.attrs["axis"] == 1 and node.output.is_image


def _is_channel_slice(node: RegionNode) -> bool:
    if node.node.op != "slice" or len(node.output.shape) != 4:
        return False
    before, after = node.inputs[0].shape, node.output.shape
    plain = list(node.node.attrs["strides"]) == [1, 1, 1, 1]
    return plain and all(before[axis] == after[axis] for axis in (0, 2, 3))


def _first_channel(part: Value, concat: RegionNode) -> int:
    return sum(other.shape[1] for other in concat.inputs[: concat.inputs.index(part)])


def _cover(ranges: list[tuple[int, int]], channels: int) -> bool:
    """Whether (first, count) ranges cover all channels without meeting."""
    end = 0
    for first, count in sorted(ranges):
        if first != end:
            return False
        end += count
    return end == channels
