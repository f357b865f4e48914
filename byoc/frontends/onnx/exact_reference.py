"""ONNX Runtime's sessions for comparison, in which no sum of products of integers saturates.

Where the CPU has no instruction that adds four products of bytes (VNNI and kin), ONNX Runtime
multiplies uint8 by int8 with one that adds two in 16 bits: of 255 * 127 + 255 * 127 = 64770 it
keeps 32767.  It multiplies uint8 by uint8 exactly, and

    w - zero = (w + 128) - (zero + 128),

so that constants of int8 which multiply uint8 become uint8 here.  ONNX Runtime has an option that
does the same (``session.x64quantprecision``): for QDQ forms, and where it may rewrite networks.
It gives weights that have no zero point a single one, which those of several scales cannot have;
these get theirs here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from byoc.frontends.onnx.graph_names import FreshNames
from byoc.frontends.onnx.read_model import read_graph

#: Where ONNX Runtime looks for external data of a model that is no file.
_FOLDER = "session.model_external_initializers_file_folder_path"


@dataclass(frozen=True)
class _Product:
    """Places among a node's inputs: constants and their zero points; what they multiply and its
    zero point, ``None`` where that is always uint8."""

    weights: tuple[tuple[int, int], ...]
    data: tuple[int, int] | None


_PRODUCTS = {
    "ConvInteger": _Product(((1, 3),), (0, 2)),
    "MatMulInteger": _Product(((1, 3),), (0, 2)),
    "MatMulIntegerToFloat": _Product(((1, 5),), (0, 4)),
    "QLinearConv": _Product(((3, 5),), (0, 2)),
    "QLinearMatMul": _Product(((3, 5),), (0, 2)),
    "QGemm": _Product(((3, 5),), (0, 2)),
    "QAttention": _Product(((1, 7),), (0, 6)),
    "DynamicQuantizeMatMul": _Product(((1, 3),), None),
    "DynamicQuantizeLSTM": _Product(((1, 9), (2, 11)), None),
}


def exact_session(
    model: Path | onnx.ModelProto, options: Any = None, folder: Path | None = None
) -> Any:
    """An ``onnxruntime.InferenceSession`` on the CPU, of a model but for constants of int8.

    ``options`` is an ``onnxruntime.SessionOptions``, ``folder`` where external data of a model in
    memory lies. Raises what ONNX Runtime raises, ``ImportError`` where it is missing, and
    ``ModelError`` for a file that is no model.
    """
    import onnxruntime

    options = options or onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    read = read_graph(model)
    exact = without_saturation(read)
    as_it_is = exact is read and isinstance(model, Path)
    source = str(model) if as_it_is else exact.SerializeToString()
    folder = model.parent if isinstance(model, Path) else folder
    if folder is not None:
        options.add_session_config_entry(_FOLDER, str(folder.resolve()))
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def without_saturation(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose constants of int8 that multiply uint8 are uint8; itself if there are none.

    Those which are dequantised by several scales have zero points.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
    found = [
        (index, weight, zero)
        for index, node in enumerate(model.graph.node)
        for weight, zero in _weights(node, stored, inputs)
    ]
    bare = [i for i, node in enumerate(model.graph.node) if _lacks_zeros(node, stored)]
    if not found and not bare:
        return model
    exact = onnx.ModelProto()
    exact.CopyFrom(model)
    names = FreshNames(model.graph)
    for index in bare:
        node = exact.graph.node[index]
        zeros = np.zeros(stored[node.input[1]].dims, np.int8)
        del node.input[2:]
        node.input.append(names.fresh(f"{node.input[0]}_zeros"))
        exact.graph.initializer.append(numpy_helper.from_array(zeros, node.input[2]))
    for index, weight, zero in found:
        node = exact.graph.node[index]
        node.input.extend([""] * (zero + 1 - len(node.input)))
        for place in (weight, zero):
            name = node.input[place]
            array = numpy_helper.to_array(stored[name]) if name else np.int8(0)
            node.input[place] = names.fresh(f"{name}_uint8")
            moved = np.asarray(array.astype(np.int16) + 128, np.uint8)
            exact.graph.initializer.append(numpy_helper.from_array(moved, node.input[place]))
    return exact


def _lacks_zeros(node: onnx.NodeProto, stored: dict[str, TensorProto]) -> bool:
    """Whether a node dequantises a constant of int8 by several scales without zero points."""
    if node.op_type != "DequantizeLinear" or any(node.input[2:]):
        return False
    data, scale = (stored.get(name) for name in node.input[:2])
    known = data is not None and scale is not None
    return known and data.data_type == TensorProto.INT8 and any(n > 1 for n in scale.dims)


def _weights(
    node: onnx.NodeProto, stored: dict[str, TensorProto], inputs: dict[str, int]
) -> Iterator[tuple[int, int]]:
    """Places of constants of int8, and of their zero points, that a node multiplies uint8 by."""
    product = _PRODUCTS.get(node.op_type)
    if product is None:
        return
    names = [*node.input, *[""] * 12]
    if product.data is not None:
        data, zero = (names[place] for place in product.data)
        kind = stored[zero].data_type if zero in stored else None
        # A zero point that is computed comes from DynamicQuantizeLinear, which makes uint8.
        if kind is None and not zero:
            kind = inputs.get(data)
        elif kind is None:
            kind = inputs.get(zero, TensorProto.UINT8)
        if kind != TensorProto.UINT8:
            return
    for weight, zero in product.weights:
        tensor = stored.get(names[weight])
        if tensor is None or tensor.data_type != TensorProto.INT8:
            continue
        parts = [tensor, *([stored[names[zero]]] if names[zero] in stored else [])]
        known = not names[zero] or names[zero] in stored
        if known and all(p.data_location != TensorProto.EXTERNAL for p in parts):
            yield weight, zero
