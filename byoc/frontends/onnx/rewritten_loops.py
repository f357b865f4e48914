"""Loops, and what goes backwards, as operators that tell more of what is computed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from byoc.frontends.onnx.around_loop import Around
from byoc.frontends.onnx.bag_loops import bags_at_once
from byoc.frontends.onnx.loop_invariants import (
    counted,
    moved_out,
    products_of_all_rounds,
    without_invariants,
)
from byoc.frontends.onnx.recurrent_loops import recurrent_layer
from byoc.frontends.onnx.side_by_side import side_by_side
from byoc.frontends.onnx.unroll import Nodes, Round, unrolled_loop, unrolled_scan

#: The opset from which a slice may go backwards.
_STEPS = 10


def _loop(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    return (
        without_invariants(node)
        or counted(node, around.constant, around.makers, write)
        or moved_out(node, write)
        or recurrent_layer(node, around, write)
        or bags_at_once(node, around, write)
        or products_of_all_rounds(node, around.shape, write)
        or unrolled_loop(node, around.constant, write)
    )


def _scan(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    return side_by_side(node, around.shape, write) or unrolled_scan(node, around.shape, write)


def _reversal(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    """A ReverseSequence of whole sequences, as a slice: Keras's layers that go backwards."""
    axis = next((a.i for a in node.attribute if a.name == "time_axis"), 0)
    lengths = around.makers.get(node.input[1])
    if write.opset < _STEPS or lengths is None or lengths.op_type != "Expand":
        return None
    if not around.is_extent(lengths.input[0], node.input[0], axis):
        return None
    numbers = (-1, np.iinfo(np.int64).min, axis, -1)
    bounds = [write.constant([number], "int64", "bound") for number in numbers]
    write.nodes.append(helper.make_node("Slice", [node.input[0], *bounds], node.output, node.name))
    return write.nodes


_REWRITERS = {"Loop": _loop, "ReverseSequence": _reversal, "Scan": _scan}

#: The operators that may be rewritten.
REWRITTEN = tuple(_REWRITERS)


def rewritten(node: onnx.NodeProto, around: Around, write: Round) -> Nodes | None:
    """Nodes that give what one of these does; None where it stays."""
    return _REWRITERS[node.op_type](node, around, write)
