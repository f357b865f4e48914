"""Which attributes and inputs of ONNX's operators change no result, as data.

A converter drops without a word what it does not read. So the reads are recorded while a node is
converted (``checked_import``), and whatever was given and not read is refused, unless it has the
default value of the operator's schema or stands in a table here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx
from onnx import defs

from byoc.frontends.onnx.quantised_operators import MICROSOFT, OF_MICROSOFT

#: A domain of ours, and its operators: what others are written out as, where ONNX has none.
OWN = "byoc"
DECISION_TREES, TREE_CUTS, PAIR_COUPLING = "DecisionTrees", "TreeCuts", "PairCoupling"
EXPERT_ORDER, EXPERT_PRODUCT = "ExpertOrder", "ExpertProduct"
SCALED_RESIZE = "ScaledResize"

#: Names of ONNX's own domain.
ONNX_DOMAINS = ("", "ai.onnx")

#: Attributes of operators with converters of ours, with which onnx.shape_inference itself errs: it
#: counts windows that begin in the padding, and loses axes that are smaller than they could be.
INFERENCE_ERRS = {
    "AveragePool": "ceil_mode",
    "ConvTranspose": "output_shape",
    "LpPool": "ceil_mode",
    "MaxPool": "ceil_mode",
}

#: What resizes images. With scales inference errs by one pixel: it rounds less than ONNX Runtime.
RESIZES = ("Resize", "Upsample")

#: How many numbers attributes of operators with windows have for each axis of an image.
WINDOWS = {
    name: {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2}
    for name in ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool")
}

#: Operators of other domains that converters are for; TVM looks at the name alone.
OTHER_DOMAINS = {
    MICROSOFT: frozenset(
        (
            *OF_MICROSOFT,
            "Attention",
            "BiasGelu",
            "DequantizeLinear",
            "DynamicQuantizeLSTM",
            "EmbedLayerNormalization",
            "FastGelu",
            "GatherBlockQuantized",
            "Gelu",
            "MatMulBnb4",
            "MatMulInteger16",
            "MatMulNBits",
            "QuantizeLinear",
            "SkipLayerNormalization",
        )
    ),
    OWN: frozenset(
        (DECISION_TREES, TREE_CUTS, PAIR_COUPLING, EXPERT_ORDER, EXPERT_PRODUCT, SCALED_RESIZE)
    ),
}

#: Operators whose converter is for the other domain's; ONNX has some of that name as well.
ONLY_OF_OTHER_DOMAINS = frozenset(("Attention", *OF_MICROSOFT))

#: Attributes that change no result, by operator ("*" is every one), and why.
ATTRIBUTES_WITHOUT_EFFECT = {
    "*": {"consumed_inputs": "a hint on memory"},
    "BatchNormalization": {"is_test": "training is told by its outputs, of which it has five"},
    "Conv": {"kernel_shape": "the weight has that shape"},
    "ConvTranspose": {"kernel_shape": "the weight has that shape"},
    "Dropout": {
        "is_test": "a compiled model infers",
        "ratio": "inference drops nothing",
        "seed": "the same",
    },
    "Gemm": {"broadcast": "what is added broadcasts by its shape"},
    "GRU": {"output_sequence": "the node has the output, or not"},
    "LSTM": {"output_sequence": "the same"},
    "MaxPool": {"storage_order": "of the second output, which is not converted"},
    "RNN": {"output_sequence": "as of a GRU"},
    "Split": {"num_outputs": "the node has so many outputs"},
}

#: Attributes that change a result only where another one has one of the values.
ATTRIBUTES_WITH_EFFECT_IF = {
    "Resize": {
        "cubic_coeff_a": ("mode", (b"cubic",)),
        "exclude_outside": ("mode", (b"cubic",)),
        "extrapolation_value": ("coordinate_transformation_mode", (b"tf_crop_and_resize",)),
        "nearest_mode": ("mode", (b"nearest",)),
    },
}

#: Inputs, by place, that change no result, and why.
INPUTS_WITHOUT_EFFECT = {"Dropout": {1: "inference drops nothing"}}

#: Inputs, by place, that change a result only where an attribute has one of the values.
INPUTS_WITH_EFFECT_IF = {
    "Resize": {1: ("coordinate_transformation_mode", (b"tf_crop_and_resize",))},
}

#: Inputs, by place, that change no result where they are a constant of this value.
INPUTS_WITHOUT_EFFECT_AS = {"Dropout": {2: False}}

#: Operators whose converter takes a shape where ONNX has a vector of numbers.
# fmt: off
TAKE_SHAPES = frozenset((
    "Cast", "CastLike", "Concat", "ConstantOfShape", "Equal", "Expand", "Gather", "If", "Reshape",
    "Resize", "Shape", "Slice", "Squeeze", "Where",
))
# fmt: on

#: Default values of operators that ``onnx.defs`` does not know (ONNX Runtime's ContribOperators).
OTHER_DEFAULTS: dict[str, dict[str, Any]] = {
    "Attention": {
        "do_rotary": 0,
        "mask_filter_value": -10000.0,
        "past_present_share_buffer": 0,
        "rotary_embedding_dim": 0,
        "unidirectional": 0,
    },
    "EmbedLayerNormalization": {"mask_index_type": 0},
}


#: Operators that ONNX Runtime has in all opsets, and ONNX from one on.
_IN_ALL_OPSETS = {"LayerNormalization": 17}


@cache
def schema_of(op_type: str, opset: int, domain: str = "") -> defs.OpSchema | None:
    """The schema of an operator of ONNX's domain in an opset; None where there is none."""
    if domain not in ONNX_DOMAINS:
        return None
    try:
        return defined(op_type, opset)
    except defs.SchemaError:
        return None


