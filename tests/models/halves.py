"""Float32 networks, written in float16 or bfloat16 as converters write them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from codegen_cc.dtypes import DTYPES

ONNX_TYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest values of a dtype, and its greatest ones in place of what is beyond them."""
    if array.dtype != np.float32:
        return array
    greatest = 65504.0 if dtype == "float16" else 3.3895e38
    return np.clip(array, -greatest, greatest).astype(DTYPES[dtype].numpy)


def _tensor(tensor: TensorProto, dtype: str) -> TensorProto:
    if tensor.data_type != TensorProto.FLOAT:
        return tensor
    values = rounded(numpy_helper.to_array(tensor), dtype)
    packed = np.ascontiguousarray(values).view(np.uint16).tobytes()
    kind = ONNX_TYPES[dtype]
    return TensorProto(name=tensor.name, dims=tensor.dims, data_type=kind, raw_data=packed)


def in_halves(model: onnx.ModelProto, dtype: str, only_weights: bool = False) -> onnx.ModelProto:
    """The network with weights and values of that dtype.

    With ``only_weights``, the weights alone are stored so, and cast to float32 before their use.
    """
    new = onnx.ModelProto()
    new.CopyFrom(model)
    graph = new.graph
    scales = {node.input[2] for node in graph.node if node.op_type == "Resize" and not only_weights}
    stored = [t if t.name in scales else _tensor(t, dtype) for t in graph.initializer]
    nodes = list(graph.node)
    if only_weights:
        casts = []
        for old, tensor in zip(graph.initializer, stored, strict=True):
            if old.data_type == TensorProto.FLOAT:
                tensor.name += "_stored"
                casts.append(
                    onnx.helper.make_node("Cast", [tensor.name], [old.name], to=TensorProto.FLOAT)
                )
        nodes = [*casts, *nodes]
    else:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    attribute.t.CopyFrom(_tensor(attribute.t, dtype))
                if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                    attribute.i = ONNX_TYPES[dtype]
        for value in (*graph.input, *graph.output):
            kind = value.type.tensor_type
            if kind.elem_type == TensorProto.FLOAT:
                kind.elem_type = ONNX_TYPES[dtype]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(stored)
    return new


def rounded_weights(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """The float32 network whose weights are values of that dtype."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    for tensor in new.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = rounded(numpy_helper.to_array(tensor), dtype).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return new
