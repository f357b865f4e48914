"""Constants of dtypes that TVM has no tensors of, or errs with, as wider ones of the same values.

Integers of 2 and of 4 bits become those of 8.  What reads them takes these as well; how many bits a
weight is stored in is decided when it is packed.  What quantises to so few bits, with such a zero
point, quantises to 8 and clips.  Floats of 8 bits and fewer become float32, and a node that scales
them a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.frontends.onnx.graph_names import FreshNames, all_graphs, replace_nodes
from byoc.frontends.onnx.honoured import ONNX_DOMAINS

#: By name, as an older onnx has fewer: 1.16 has no integers of 2 bits and no floats of 4.
_KNOWN = dict(TensorProto.DataType.items())
#: Dtypes of integers, those that hold the same values, and the least and the greatest of these.
_INTEGERS = {
    _KNOWN[name]: held
    for name, held in (
        ("INT2", (np.int8, -2, 1)),
        ("INT4", (np.int8, -8, 7)),
        ("UINT2", (np.uint8, 0, 3)),
        ("UINT4", (np.uint8, 0, 15)),
    )
    if name in _KNOWN
}

_FLOATS = frozenset(
    number for name, number in _KNOWN.items() if name.startswith(("FLOAT4", "FLOAT8"))
)

#: The operator that reads uint8 as two numbers of 4 bits: its tables become int8.
_PACKING = "GatherBlockQuantized"
_QUANTISING, _SCALING = "QuantizeLinear", "DequantizeLinear"

#: Operators that give the same for the same values, whatever integers hold them, and floats.
_READERS = frozenset(("Cast", _SCALING, _PACKING, "Gather", "Identity", "Reshape", "Transpose"))
_FLOAT_READERS = _READERS - {_SCALING, _PACKING}


def widen_narrow_constants(model: onnx.ModelProto) -> None:
    """Rewrite the constants of all graphs of a model, in place, that such operators read."""
    graphs = list(all_graphs(model.graph))
    narrow = {*_INTEGERS, *_FLOATS}
    if not any(tensor.data_type in narrow for _, tensor in _constants(graphs)):
        return
    writer = _Writer(model.graph, dict(_constants(graphs)))
    for graph in graphs:
        replace_nodes(graph, [made for node in graph.node for made in writer.written(node)])
    graphs = list(all_graphs(model.graph))
    results = {value.name for graph in graphs for value in graph.output}
    others = results | _read(graphs, but=_READERS) - writer.zeros
    unscaled = results | _read(graphs, but=_FLOAT_READERS)
    tables = _read(graphs, by=_PACKING)
    for name, tensor in _constants(graphs):
        if tensor.data_type in _FLOATS and name not in unscaled:
            _widen(tensor, np.float32)
        elif tensor.data_type in _INTEGERS and name not in others:
            _widen(tensor, np.int8 if name in tables else _INTEGERS[tensor.data_type][0])
    for graph in graphs:
        for value in graph.value_info:
            if value.type.tensor_type.elem_type in narrow:
                value.type.tensor_type.ClearField("elem_type")


def _constants(
    graphs: Iterable[onnx.GraphProto],
) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Names and tensors of what graphs store; names are those of one value each."""
    for graph in graphs:
        for tensor in graph.initializer:
            yield tensor.name, tensor
        for node in graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        yield node.output[0], attribute.t


def _read(
    graphs: Iterable[onnx.GraphProto], by: str = "", but: frozenset[str] = frozenset()
) -> set[str]:
    """What nodes of an operator read, or of all but some."""
    return {
        name
        for graph in graphs
        for node in graph.node
        if (node.op_type == by if by else node.op_type not in but)
        for name in node.input
    }


def _widen(tensor: onnx.TensorProto, dtype: type) -> None:
    values = numpy_helper.to_array(tensor).astype(dtype)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


class _Writer:
    """Writes nodes that would not do the same with wider constants as those that do.

    ``zeros`` are the zero points of what quantises, once it clips.
    """

    def __init__(self, graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto]) -> None:
        self._names, self._constants = FreshNames(graph), constants
        self._kept = {value.name for part in all_graphs(graph) for value in part.output}
        self._kept |= _read(all_graphs(graph), but=_READERS)
        self.zeros: set[str] = set()

    def written(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The node itself, or nodes in its place."""
        if node.domain in ONNX_DOMAINS and len(node.input) > 1:
            if node.op_type == _SCALING:
                return self._product(node)
            if node.op_type == _QUANTISING:
                return self._clipped(node)
        return [node]

    def _product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Floats times their scales."""
        weight, scale, *zero = (self._constants.get(name) for name in node.input)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if weight is None or weight.data_type not in _FLOATS or scale is None:
            return [node]
        if attributes.get("output_dtype", 0) not in (0, scale.data_type):
            return [node]
        if any(node.input[2:]) and (zero[0] is None or numpy_helper.to_array(zero[0]).any()):
            return [node]
        axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
        factors = _for_each(numpy_helper.to_array(scale), tuple(weight.dims), axis, block)
        name, cast = (self._names.fresh(f"{node.output[0]}_{end}") for end in ("scale", "cast"))
        return [
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(factors)),
            helper.make_node("Cast", node.input[:1], [cast], to=scale.data_type),
            helper.make_node("Mul", [cast, name], node.output, name=node.name),
        ]

    def _clipped(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The numbers of a node that quantises to few bits, in 8 bits."""
        zero = self._constants.get(node.input[2]) if len(node.input) > 2 else None
        if zero is None or zero.data_type not in _INTEGERS or node.output[0] in self._kept:
            return [node]
        self.zeros.add(node.input[2])
        dtype, *ends = _INTEGERS[zero.data_type]
        unclipped, low, high = (
            self._names.fresh(f"{node.output[0]}_{end}") for end in ("wide", "low", "high")
        )
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.output[0] = unclipped
        for attribute in made.attribute:
            if attribute.name == "output_dtype":
                attribute.i = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        limits = [numpy_helper.from_array(np.array(end, dtype)) for end in ends]
        return [
            made,
            helper.make_node("Constant", [], [low], value=limits[0]),
            helper.make_node("Constant", [], [high], value=limits[1]),
            helper.make_node("Clip", [unclipped, low, high], node.output, name=node.name),
        ]


def _for_each(scale: np.ndarray, shape: tuple[int, ...], axis: int, block: int) -> np.ndarray:
    """Scales of a tensor, of its axis or of blocks along it, that broadcast with its elements."""
    if block:
        each = np.repeat(scale, block, axis)
        return np.take(each, range(shape[axis]), axis)
    if scale.size == 1:
        return scale.reshape(())
    axes = [1] * len(shape)
    axes[axis] = scale.size
    return scale.reshape(axes)
