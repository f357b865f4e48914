"""Operators that are written out as others of ONNX's domain, by domain and name.

A writer gets a ``Call``, adds nodes to it and gives its results; it returns False for a form that
it is not for, which is refused by name, or left to the body in ONNX's schema.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc.frontends.onnx.bodies import (
    attention,
    contrib,
    contrib_attention,
    contrib_gates,
    contrib_movement,
    experts,
    features,
    inverse,
    linear,
    signal,
    structure,
    trees,
    vectors,
)
from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.quantised_operators import MICROSOFT

#: The domain of ONNX-ML.
ML = "ai.onnx.ml"

#: By domain and operator.
BODIES: dict[tuple[str, str], Callable[[Call], bool]] = {
    ("", "Attention"): attention.attention,
    ("", "Bernoulli"): structure.bernoulli,
    ("", "Celu"): structure.celu,
    ("", "Compress"): structure.compress,
    ("", "DFT"): signal.dft,
    ("", "LpNormalization"): structure.lp_normalization,
    ("", "MeanVarianceNormalization"): structure.mean_variance_normalization,
    ("", "ReverseSequence"): structure.reverse_sequence,
    ("", "STFT"): signal.stft,
    ("", "SimplifiedLayerNormalization"): contrib.simplified_layer_norm,
    ("", "TensorScatter"): structure.tensor_scatter,
    (ML, "ArrayFeatureExtractor"): features.array_feature_extractor,
    (ML, "Binarizer"): features.binarizer,
    (ML, "FeatureVectorizer"): features.feature_vectorizer,
    (ML, "Imputer"): features.imputer,
    (ML, "LabelEncoder"): features.label_encoder,
    (ML, "LinearClassifier"): linear.linear_classifier,
    (ML, "LinearRegressor"): linear.linear_regressor,
    (ML, "Normalizer"): features.normalizer,
    (ML, "OneHotEncoder"): linear.one_hot_encoder,
    (ML, "SVMClassifier"): vectors.svm_classifier,
    (ML, "SVMRegressor"): vectors.svm_regressor,
    (ML, "Scaler"): features.scaler,
    (ML, "TreeEnsemble"): trees.tree_ensemble,
    (ML, "TreeEnsembleClassifier"): trees.tree_ensemble_classifier,
    (ML, "TreeEnsembleRegressor"): trees.tree_ensemble_regressor,
    (MICROSOFT, "Attention"): contrib_attention.attention,
    (MICROSOFT, "BranchwiseRMSNorm"): contrib_gates.branchwise_rms_norm,
    (MICROSOFT, "CDist"): contrib.cdist,
    (MICROSOFT, "ConvTransposeWithDynamicPads"): contrib_movement.conv_transpose,
    (MICROSOFT, "CropAndResize"): contrib_movement.crop_and_resize,
    (MICROSOFT, "DequantizeLinear"): contrib.under_its_own_name,
    (MICROSOFT, "EmbedLayerNormalization"): contrib.embed_layer_norm,
    (MICROSOFT, "EngramGate"): contrib_gates.engram_gate,
    (MICROSOFT, "ExpandDims"): contrib_gates.expand_dims,
    (MICROSOFT, "FusedConv"): contrib.fused_conv,
    (MICROSOFT, "FusedGemm"): contrib.fused_gemm,
    (MICROSOFT, "FusedMatMul"): contrib.fused_mat_mul,
    (MICROSOFT, "GatedAdd"): contrib_gates.gated_add,
    (MICROSOFT, "GatedRMSNorm"): contrib_gates.gated_rms_norm,
    (MICROSOFT, "GatherND"): contrib_movement.gather_nd,
    (MICROSOFT, "GridSample"): contrib_movement.grid_sample,
    (MICROSOFT, "GroupNorm"): contrib.group_norm,
    (MICROSOFT, "GroupQueryAttention"): contrib_attention.group_query_attention,
    (MICROSOFT, "HyperConnectionPostMix"): contrib_gates.hyper_connection_post_mix,
    (MICROSOFT, "HyperConnectionPreMix"): contrib_gates.hyper_connection_pre_mix,
    (MICROSOFT, "Inverse"): inverse.inverse,
    (MICROSOFT, "LinearAttentionGate"): contrib_gates.linear_attention_gate,
    (MICROSOFT, "MoE"): experts.moe,
    (MICROSOFT, "MRotaryEmbedding"): contrib_attention.multimodal_rotary_embedding,
    (MICROSOFT, "MultiHeadAttention"): contrib_attention.multi_head_attention,
    (MICROSOFT, "NGramRepeatBlock"): contrib_movement.n_gram_repeat_block,
    (MICROSOFT, "NhwcMaxPool"): contrib.nhwc_max_pool,
    (MICROSOFT, "Pad"): contrib_movement.pad,
    (MICROSOFT, "QEmbedLayerNormalization"): contrib.quantised_embed_layer_norm,
    (MICROSOFT, "QLinearAveragePool"): contrib.channels_last,
    (MICROSOFT, "QLinearConv"): contrib.channels_last,
    (MICROSOFT, "QLinearGlobalAveragePool"): contrib.channels_last,
    (MICROSOFT, "QMoE"): experts.qmoe,
    (MICROSOFT, "QuantizeLinear"): contrib.under_its_own_name,
    (MICROSOFT, "QuickGelu"): contrib.quick_gelu,
    (MICROSOFT, "Range"): contrib_movement.range_of,
    (MICROSOFT, "RotaryEmbedding"): contrib_attention.rotary_embedding,
    (MICROSOFT, "SampleOp"): contrib_movement.same,
    (MICROSOFT, "ScaledSiLU"): contrib_gates.scaled_silu,
    (MICROSOFT, "SimplifiedLayerNormalization"): contrib.simplified_layer_norm,
    (MICROSOFT, "SkipLayerNormalization"): contrib.skip_layer_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): contrib.skip_simplified_layer_norm,
    (MICROSOFT, "TransposeMatMul"): contrib.fused_mat_mul,
    (MICROSOFT, "UnfoldTensor"): contrib_movement.unfold_tensor,
    (MICROSOFT, "Unique"): contrib_movement.unique,
    (MICROSOFT, "WordConvEmbedding"): contrib_movement.word_conv_embedding,
}
