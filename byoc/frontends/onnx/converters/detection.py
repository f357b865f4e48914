"""Choosing among boxes."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

from byoc.frontends.onnx.converters.node import Node
from codegen_cc.link.value_sized import NON_MAX_SUPPRESSION


def non_max_suppression(node: Node) -> relax.Expr:
    """The rows (batch, class, box) that stay, by a function that the model brings along.

    TVM's own gives rows for all boxes that there could be, knows no symbolic number of boxes, and
    suppresses no box by one whose score is not positive.
    """
    node.inputs.extend([None] * (5 - len(node.inputs)))
    boxes, scores, most, overlap, least = node.inputs
    operands = [
        boxes,
        scores,
        _limit(node, most, "int64"),
        _limit(node, overlap, "float32"),
        _limit(node, least, "float32"),
    ]
    form = relax.ShapeExpr([int(node.attrs.get("center_point_box", 0)), int(least is not None)])
    rows = relax.TensorType(dtype="int64", ndim=2)
    found = relax.call_pure_packed(NON_MAX_SUPPRESSION, *operands, form, ty_args=[rows])
    ty = relax.TensorType([tirx.Var("boxes", "int64"), 3], "int64")
    return node.bb.match_cast(node.bb.emit(found), ty)


def _limit(node: Node, value: relax.Expr | None, dtype: str) -> relax.Expr:
    """A limit as a tensor of that dtype; 0 where it is left out."""
    if value is None:
        return relax.const(np.array(0, dtype), dtype)
    return value if value.ty.dtype == dtype else node.emit(relax.op.astype(value, dtype))
