"""Converters for forms of ONNX operators that TVM's get wrong or refuse.

Each takes ``Node`` and gives a Relax expression; many only write a form as another one that TVM's
converter computes right, and hand over to it. What none can compute it refuses by ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from byoc.frontends.onnx.converters import (
    block_weight,
    columns,
    computed_axes,
    computed_sizes,
    detection,
    determinant,
    einsum,
    elementwise,
    experts,
    fourier,
    old_broadcast,
    quantisation,
    quantised,
    random_numbers,
    recurrent,
    reductions,
    sequences,
    shapes,
    trees,
    unpooling,
    vectoriser,
    windows,
)
from byoc.frontends.onnx.converters.node import Node
from byoc.frontends.onnx.quantised_operators import OF_MICROSOFT, OF_ONNX

#: By operator.
CONVERTERS: dict[str, Callable[[Node], relax.Expr]] = {
    **dict.fromkeys((*OF_ONNX, *OF_MICROSOFT), quantised.qlinear),
    "AffineGrid": computed_sizes.affine_grid,
    "AveragePool": windows.pool,
    "BitCast": elementwise.bit_cast,
    "BitShift": elementwise.bit_shift,
    "Clip": elementwise.clip,
    "Col2Im": columns.col2im,
    "Concat": shapes.concat,
    "ConstantOfShape": shapes.constant_of_shape,
    "ConvInteger": quantised.conv_integer,
    "ConvTranspose": windows.conv_transpose,
    "CumProd": computed_axes.cum_sum,
    "CumSum": computed_axes.cum_sum,
    "DeformConv": columns.deform_conv,
    "DecisionTrees": trees.decision_trees,
    "DequantizeLinear": quantisation.linear,
    "Det": determinant.det,
    "DFT": fourier.dft,
    "Div": elementwise.div,
    "Dropout": elementwise.dropout,
    "DynamicQuantizeLinear": quantisation.dynamic,
    "DynamicQuantizeLSTM": recurrent.dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": quantised.dynamic_quantize_mat_mul,
    "Einsum": einsum.einsum,
    "Elu": elementwise.elu,
    "ExpertOrder": experts.order,
    "ExpertProduct": experts.product,
    "Expand": shapes.expand,
    "EyeLike": shapes.eye_like,
    "FastGelu": elementwise.fast_gelu,
    "GatherBlockQuantized": block_weight.gather_block_quantised,
    "GatherND": shapes.by_coordinates,
    "GroupNormalization": reductions.group_norm,
    "GRU": recurrent.layer,
    "InstanceNormalization": reductions.instance_norm,
    "IsInf": elementwise.is_inf,
    "LayerNormalization": reductions.layer_norm,
    "LpPool": windows.pool,
    "LRN": windows.local_response,
    "LSTM": recurrent.layer,
    "MatMulIntegerToFloat": quantised.mat_mul_integer_to_float,
    "MatMulBnb4": block_weight.mat_mul_bnb4,
    "MatMulNBits": block_weight.mat_mul_n_bits,
    "Hardmax": reductions.hardmax,
    "Max": elementwise.extreme,
    "MaxPool": unpooling.max_pool,
    "MaxUnpool": unpooling.max_unpool,
    "Min": elementwise.extreme,
    "Mod": elementwise.mod,
    "NonMaxSuppression": detection.non_max_suppression,
    "OneHot": shapes.one_hot,
    "Pad": computed_sizes.pad,
    "Pow": elementwise.power,
    "PRelu": elementwise.prelu,
    "QAttention": quantised.attention,
    "QuantizeLinear": quantisation.linear,
    "RandomNormal": random_numbers.random,
    "RandomNormalLike": random_numbers.random,
    "RandomUniform": random_numbers.random,
    "RandomUniformLike": random_numbers.random,
    "ReduceL1": reductions.reduction,
    "ReduceL2": reductions.reduction,
    "ReduceLogSum": reductions.reduction,
    "ReduceLogSumExp": reductions.reduction,
    "ReduceMax": reductions.reduction,
    "ReduceMean": reductions.reduction,
    "ReduceMin": reductions.reduction,
    "ReduceProd": reductions.reduction,
    "ReduceSum": reductions.reduction,
    "ReduceSumSquare": reductions.reduction,
    "Reshape": computed_sizes.reshape,
    "Resize": shapes.any_resize,
    "RMSNormalization": reductions.rms_norm,
    "RNN": recurrent.layer,
    "RoiAlign": windows.roi_align,
    "Scatter": shapes.scatter,
    "ScatterElements": shapes.scatter_elements,
    "ScatterND": shapes.by_coordinates,
    "Selu": elementwise.elu,
    "SequenceAt": sequences.sequence_at,
    "SequenceInsert": sequences.sequence_insert,
    "Sign": elementwise.sign,
    "Slice": shapes.slice_by_attributes,
    "Split": sequences.split,
    "SplitToSequence": sequences.split_to_sequence,
    "Squeeze": shapes.along_axes,
    "STFT": fourier.stft,
    "TreeCuts": trees.tree_cuts,
    "TfIdfVectorizer": vectoriser.tf_idf,
    "ThresholdedRelu": elementwise.thresholded_relu,
    "TopK": reductions.top_k,
    "Trilu": shapes.trilu,
    "Unsqueeze": shapes.along_axes,
    "Upsample": shapes.any_resize,
}


def convert(node: Node) -> relax.Expr:
    """A node's result, by a converter of ours where there is one."""
    if node.opset < 7 and node.operator in old_broadcast.OPERATORS:
        old_broadcast.align(node)
    own = CONVERTERS.get(node.operator)
    return node.tvm() if own is None else node.emit(own(node))
