"""Operators on quantised tensors, as data: where their integers, scales and zero points stand.

A quantised tensor is (x - zero_point) * scale.  An operator of the QOperator form computes what one
on floats computes of such tensors, and quantises the result; the schemas are ONNX's and those of
ONNX Runtime's domain com.microsoft.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx

#: ONNX Runtime's domain.
MICROSOFT = "com.microsoft"

#: The first opset in which ONNX's QuantizeLinear and DequantizeLinear have an axis; those of
#: com.microsoft have one with any.
QUANTISED_ALONG_AXES = 13

#: Dtypes of the integers of the QOperator form.
EIGHT_BITS = ("int8", "uint8")


@dataclass(frozen=True)
class Places:
    """Places, among the inputs of a node, of a quantised tensor's parts; None for those it lacks.

    ``axis`` is the one along which scales and zero points may differ; None if all are one number.
    """

    value: int | None
    scale: int | None
    zero_point: int | None
    axis: int | None = None


@dataclass(frozen=True)
class Quantised:
    """An operator: the one on floats whose inputs the operands are, and what its result becomes.

    ``result`` is None where that stays float; ``bias`` is the place of an int32 bias, whose scale
    is the product of the operands'.  ``one_dtype``: all integers are of the same dtype.
    """

    operator: str
    operands: tuple[Places, ...]
    result: Places | None = None
    bias: int | None = None
    one_dtype: bool = False


_FIRST, _SECOND = Places(0, 1, 2), Places(3, 4, 5)
_AFTER_ONE, _AFTER_TWO = Places(None, 3, 4), Places(None, 6, 7)


def _unary(operator: str) -> Quantised:
    return Quantised(operator, (_FIRST,), _AFTER_ONE, one_dtype=True)


def _binary(operator: str) -> Quantised:
    return Quantised(operator, (_FIRST, _SECOND), _AFTER_TWO, one_dtype=True)


#: Operators of ONNX's domain.
OF_ONNX = {
    "QLinearConv": Quantised("Conv", (_FIRST, replace(_SECOND, axis=0)), _AFTER_TWO, bias=8),
    "QLinearMatMul": Quantised(
        "MatMul",
        (replace(_FIRST, axis=-2), replace(_SECOND, axis=-1)),
        replace(_AFTER_TWO, axis=-2),
    ),
}

#: Operators of com.microsoft.
OF_MICROSOFT = {
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax"),
    "QLinearWhere": Quantised(
        "Where", (Places(1, 2, 3), Places(4, 5, 6)), Places(None, 7, 8), one_dtype=True
    ),
    # As many operands as the node has.
    "QLinearConcat": Quantised("Concat", (), Places(None, 0, 1), one_dtype=True),
    "QGemm": Quantised("Gemm", (_FIRST, replace(_SECOND, axis=1)), Places(None, 7, 8), bias=6),
    "QAttention": Quantised("Attention", (Places(0, 3, 6), Places(1, 4, 7, axis=1))),
    "MatMulIntegerToFloat": Quantised("MatMul", (Places(0, 2, 4), Places(1, 3, 5, axis=-1))),
    "DynamicQuantizeMatMul": Quantised("MatMul", (Places(1, 2, 3, axis=-1),)),
}

#: The version of ONNX's LSTM that tells the results of others; it has all of their attributes.
_LSTM_VERSION = 14

#: Operators of com.microsoft whose result is of the first input's type.
LIKE_THE_FIRST = frozenset(("BiasGelu", "FastGelu", "Gelu"))

#: Others whose zero points are checked; they have no scales.
_OTHERS = {
    "ConvInteger": Quantised("Conv", (Places(0, None, 2), Places(1, None, 3, axis=0))),
    "MatMulInteger": Quantised(
        "MatMul", (Places(0, None, 2, axis=-2), Places(1, None, 3, axis=-1))
    ),
}

#: All of them, by operator.
QUANTISED = OF_ONNX | OF_MICROSOFT | _OTHERS


def quantised(op_type: str, inputs: int, attributes: Mapping[str, Any]) -> Quantised | None:
    """The description of an operator with so many inputs; None for one on floats alone."""
    known = QUANTISED.get(op_type)
    if op_type == "QLinearConcat":
        return replace(known, operands=tuple(Places(i, i + 1, i + 2) for i in range(2, inputs, 3)))
    if op_type == "QGemm" and attributes.get("transB", 0):
        data, weight = known.operands
        return replace(known, operands=(data, replace(weight, axis=0)))
    return known


def result_types(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], opset: int
) -> dict[str, onnx.TypeProto]:
    """The type of the result of a com.microsoft operator, which ``onnx.shape_inference`` lacks.

    It has the shape that the operator on floats gives.  Raises what inference raises.
    """
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ("MatMulBnb4", "MatMulNBits"):
        result = onnx.TypeProto()
        result.CopyFrom(types[node.input[0]])
        result.tensor_type.shape.dim[-1].dim_value = attributes["N"]
        return {node.output[0]: result}
    if node.op_type == "GatherBlockQuantized":
        return _gathered_types(node, types, attributes)
    known = quantised(node.op_type, len(node.input), attributes)
    if node.op_type in LIKE_THE_FIRST:
        return {node.output[0]: types[node.input[0]]}
    if node.op_type == "DequantizeLinear":
        return {node.output[0]: _of_type(types[node.input[0]], onnx.TensorProto.FLOAT)}
    if node.op_type == "QuantizeLinear":
        element = onnx.TensorProto.UINT8
        if _given(node, 2):
            element = types[node.input[2]].tensor_type.elem_type
        return {node.output[0]: _of_type(types[node.input[0]], element)}
    if node.op_type == "DynamicQuantizeLSTM":
        return _lstm_types(node, types, attributes)
    if node.op_type not in OF_MICROSOFT:
        return {}
    if known.operator == "Attention":
        return _attention_types(node, types)
    if attributes.pop("channels_last", 0) or attributes.get("ceil_mode", 0):
        return {}  # no converter is for the one, and inference errs with the other
    version = attributes.pop("opset", opset)
    if known.operator == "ReduceMean":
        version = min(version, 13)  # the axes are an attribute
    places = [operand.value for operand in known.operands]
    if known.operator == "Where" or node.op_type == "DynamicQuantizeMatMul":
        places = [0, *places]
    inputs = [node.input[place] for place in places]
    floats = {name: _of_type(types[name], onnx.TensorProto.FLOAT) for name in inputs}
    if known.operator == "Where":
        floats[inputs[0]] = types[inputs[0]]
    schema = onnx.defs.get_schema(known.operator, version, "")
    stand_in = onnx.helper.make_node(known.operator, inputs, node.output[:1], **attributes)
    found = onnx.shape_inference.infer_node_outputs(
        schema, stand_in, floats, opset_imports=[onnx.helper.make_opsetid("", version)]
    )
    element = onnx.TensorProto.FLOAT
    if known.result is not None and _given(node, known.result.scale):
        zero_point = known.result.zero_point
        integers = zero_point if _given(node, zero_point) else known.operands[0].value
        element = types[node.input[integers]].tensor_type.elem_type
    return {name: _of_type(kind, element) for name, kind in found.items()}


def _attention_types(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, onnx.TypeProto]:
    """[B, S, N D] of an input [B, S, I] and a weight [I, 3 N D]."""
    result = _of_type(types[node.input[0]], onnx.TensorProto.FLOAT)
    width = types[node.input[1]].tensor_type.shape.dim[1].dim_value
    if not width or len(result.tensor_type.shape.dim) != 3:
        return {}
    result.tensor_type.shape.dim[2].dim_value = width // 3
    return {node.output[0]: result}


def _lstm_types(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], attributes: Mapping[str, Any]
) -> dict[str, onnx.TypeProto]:
    """Those of an LSTM on floats, which the weights, whose axes are turned, do not decide."""
    data = node.input[0]
    stand_in = onnx.helper.make_node("LSTM", [data, data, data], node.output, **attributes)
    schema = onnx.defs.get_schema("LSTM", _LSTM_VERSION, "")
    imports = [onnx.helper.make_opsetid("", _LSTM_VERSION)]
    floats = {data: types[data]}
    return onnx.shape_inference.infer_node_outputs(schema, stand_in, floats, opset_imports=imports)


def _given(node: onnx.NodeProto, place: int) -> bool:
    return place < len(node.input) and bool(node.input[place])


def _of_type(kind: onnx.TypeProto, element: int) -> onnx.TypeProto:
    """A tensor's type with other elements."""
    found = onnx.TypeProto()
    found.CopyFrom(kind)
    found.tensor_type.elem_type = element
    return found


def _gathered_types(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], attributes: Mapping[str, Any]
) -> dict[str, onnx.TypeProto]:
    """Rows of a table: the extents of the indices, then the columns, two in a byte of 4 bits."""
    table, indices, scale = (types[name].tensor_type for name in node.input[:3])
    result = onnx.TypeProto()
    result.tensor_type.elem_type = scale.elem_type
    result.tensor_type.shape.CopyFrom(indices.shape)
    packed = table.elem_type == onnx.TensorProto.UINT8 and attributes.get("bits", 4) == 4
    columns = table.shape.dim[1].dim_value
    result.tensor_type.shape.dim.add(dim_value=2 * columns if packed else columns)
    return {node.output[0]: result}