def defined(op_type: str, opset: int, domain: str = "") -> defs.OpSchema:
    """The schema of an operator of any domain. Raises ``SchemaError``."""
    if domain in ONNX_DOMAINS:
        opset, domain = max(opset, _IN_ALL_OPSETS.get(op_type, 0)), ""
    return defs.get_schema(op_type, opset, domain)


def default_of(schema: defs.OpSchema | None, op_type: str, name: str) -> Any:
    """The default value of an attribute; None where it has none."""
    if schema is None:
        return OTHER_DEFAULTS.get(op_type, {}).get(name)
    attribute = schema.attributes.get(name)
    if attribute is None or attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    return onnx.helper.get_attribute_value(attribute.default_value)


def attribute_counts(
    op_type: str, name: str, attributes: dict[str, Any], schema: defs.OpSchema | None
) -> bool:
    """Whether an attribute that nobody read would have changed the result."""
    if attributes[name] == default_of(schema, op_type, name):
        return False
    if any(name in ATTRIBUTES_WITHOUT_EFFECT.get(key, ()) for key in ("*", op_type)):
        return False
    condition = ATTRIBUTES_WITH_EFFECT_IF.get(op_type, {}).get(name)
    return condition is None or _holds(condition, op_type, attributes, schema)


def input_counts(
    op_type: str,
    place: int,
    constant: Any,
    attributes: dict[str, Any],
    schema: defs.OpSchema | None,
) -> bool:
    """Whether an input that nobody read would have changed the result.

    ``constant`` is its value as an array where that is known, else None.
    """
    if place in INPUTS_WITHOUT_EFFECT.get(op_type, ()):
        return False
    harmless = INPUTS_WITHOUT_EFFECT_AS.get(op_type, {}).get(place)
    if harmless is not None and constant is not None and (constant == harmless).all():
        return False
    condition = INPUTS_WITH_EFFECT_IF.get(op_type, {}).get(place)
    return condition is None or _holds(condition, op_type, attributes, schema)


def _holds(
    condition: tuple[str, tuple[Any, ...]],
    op_type: str,
    attributes: dict[str, Any],
    schema: defs.OpSchema | None,
) -> bool:
    name, values = condition
    return attributes.get(name, default_of(schema, op_type, name)) in values
