"""Networks that installed packages carry: light ones of onnx, trained ones of rapidocr.

The light ones come without weights: every one is ``ConstantOfShape`` of 0.02.  Equal weights hide
swapped channels and misread layouts, so they get random ones here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from byoc.errors import ModelError

from .zoo import ZooModel

_Readers = dict[str, list[tuple[onnx.NodeProto, int]]]


def light(name: str) -> onnx.ModelProto:
    """A network of the package onnx, such as ``densenet121``, with random weights."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return reseeded(onnx.load(folder / f"light_{name}.onnx"))


def trained(name: str, shape: Sequence[int]) -> onnx.ModelProto:
    """A network of the package rapidocr, such as ``PP-OCRv6_det_small``, for one image size.

    The package is not imported.  Raises ``ModelError`` where it is not installed.
    """
    spec = find_spec("rapidocr")
    if spec is None or spec.origin is None:
        raise ModelError(f"{name} is in the package rapidocr; pip install --no-deps rapidocr")
    model = onnx.load(Path(spec.origin).parent / "models" / f"{name}.onnx")
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = extent
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def reseeded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with random weights, and its logits as a further output.

    A softmax over large logits is all zeros and a one, which would hide errors before it.
    """
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    readers: _Readers = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, index))
    generator = np.random.default_rng(0)
    kept, dropped = [], set()
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = [int(extent) for extent in shapes[node.input[0]]]
        values = _weights(generator, shape, _role(readers, node.output[0]))
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        dropped.add(node.input[0])
    weights = [tensor for tensor in graph.initializer if tensor.name not in dropped]
    inputs = [value for value in graph.input if value.name not in dropped]
    for field, items in ((graph.node, kept), (graph.initializer, weights), (graph.input, inputs)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        del field[:]
        field.extend(copies)
    if graph.node[-1].op_type == "Softmax":
        logits = onnx.helper.make_empty_tensor_value_info(graph.node[-1].input[0])
        shape = graph.output[0].type.tensor_type
        logits.type.tensor_type.CopyFrom(shape)
        graph.output.append(logits)
    return model


def _role(readers: _Readers, name: str) -> str:
    node, index = readers[name][0]
    if node.op_type == "Unsqueeze":
        return _role(readers, node.output[0])
    positive = node.op_type == "Mul" or (node.op_type == "BatchNormalization" and index in (1, 4))
    return "scale" if positive else "shift"


def _weights(generator: np.random.Generator, shape: list[int], role: str) -> np.ndarray:
    """Matrices and filters keep the scale of what passes; scales and variances are near 1."""
    if len(shape) > 1:
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        return (deviation * generator.standard_normal(shape)).astype("float32")
    if role == "scale":
        return generator.uniform(0.5, 1.5, shape).astype("float32")
    return (0.1 * generator.standard_normal(shape)).astype("float32")


CARRIED = {
    model.name: model
    for model in (
        ZooModel("densenet121", "DenseNet-121", partial(light, "densenet121")),
        ZooModel("inception_v2", "Inception v2", partial(light, "inception_v2")),
        ZooModel("shufflenet", "ShuffleNet", partial(light, "shufflenet")),
        ZooModel(
            "ppocr_det",
            "PP-OCR det., 640x640",
            partial(trained, "PP-OCRv6_det_small", [1, 3, 640, 640]),
        ),
        ZooModel(
            "ppocr_rec",
            "PP-OCR rec., 48x320",
            partial(trained, "PP-OCRv6_rec_small", [1, 3, 48, 320]),
        ),
    )
}
