"""Choosing among boxes."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from byoc.frontends.onnx.converters.computed_sizes import is_computed
from byoc.frontends.onnx.converters.node import Node


def non_max_suppression(node: Node) -> relax.Expr:
    """ONNX's defaults for what is left out, and boxes that overlap as much as allowed stay.

    TVM suppresses no box by one whose score is not positive. Where such scores may count, their
    ranks take their place.
    """
    node.inputs.extend([None] * (5 - len(node.inputs)))
    computed = [is_computed(node, place) for place in (2, 3, 4)]
    if any(computed):
        return _with_computed_limits(node, computed)
    limits = []
    for place, default in ((2, 0), (3, 0.0), (4, -np.inf)):
        value = node.constant(place)
        limits.append(default if value is None else value.reshape(-1)[0])
    most, overlap, least = limits
    if least < 0:
        node.inputs[1], least = _ranks(node, relax.const(least, "float32")), 0.0
    # TVM suppresses at the threshold, ONNX above it.
    above = np.nextafter(np.maximum(np.float32(overlap), np.float32(1e-30)), np.float32(np.inf))
    node.inputs[2] = relax.const(np.int64(most), "int64")
    node.inputs[3] = relax.const(np.float32(above), "float32")
    node.inputs[4] = relax.const(np.float32(least), "float32")
    return _rows_found(node, node.tvm())


def _rows_found(node: Node, indices: relax.Expr) -> relax.Expr:
    """The rows that there are; Relax types them as all that there could be."""
    ty = relax.TensorType([tirx.Var("boxes", "int64"), 3], "int64")
    return node.bb.match_cast(node.emit(indices), ty)


def _ranks(node: Node, least: relax.Expr) -> relax.Expr:
    """The scores' places in their order, counted from the last, 0 where they are not above."""
    scores = node.inputs[1]
    order = node.emit(relax.op.argsort(scores, -1, descending=True, dtype="int64"))
    rank = relax.op.astype(relax.op.argsort(order, -1, dtype="int64"), "float32")
    count = relax.const(float(node.shape(1)[-1]), "float32")
    inside = relax.op.greater(scores, least)
    ranks = relax.op.where(inside, relax.op.subtract(count, rank), relax.const(0, "float32"))
    return node.emit(ranks)


def _with_computed_limits(node: Node, computed: list[bool]) -> relax.Expr:
    """All boxes that the thresholds leave, and of each class the first so many."""
    op = relax.op
    scalars = [
        None if node.inputs[i] is None else op.reshape(node.inputs[i], []) for i in (2, 3, 4)
    ]
    most, overlap, least = (None if x is None else node.emit(x) for x in scalars)
    floor = relax.const(-np.inf, "float32")
    scores = _ranks(node, floor if least is None else least)
    above = relax.const(0.0, "float32") if overlap is None else overlap
    boxes = node.inputs[0]
    if node.attrs.get("center_point_box", 0):
        middle, size = (op.strided_slice(boxes, [2], [i], [i + 2]) for i in (0, 2))
        half = node.emit(op.multiply(size, relax.const(0.5, "float32")))
        corners = op.concat([op.subtract(middle, half), op.add(middle, half)], 2)
        boxes = op.take(node.emit(corners), relax.const(np.array([1, 0, 3, 2]), "int64"), 2)
    found = node.emit(
        op.vision.all_class_non_max_suppression(
            node.emit(boxes),
            scores,
            relax.const(node.shape(1)[-1], "int64"),
            node.emit(node.bb.emit_te(_next_above, above)),
            relax.const(0.0, "float32"),
            output_format="onnx",
        )
    )
    chosen = _rows_found(node, relax.TupleGetItem(found, 0))
    limit = relax.const(0, "int64") if most is None else op.astype(most, "int64")
    kept = node.emit(op.less(node.emit(node.bb.emit_te(_places_in_class, chosen)), limit))
    rows = tirx.Var("kept_boxes", "int64")
    at = node.bb.match_cast(node.emit(op.nonzero(kept)), relax.TensorType([1, rows], "int64"))
    return op.take(chosen, node.emit(op.reshape(at, [rows])), 0)


def _next_above(overlap: te.Tensor) -> te.Tensor:
    """The next number: TVM suppresses at the threshold, ONNX above it."""

    def at() -> tirx.Expr:
        least = tirx.max(overlap(), tirx.const(1e-30, "float32"))
        bits = tirx.reinterpret("int32", least) + tirx.const(1, "int32")
        return tirx.reinterpret("float32", bits)

    return te.compute([], at, name="above")


def _places_in_class(chosen: te.Tensor) -> te.Tensor:
    """How many boxes of the same batch and class come before each."""
    before = te.reduce_axis((0, chosen.shape[0]), name="before")

    def at(row: tirx.Var) -> tirx.Expr:
        same = tirx.all(before < row, *(chosen(before, i) == chosen(row, i) for i in (0, 1)))
        return te.sum(tirx.Cast("int64", same), axis=before)

    return te.compute([chosen.shape[0]], at, name="places")
