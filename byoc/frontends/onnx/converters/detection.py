"""Choosing among boxes."""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.node import Node


def non_max_suppression(node: Node) -> relax.Expr:
    """ONNX's defaults for what is left out, and boxes that overlap as much as allowed stay.

    TVM suppresses no box by one whose score is not positive. Where such scores may count, their
    ranks take their place.
    """
    node.inputs.extend([None] * (5 - len(node.inputs)))
    limits = []
    for place, default in ((2, 0), (3, 0.0), (4, -np.inf)):
        value = node.constant(place)
        if value is None and node.inputs[place] is not None:
            raise ValueError("limits that are computed; need constants")
        limits.append(default if value is None else value.reshape(-1)[0])
    most, overlap, least = limits
    if least < 0:
        scores = node.inputs[1]
        order = node.emit(relax.op.argsort(scores, -1, descending=True, dtype="int64"))
        rank = relax.op.astype(relax.op.argsort(order, -1, dtype="int64"), "float32")
        count = relax.const(float(node.shape(1)[-1]), "float32")
        inside = relax.op.greater(scores, relax.const(least, "float32"))
        ranks = relax.op.where(inside, relax.op.subtract(count, rank), relax.const(0, "float32"))
        node.inputs[1], least = node.emit(ranks), 0.0
    # TVM suppresses at the threshold, ONNX above it.
    above = np.nextafter(np.maximum(np.float32(overlap), np.float32(1e-30)), np.float32(np.inf))
    node.inputs[2] = relax.const(np.int64(most), "int64")
    node.inputs[3] = relax.const(np.float32(above), "float32")
    node.inputs[4] = relax.const(np.float32(least), "float32")
    return node.tvm()
