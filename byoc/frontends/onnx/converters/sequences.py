"""Parts of tensors, and sequences."""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters import computed_sizes
from byoc.frontends.onnx.converters.node import Node


def split(node: Node) -> relax.Expr:
    """Parts of no extent as well, which ``relax.split`` does not make."""
    if node.opset >= 13 and computed_sizes.is_computed(node, 1):
        return computed_sizes.split(node)
    sizes = node.attrs.get("split") or node.constant(1)
    shape = node.shape()
    if sizes is None or min(sizes) > 0 or shape is None:
        return node.tvm()
    return _parts(node, node.attrs.get("axis", 0) % len(shape), [int(size) for size in sizes])


def split_to_sequence(node: Node) -> relax.Expr:
    """Parts of the given sizes, or of one size but for the last."""
    shape, sizes = node.shape(), node.constant(1)
    axis = node.attrs.get("axis", 0) % len(shape)
    keep = node.attrs.get("keepdims", 1) or node.inputs[1] is not None
    if not isinstance(shape[axis], int) or (sizes is None and node.inputs[1] is not None):
        raise ValueError("sizes that are not known; need constants")
    if sizes is None or sizes.ndim == 0:
        size = 1 if sizes is None else int(sizes)
        sizes = [min(size, shape[axis] - at) for at in range(0, shape[axis], size)]
    parts = _parts(node, axis, [int(size) for size in sizes])
    return parts if keep else relax.Tuple([relax.op.squeeze(part, [axis]) for part in parts])


def _parts(node: Node, axis: int, sizes: list[int]) -> relax.Tuple:
    ends = np.cumsum(sizes).tolist()
    return relax.Tuple(
        [
            node.emit(relax.op.strided_slice(node.inputs[0], [axis], [end - size], [end]))
            for size, end in zip(sizes, ends, strict=True)
        ]
    )


def sequence_insert(node: Node) -> relax.Expr:
    """A place counted from the end is that of the element which the new one comes before."""
    place = node.constant(2)
    if place is not None and place < 0:
        node.inputs[2] = relax.const(place + len(node.inputs[0]), "int64")
    return node.tvm()


def sequence_at(node: Node) -> relax.Expr:
    """The tensor at a constant place."""
    if node.constant(1) is None:
        raise ValueError("a place in a sequence that is computed; need a constant, or a Gather")
    return node.tvm()
