"""Constants of 4-bit integers as constants of 8 bits with the same values.

TVM has no tensors of 4 bits.  What reads the constants takes 8 bits as well; how many bits a weight
is stored in is decided when it is packed.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.frontends.onnx.graph_names import all_graphs

#: The dtypes, and those that hold the same values.
_WIDER = {
    onnx.TensorProto.INT4: np.int8,
    onnx.TensorProto.UINT4: np.uint8,
}

#: The operator that reads uint8 as two numbers of 4 bits: its tables become int8.
_PACKING = "GatherBlockQuantized"

#: Operators that give the same for the same values, whatever integers hold them.
_READERS = frozenset(
    ("Cast", "DequantizeLinear", _PACKING, "Gather", "Identity", "Reshape", "Transpose")
)


def widen_four_bits(model: onnx.ModelProto) -> None:
    """Rewrite the constants of all graphs of a model, in place, that such operators read."""
    graphs = list(all_graphs(model.graph))
    others = {
        name
        for graph in graphs
        for node in graph.node
        if node.op_type not in _READERS
        for name in node.input
    }
    tables = {
        name
        for graph in graphs
        for node in graph.node
        if node.op_type == _PACKING
        for name in node.input
    }
    for graph in graphs:
        kept = {value.name for value in graph.output} | others
        for tensor in graph.initializer:
            if tensor.name not in kept:
                _widen(tensor, tensor.name in tables)
        for node in graph.node:
            if node.op_type == "Constant" and not kept.intersection(node.output):
                for attribute in node.attribute:
                    if attribute.name == "value":
                        _widen(attribute.t, not tables.isdisjoint(node.output))
        for value in graph.value_info:
            kind = value.type.tensor_type
            if kind.elem_type in _WIDER:
                kind.ClearField("elem_type")


def _widen(tensor: onnx.TensorProto, signed: bool) -> None:
    dtype = _WIDER.get(tensor.data_type)
    if dtype is not None:
        values = numpy_helper.to_array(tensor).astype(np.int8 if signed else dtype)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
