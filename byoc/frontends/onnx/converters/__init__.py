"""Converters for forms of ONNX operators that TVM's get wrong or refuse.

Each takes ``Node`` and gives a Relax expression; many only write a form as another one that TVM's
converter computes right, and hand over to it. What none can compute it refuses by ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from byoc.frontends.onnx.converters import (
    block_weight,
    detection,
    elementwise,
    old_broadcast,
    quantisation,
    quantised,
    recurrent,
    reductions,
    sequences,
    shapes,
    windows,
)
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.quantised_operators import OF_MICROSOFT, OF_ONNX

#: By operator.
CONVERTERS: dict[str, Callable[[Node], relax.Expr]] = {
    **dict.fromkeys((*OF_ONNX, *OF_MICROSOFT), quantised.qlinear),
    "AveragePool": windows.pool,
    "BitShift": elementwise.bit_shift,
    "ConstantOfShape": shapes.constant_of_shape,
    "ConvInteger": quantised.conv_integer,
    "ConvTranspose": windows.conv_transpose,
    "DequantizeLinear": quantisation.linear,
    "Div": elementwise.div,
    "Dropout": elementwise.dropout,
    "DynamicQuantizeLinear": quantisation.dynamic,
    "DynamicQuantizeMatMul": quantised.dynamic_quantize_mat_mul,
    "Elu": elementwise.elu,
    "Expand": shapes.expand,
    "GatherND": shapes.by_coordinates,
    "GRU": recurrent.layer,
    "IsInf": elementwise.is_inf,
    "LayerNormalization": reductions.layer_norm,
    "LRN": windows.local_response,
    "LSTM": recurrent.layer,
    "LpPool": windows.pool,
    "MatMulNBits": block_weight.mat_mul_n_bits,
    "MatMulIntegerToFloat": quantised.mat_mul_integer_to_float,
    "MaxPool": windows.pool,
    "Mod": elementwise.mod,
    "NonMaxSuppression": detection.non_max_suppression,
    "OneHot": shapes.one_hot,
    "PRelu": elementwise.prelu,
    "Pow": elementwise.power,
    "QAttention": quantised.attention,
    "QuantizeLinear": quantisation.linear,
    "RMSNormalization": reductions.rms_norm,
    "RNN": recurrent.layer,
    "ReduceL1": reductions.unreduced,
    "ReduceL2": reductions.unreduced,
    "ReduceLogSum": reductions.unreduced,
    "ReduceMax": reductions.of_bool,
    "ReduceMean": reductions.mean,
    "ReduceMin": reductions.of_bool,
    "ReduceSumSquare": reductions.unreduced,
    "Resize": shapes.any_resize,
    "RoiAlign": windows.roi_align,
    "ScatterND": shapes.by_coordinates,
    "Selu": elementwise.elu,
    "SequenceInsert": sequences.sequence_insert,
    "Sign": elementwise.sign,
    "Split": sequences.split,
    "SplitToSequence": sequences.split_to_sequence,
    "ThresholdedRelu": elementwise.thresholded_relu,
    "TopK": reductions.top_k,
    "Upsample": shapes.any_resize,
}


def convert(node: Node) -> relax.Expr:
    """A node's result, by a converter of ours where there is one."""
    if node.opset < 7 and node.operator in old_broadcast.OPERATORS:
        old_broadcast.align(node)
    own = CONVERTERS.get(node.operator)
    return node.tvm() if own is None else node.emit(own(node))
