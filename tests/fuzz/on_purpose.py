"""Which graphs may differ from ONNX Runtime where NaN, infinities or huge values flow.

The table "NaN, infinity and huge values" in docs/reliability.md says what was decided. Here its
rows are operators: a result may differ if one of these is among the nodes that compute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import AttributeProto, NodeProto, TensorProto

#: Operators that add or multiply up what a special value may be among, in an order of their own.
SUMS = (
    *("Sum", "Mean", "CumSum", "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"),
    *("AveragePool", "GlobalAveragePool", "LpPool", "GlobalLpPool", "LRN", "LpNormalization"),
    *("BatchNormalization", "InstanceNormalization", "GroupNormalization"),
    *("LayerNormalization", "RMSNormalization", "MeanVarianceNormalization"),
    *("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceSumSquare", "Softmax", "LogSoftmax"),
)

#: The same of ONNX Runtime's own operators.
MICROSOFT_SUMS = ("FusedMatMul", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")

INTEGERS = frozenset(
    code for name, code in TensorProto.DataType.items() if name.startswith(("INT", "UINT"))
)

#: The first cells of the table's rows, and the operators in graphs. Special graphs are compiled
#: with ``--exact``, and only hold what ONNX Runtime computes: rows of other cases have none.
ROWS: dict[str, tuple[str, ...]] = {
    "ReduceMax, ReduceMin, ArgMax, ArgMin, Hardmax, MaxPool, GlobalMaxPool": (
        *("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Hardmax", "MaxPool", "GlobalMaxPool"),
    ),
    "MaxPool": ("MaxPool",),
    "Clip without an upper bound": ("Clip",),
    "Cast to integers": ("Cast", "CastLike"),
    "QuantizeLinear that TVM keeps (float16, 16 bits), zero point of DynamicQuantizeLinear": (
        *("QuantizeLinear", "DynamicQuantizeLinear"),
    ),
    "TopK": ("TopK",),
    "Where": ("Where",),
    "LayerNormalization": ("LayerNormalization",),
    "all, in float16 and bfloat16 networks": (),
    "Sigmoid, SiLU": ("Sigmoid",),
    "Elu, Selu": ("Elu", "Selu"),
    "sums, products of matrices": (*SUMS, *MICROSOFT_SUMS),
    "sums of products (matrices, convolutions, attention, recurrent layers) on x86": (),
    "products and quotients computed as one": ("Mul", "Div"),
    "Conv over padding": ("Conv", "ConvTranspose"),
    "Resize, GridSample": ("Resize", "Upsample", "GridSample"),
    "DFT, STFT": ("DFT", "STFT"),
    "LSTM, GRU, RNN": ("LSTM", "GRU", "RNN"),
    "3x3 convolution by Winograd": (),
    "sums of convolutions, or of products, of one input": (),
    "ConvTranspose in groups that 16 outputs have room for": (),
    "attention": (),
    "`relax.nn.attention`, causal": (),
    "operators that TVM keeps: of dtypes other than float32, in regions too small to offload": (
        *("Relu", "Clip", "Max", "Min"),
    ),
    "Div, Mod of integers": (),
    "Gather": (),
    "GatherElements, GatherND, ScatterElements, ScatterND": (),
    "`index_tensor`, `index_put`": (),
    "all of these": (),
}


def may_differ(model: onnx.ModelProto, outputs: Iterable[str]) -> bool:
    """Whether each of these outputs has a node among its ancestors that a row is about."""
    listed = {name for names in ROWS.values() for name in names}
    dtypes = _dtypes(model)
    return all(
        any(
            node.op_type in listed and _is_meant(node, dtypes)
            for node in _ancestors(model.graph, output)
        )
        for output in outputs
    )


def _dtypes(model: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def _is_meant(node: NodeProto, dtypes: Mapping[str, int]) -> bool:
    """Whether the form of a node is the one of its row."""
    kept = dtypes.get(node.output[0], TensorProto.FLOAT) != TensorProto.FLOAT
    if node.op_type in ("Relu", "Max", "Min"):
        return kept
    if node.op_type == "Clip" and not kept:
        attributes = {attribute.name for attribute in node.attribute}
        return "max" not in attributes and not (len(node.input) > 2 and node.input[2])
    if node.op_type == "Cast":
        return any(a.name == "to" and a.i in INTEGERS for a in node.attribute)
    return True


def _ancestors(graph: onnx.GraphProto, output: str) -> list[NodeProto]:
    """The nodes that a value is computed by, those of branches among them."""
    needed, found = {output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            inner = _inside(node)
            found += [node, *inner]
            needed.update(name for each in (node, *inner) for name in each.input)
    return found


def _inside(node: NodeProto) -> list[NodeProto]:
    return [
        each
        for attribute in node.attribute
        if attribute.type == AttributeProto.GRAPH
        for child in attribute.g.node
        for each in (child, *_inside(child))
    ]
