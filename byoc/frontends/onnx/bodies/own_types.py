"""The types of what operators of ours give: those that other operators are written out as."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from byoc.frontends.onnx.honoured import DECISION_TREES, EXPERT_ORDER, PAIR_COUPLING, TREE_CUTS

#: Where ``ExpertProduct`` has its matrices, [groups, N, K].
_MATRICES = 2

#: Attributes that say how many columns a result has.
_COLUMNS = {DECISION_TREES: "targets", PAIR_COUPLING: "classes"}


def types_of_own(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, onnx.TypeProto]:
    """The type of an operator's result: as many rows as its first input has."""
    first = types[node.input[0]]
    if node.op_type == EXPERT_ORDER:
        return {node.output[0]: first}
    made = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, None])
    if node.op_type == TREE_CUTS:
        made.tensor_type.shape.CopyFrom(first.tensor_type.shape)
        return {node.output[0]: made}
    rows, columns = made.tensor_type.shape.dim
    rows.CopyFrom(first.tensor_type.shape.dim[0])
    if node.op_type in _COLUMNS:
        named = _COLUMNS[node.op_type]
        columns.dim_value = next(a.i for a in node.attribute if a.name == named)
    else:
        columns.CopyFrom(types[node.input[_MATRICES]].tensor_type.shape.dim[1])
    return {node.output[0]: made}
