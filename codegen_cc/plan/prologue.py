"""Elementwise work before a 1 x 1 convolution that its kernel does as it reads its input.

    conv(activation(x * scale + shift)),   scale and shift per channel

is what a batch norm before a convolution becomes (DenseNet, ResNet v2), and, with a scale that is
computed for each image, the gate of a squeeze-and-excite block.  In passes of their own these read
and write the image once more for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from codegen_cc.dim import same
from codegen_cc.dtypes import KERNEL_HALVES
from codegen_cc.node import Step
from codegen_cc.region.graph import Region, RegionNode, Value


@dataclass(frozen=True)
class Prologue:
    """What is applied to ``source``, and the nodes that did so; absent parts are None."""

    source: Value
    scale: Value | None
    shift: Value | None
    activation: Step | None
    nodes: tuple[RegionNode, ...]

    def __str__(self) -> str:
        parts = ["scale"] * (self.scale is not None) + ["shift"] * (self.shift is not None)
        return " ".join([*parts, self.activation.kind] if self.activation else parts)


def find_prologues(
    region: Region,
    private: Mapping[Value, RegionNode],
    is_ours: Callable[[RegionNode], bool],
) -> dict[RegionNode, Prologue]:
    """The prologue of each convolution that has one; ``is_ours`` says whose kernels have them.

    ``private`` are the region's ``private_producers``.
    """
    finder = _Finder(private, is_ours)
    found = ((node, finder.of(node)) for node in region.nodes)
    return {node: prologue for node, prologue in found if prologue is not None}


class _Finder:
    def __init__(
        self, private: Mapping[Value, RegionNode], is_ours: Callable[[RegionNode], bool]
    ) -> None:
        self._private = private
        self._is_ours = is_ours

    def of(self, conv: RegionNode) -> Prologue | None:
        """Read activation, shift and scale, from the convolution backwards."""
        if not _is_point(conv) or not self._is_ours(conv):
            return None
        value, activation, shift, scale = conv.role("input"), None, None, None
        image = value.shape
        nodes: list[RegionNode] = []
        while (node := self._private_producer(value)) is not None:
            step = _activation(node)
            if step is not None and nodes:
                break  # an activation ends the chain: what is before it is not affine in x
            if node.node.op == "unary":
                source = node.role("input")
            else:
                source, vector = _split(node, image)
                kind = node.node.attrs["kind"]
                if vector is None or scale is not None or (kind == "add" and shift is not None):
                    break
                if kind == "add" and vector.data is not None:
                    shift = vector
                elif kind == "mul":
                    scale = vector
                else:
                    break
            activation = step or activation
            nodes.append(node)
            value = source
        if not nodes:
            return None
        return Prologue(value, scale, shift, activation, tuple(nodes))

    def _private_producer(self, value: Value) -> RegionNode | None:
        """The node that computes a value for one reader alone, if it may be part of a prologue."""
        node = self._private.get(value)
        if node is None:
            return None
        fits = node.node.op == "unary" or (
            node.node.op == "binary" and node.node.attrs["kind"] in ("add", "mul")
        )
        return node if fits and value.is_float and self._is_ours(node) else None


def channel_vector(value: Value, channels: int) -> np.ndarray:
    """A constant of one element, or one for each channel, as [channels]."""
    return np.broadcast_to(value.data.reshape(-1), (channels,)).copy()


def _is_point(node: RegionNode) -> bool:
    if node.node.op != "conv2d" or not node.output.is_float:
        return False
    if node.node.compute and node.node.compute not in KERNEL_HALVES:
        return False
    attrs, weight = node.node.attrs, node.node.operand("weight")
    plain = list(attrs["strides"]) == [1, 1] and attrs["groups"] == 1 and not any(attrs["padding"])
    return plain and weight.constant and tuple(weight.shape[2:]) == (1, 1)


def _activation(node: RegionNode) -> Step | None:
    attrs = node.node.attrs
    if node.node.op == "unary":
        return Step(attrs["kind"], attrs.get("alpha", 0.0), attrs.get("beta", 0.0))
    return node.node.epilogue[0] if node.node.epilogue else None


def _split(node: RegionNode, image: tuple) -> tuple[Value, Value | None]:
    """The image operand of a binary node, and the one that is a vector over channels if one is."""
    lhs, rhs = node.role("lhs"), node.role("rhs")
    for source, other in ((lhs, rhs), (rhs, lhs)):
        whole = len(source.shape) == 4 and all(map(same, source.shape, image))
        if whole and source.data is None and _is_vector(other, image):
            return source, other
    return lhs, None


def _is_vector(value: Value, image: tuple) -> bool:
    """One element, or [C, 1, 1] that may have an axis of images before it."""
    if not value.is_float:
        return False
    if value.data is not None and value.data.size == 1:
        return True
    shape = (1,) * (4 - len(value.shape)) + tuple(value.shape)
    if len(shape) != 4 or not same(shape[1], image[1]) or tuple(shape[2:]) != (1, 1):
        return False
    return same(shape[0], 1) or (value.data is None and same(shape[0], image[0]))
