"""The 16-bit dtypes that a network computes in: what engines round, each at places of its own."""

from __future__ import annotations

import onnx

from byoc.frontends.onnx.graph_names import all_graphs
from codegen_cc.dtypes import KERNEL_HALVES

#: Operators whose result is stored as it is, so that nobody rounds it.
_STORED = ("Constant", "Identity")
_HALVES = {getattr(onnx.TensorProto, name.upper()): name for name in KERNEL_HALVES}


def halves_inside(model: onnx.ModelProto) -> frozenset[str]:
    """The 16-bit dtypes among values that nodes compute or read; weights alone do not count.

    Such a value comes from an input, or from what casts a value that is no weight.
    """
    found: set[int] = set()
    weights: set[str] = set()
    for graph in all_graphs(model.graph):
        stored = {tensor.name for tensor in graph.initializer}
        values = [value for value in graph.input if value.name not in stored]
        found.update(v.type.tensor_type.elem_type for v in (*values, *graph.output))
        weights |= stored
        for node in graph.node:
            if node.op_type in _STORED and weights.issuperset(node.input):
                weights.update(node.output)
            elif node.op_type == "Cast" and node.input[0] not in weights:
                found.update(a.i for a in node.attribute if a.name == "to")
    return frozenset(_HALVES[kind] for kind in found if kind in _HALVES)
