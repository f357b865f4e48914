"""BatchNormalization in training mode, of which only the normalised batch is read.

PyTorch writes standardised weights so, those of NFNets and of ResNetV2 (BiT): the batch is a
weight, and its statistics depend on no input. The node becomes what it computes,

    (x - mean) / sqrt(variance + epsilon) * scale + bias    over all axes but the second

so that what is constant is folded. Nodes whose running statistics are read stay. Before opset 14 a
node trains that has outputs for these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from byoc.frontends.onnx.graph_names import FreshNames, known_as, reads, replace_nodes
from byoc.frontends.onnx.honoured import ONNX_DOMAINS
from byoc.frontends.onnx.loose_models import opsets_of

#: From which opset on a reduction has its axes as an input, and what adds axes.
_AXES_ARE_INPUT, _COLUMNS_BY_INPUT = 18, 13

#: From which opset on an attribute says whether the layer trains.
_MODE_IS_ATTRIBUTE = 14

#: Dtypes whose statistics need no wider one.
_WIDE = (TensorProto.FLOAT, TensorProto.DOUBLE)


def write_batch_statistics(model: onnx.ModelProto) -> None:
    """Write such nodes as the operators that they are made of, in place."""
    graph = model.graph
    opset = max(opsets_of(model), default=0)
    if not any(_trains(node, opset) for node in graph.node):
        return
    counts, names, types = reads(graph), FreshNames(graph), _types(graph)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        kind = types.get(node.input[0]) if _trains(node, opset) else None
        if kind is None or any(counts[name] for name in node.output[1:] if name):
            nodes.append(node)
        else:
            nodes += _Writer(graph, names, node, opset, *kind).nodes()
    replace_nodes(graph, nodes)


def _trains(node: onnx.NodeProto, opset: int) -> bool:
    if node.op_type != "BatchNormalization" or node.domain not in ONNX_DOMAINS:
        return False
    if opset < _MODE_IS_ATTRIBUTE:
        return any(node.output[1:])
    return any(a.name == "training_mode" and a.i for a in node.attribute)


def _types(graph: onnx.GraphProto) -> dict[str, tuple[int, int]]:
    """Dtype and rank of tensors, where they are known and the dtype is wide enough."""
    found = {tensor.name: (tensor.data_type, len(tensor.dims)) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            found[value.name] = tensor.elem_type, len(tensor.shape.dim)
    return {name: kind for name, kind in found.items() if kind[0] in _WIDE and kind[1] >= 2}


class _Writer:
    """Writes one node."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        names: FreshNames,
        node: onnx.NodeProto,
        opset: int,
        dtype: int,
        rank: int,
    ) -> None:
        self._graph, self._names, self._node = graph, names, node
        self._opset, self._dtype, self._rank = opset, dtype, rank
        self._made: list[onnx.NodeProto] = []

    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes in its place, the last of which gives the normalised batch."""
        x, scale, bias = self._node.input[:3]
        epsilon = next((a.f for a in self._node.attribute if a.name == "epsilon"), 1e-5)
        dtype = helper.tensor_dtype_to_np_dtype(self._dtype)
        least = self._constant("epsilon", np.array(epsilon, dtype))
        apart = self._add("Sub", [x, self._mean(x)])
        variance = self._mean(self._add("Mul", [apart, apart]))
        root = self._add("Sqrt", [self._add("Add", [variance, least])])
        scaled = self._add("Mul", [self._add("Div", [apart, root]), self._column(scale)])
        self._add("Add", [scaled, self._column(bias)], self._node.output[0])
        return self._made

    def _mean(self, x: str) -> str:
        axes = [0, *range(2, self._rank)]
        if self._opset < _AXES_ARE_INPUT:
            return self._add("ReduceMean", [x], axes=axes)
        return self._add("ReduceMean", [x, self._constant("axes", np.array(axes))])

    def _column(self, values: str) -> str:
        """One value for each channel, beside the axes behind it."""
        behind = list(range(1, self._rank - 1))
        if not behind:
            return values
        if self._opset < _COLUMNS_BY_INPUT:
            return self._add("Unsqueeze", [values], axes=behind)
        return self._add("Unsqueeze", [values, self._constant("axes", np.array(behind))])

    def _add(self, operator: str, inputs: list[str], result: str = "", **attributes: object) -> str:
        name = known_as(self._node)
        result = result or self._names.fresh(f"{name}_{operator}")
        self._made.append(helper.make_node(operator, inputs, [result], name, **attributes))
        return result

    def _constant(self, wanted: str, values: np.ndarray) -> str:
        name = self._names.fresh(f"{known_as(self._node)}_{wanted}")
        self._graph.initializer.append(numpy_helper.from_array(values, name))
        return name
