"""Random numbers of ONNX's operators, the same at every run."""

from __future__ import annotations

import numpy as np
import onnx
from tvm import relax

from byoc.frontends.drawn_numbers import drawn, seed_of
from byoc.frontends.onnx.converters.node import Node


def random(node: Node) -> relax.Expr:
    """RandomNormal, RandomUniform, and those that are like a tensor."""
    attrs, like = node.attrs, node.operator.endswith("Like")
    if like:
        extents = node.inputs[0].ty.shape
        if extents is None:
            raise ValueError("a tensor of unknown shape; need a known one")
        dtype = node.dtype()
        extents = list(extents.values)
    else:
        extents, dtype = list(attrs["shape"]), "float32"
    if "dtype" in attrs:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(attrs["dtype"]))
    if "seed" in attrs:
        seed = int(np.float32(attrs["seed"]).view(np.uint32))
    else:
        seed = seed_of(node.bb.node_at_work)
    normal = "Normal" in node.operator
    first, second = ("mean", "scale") if normal else ("low", "high")
    begin, width = attrs.get(first, 0.0), attrs.get(second, 1.0)
    width = width if normal else width - begin
    numbers = node.emit(node.bb.emit_te(drawn(extents, seed, normal, begin, width)))
    return numbers if dtype == "float32" else relax.op.astype(numbers, dtype)
