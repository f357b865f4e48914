"""Operators that ONNX Runtime's optimisers fuse, written out as what they were fused from.

Their definition is ONNX Runtime's (ContribOperators, domain com.microsoft).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.quantised_operators import QUANTISED_ALONG_AXES

#: Operators from these opsets on.
_LAYER_NORM, _RMS_NORM = 17, 23

#: Has a mean without a beta as well.
_CENTRED = "SkipLayerNormalization"

#: Attributes that an activation in a fused operator has, in the order of its parameters.
_ACTIVATIONS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("min", "max"),
}


def quick_gelu(call: Call) -> bool:
    """x sigmoid(alpha x)"""
    x = call.input(0)
    inner = call.op("Mul", x, call.number(call.attrs.get("alpha", 1.702)))
    call.give(0, call.op("Mul", x, call.op("Sigmoid", inner)))
    return True


def fused_mat_mul(call: Call) -> bool:
    """alpha A' B', where batches may stand behind the rows, and rows and columns be swapped."""
    operands = []
    for place, side in enumerate("AB"):
        shape, name = call.shape(place), call.input(place)
        if shape is None:
            return False
        perm = list(range(len(shape)))
        if call.attrs.get(f"transBatch{side}", 0):
            perm = [*perm[1:-1], 0, perm[-1]]
        if call.attrs.get(f"trans{side}", 0) and len(perm) > 1:
            perm[-2:] = perm[:-3:-1]
        if perm != sorted(perm):
            name = call.transpose(name, *perm)
        operands.append(name)
    product = call.op("MatMul", *operands)
    alpha = call.attrs.get("alpha", 1.0)
    call.give(0, product if alpha == 1.0 else call.op("Mul", product, call.number(alpha)))
    return True


def cdist(call: Call) -> bool:
    """The distance of each row of a to each of b: |a|^2 - 2 a b' + |b|^2, or its square root.

    As ONNX Runtime computes it, which takes what rounding leaves below 0 for 0.
    """
    metric = call.attrs.get("metric", b"sqeuclidean").decode()
    if metric not in ("sqeuclidean", "euclidean"):
        return False
    rows, columns = (
        call.over("ReduceSum", call.op("Mul", name, name), [1], keepdims=1)
        for name in (call.input(0), call.input(1))
    )
    product = call.op("MatMul", call.input(0), call.transpose(call.input(1), 1, 0))
    sides = call.op("Add", rows, call.transpose(columns, 1, 0))
    squares = call.op("Sub", sides, call.op("Mul", product, call.number(2.0)))
    squares = call.op("Max", squares, call.number(0.0))
    call.give(0, squares if metric == "sqeuclidean" else call.op("Sqrt", squares))
    return True


def _activated(call: Call, value: str, parameters: dict[str, float]) -> str | None:
    """The activation that a fused operator ends with; None for one that is not known."""
    name = call.attrs.get("activation", b"").decode()
    if not name:
        return value
    if name not in _ACTIVATIONS or not set(parameters) <= set(_ACTIVATIONS[name]):
        return None
    given = {n: parameters[n] for n in _ACTIVATIONS[name] if n in parameters}
    if name == "Clip" and call.opset >= 11:
        return call.op("Clip", value, *(call.number(bound) for bound in given.values()))
    return call.op(name, value, **given)


def fused_conv(call: Call) -> bool:
    """Conv, an image that is added, an activation."""
    own = ("activation", "activation_params")
    rest = {name: value for name, value in call.attrs.items() if name not in own}
    operands = [call.input(place) for place in range(3)]
    y = call.op("Conv", *(operands if operands[2] else operands[:2]), **rest)
    if call.input(3):
        y = call.op("Add", y, call.input(3))
    names = _ACTIVATIONS.get(call.attrs.get("activation", b"").decode(), ())
    parameters = list(call.attrs.get("activation_params", ()))
    if len(parameters) > len(names):
        return False
    y = _activated(call, y, dict(zip(names, parameters, strict=False)))
    if y is None:
        return False
    call.give(0, y)
    return True


def fused_gemm(call: Call) -> bool:
    """Gemm, an activation."""
    rest = {n: v for n, v in call.attrs.items() if not n.startswith("activation")}
    names = ("alpha", "beta", "gamma")
    given = {n: call.attrs[f"activation_{n}"] for n in names if f"activation_{n}" in call.attrs}
    y = _activated(call, call.op("Gemm", *filter(None, call.node.input), **rest), given)
    if y is None:
        return False
    call.give(0, y)
    return True


def nhwc_max_pool(call: Call) -> bool:
    """MaxPool with the channels last."""
    shape = call.shape()
    if shape is None or call.opset < 12:
        return False
    rank = len(shape)
    image = call.transpose(call.input(0), 0, rank - 1, *range(1, rank - 1))
    call.give(0, call.transpose(call.op("MaxPool", image, **call.attrs), 0, *range(2, rank), 1))
    return True


def group_norm(call: Call) -> bool:
    """GroupNormalization, whose channels may be last, in float32; then SiLU if asked for."""
    shape, groups = call.shape(), call.attrs.get("groups", 0)
    if shape is None or len(shape) < 3 or groups < 1:
        return False
    rank, last = len(shape), call.attrs.get("channels_last", 1)
    x = call.op("Cast", call.input(0), to=onnx.TensorProto.FLOAT)
    if last:
        x = call.transpose(x, 0, rank - 1, *range(1, rank - 1))
    apart = call.reshape(x, 0, groups, -1)
    ones, zeros = (call.constant(np.full(groups, number), np.float32) for number in (1, 0))
    epsilon = call.attrs.get("epsilon", 1e-5)
    normal = call.op("InstanceNormalization", apart, ones, zeros, epsilon=epsilon)
    y = call.op("Reshape", normal, call.op("Shape", x))
    for operator, place in (("Mul", 1), ("Add", 2)):
        vector = call.reshape(call.input(place), -1, *(1,) * (rank - 2))
        y = call.op(operator, y, vector)
    if call.attrs.get("activation", 0):
        y = call.op("Mul", y, call.op("Sigmoid", y))
    if last:
        y = call.transpose(y, 0, *range(2, rank), 1)
    call.give(0, call.op("Cast", y, to=call.element()))
    return True


def channels_last(call: Call) -> bool:
    """QLinearConv, a quantised pool or a mean, whose image may have the channels last."""
    shape = call.shape()
    kind = call.node.op_type
    own = "" if kind == "QLinearConv" else call.node.domain
    rest = {name: value for name, value in call.attrs.items() if name != "channels_last"}
    if not call.attrs.get("channels_last", 0):
        if own:
            return False  # it is converted as it is
        call.give(0, call.op(kind, *call.node.input, **rest))
        return True
    if shape is None:
        return False
    rank = len(shape)
    image = call.transpose(call.input(0), 0, rank - 1, *range(1, rank - 1))
    y = call.op(kind, image, *call.node.input[1:], domain=own, **rest)
    call.give(0, call.transpose(y, 0, *range(2, rank), 1))
    return True


def under_its_own_name(call: Call) -> bool:
    """An operator that ONNX took over as it was: QuantizeLinear, DequantizeLinear.

    At first without an axis: where scales are many, it stays what it is, and has a converter.
    """
    attributes = dict(call.attrs)
    if call.opset < QUANTISED_ALONG_AXES:
        if call.shape(1) not in ([], [1]):
            return False
        attributes.pop("axis", None)
    inputs = list(call.node.input)
    call.give(0, call.op(call.node.op_type, *inputs, **attributes))
    return True


# ---------------------------------------------------------------------- norms


def _normalised(
    call: Call,
    value: tuple[str, int],
    gamma: str,
    beta: str,
    axis: int = -1,
    statistics: tuple[int, int] | None = None,
) -> bool:
    """Layer normalisation, or RMS normalisation without ``beta``, as result 0.

    ``value`` comes with the place of an input of its dtype.  ``statistics`` are the places of mean
    and inverse deviation among the results; those of halves are of float32.
    """
    x, place = value
    epsilon, centred = call.attrs["epsilon"], bool(beta) or call.node.op_type == _CENTRED
    asked = statistics is not None and any(map(call.wants, statistics))
    if centred and call.opset >= _LAYER_NORM and not asked:
        inputs = [x, gamma, beta] if beta else [x, gamma]
        call.give(0, call.op("LayerNormalization", *inputs, axis=axis, epsilon=epsilon))
        return True
    if not centred and call.opset >= _RMS_NORM and not asked:
        call.give(0, call.op("RMSNormalization", x, gamma, axis=axis, epsilon=epsilon))
        return True
    axes, shape = [-1], call.shape(place)
    if axis != -1:
        if shape is None:
            return False
        axes = list(range(axis % len(shape), len(shape)))
    dtype = np.float64 if call.dtype(place) == np.float64 else np.float32
    narrow = call.dtype(place) not in (np.float32, np.float64)
    wide = call.op("Cast", x, to=onnx.TensorProto.FLOAT) if narrow else x
    mean = call.over("ReduceMean", wide, axes, keepdims=1) if centred else ""
    moved = call.op("Sub", wide, mean) if centred else wide
    deviation = deviation_of(call, moved, axes, call.constant(epsilon, dtype))
    y = call.op("Div", moved, deviation)
    y = call.op("Mul", call.op("Cast", y, to=call.element(place)) if narrow else y, gamma)
    call.give(0, call.op("Add", y, beta) if beta else y)
    if asked:
        call.give(statistics[1], call.op("Reciprocal", deviation))
        if centred:
            call.give(statistics[0], mean)
    return True


def deviation_of(call: Call, x: str, axes: Sequence[int], epsilon: str) -> str:
    """sqrt(mean(x^2) + epsilon) along axes, which stay."""
    square = call.over("ReduceMean", call.op("Mul", x, x), axes, keepdims=1)
    return call.op("Sqrt", call.op("Add", square, epsilon))


def simplified_layer_norm(call: Call) -> bool:
    """RMS normalisation."""
    call.attrs.setdefault("epsilon", 1e-5)
    axis = call.attrs.get("axis", -1)
    # Its second result is the inverse deviation; there is no mean.
    return _normalised(call, (call.input(0), 0), call.input(1), "", axis, (1, 1))


def skip_layer_norm(call: Call) -> bool:
    """Layer normalisation of a sum, which is a result as well."""
    return _skip(call, call.input(2), call.input(3), call.input(4))


def skip_simplified_layer_norm(call: Call) -> bool:
    """RMS normalisation of a sum, which is a result as well."""
    return not call.wants(1) and _skip(call, call.input(2), "", call.input(3))


def _skip(call: Call, gamma: str, beta: str, bias: str) -> bool:
    total = call.op("Add", call.input(0), call.input(1))
    if bias:
        total = call.op("Add", total, bias)
    call.attrs.setdefault("epsilon", 1e-12)
    call.give(3, total)
    return _normalised(call, (total, 0), gamma, beta, statistics=(1, 2))


def embed_layer_norm(call: Call) -> bool:
    """Embeddings of words, places and segments, added and normalised.

    The second result says how many words each sentence has, 0 without a mask.
    """
    ids, segments, words, places, of_segments, gamma, beta, mask, given = map(call.input, range(9))
    value = call.op("Gather", words, ids, axis=0)
    if given:
        at = call.op("Gather", places, given, axis=0)
    else:
        count = call.slice(call.op("Shape", ids), 0, 1, 2)
        first = call.op("Slice", places, call.integers(0), count, call.integers(0))
        at = call.over("Unsqueeze", first, [0])
    value = call.op("Add", value, at)
    if segments:
        value = call.op("Add", value, call.op("Gather", of_segments, segments, axis=0))
    call.give(2, value)
    if call.wants(1):
        counted = mask or call.op("Sub", ids, ids)
        call.give(1, call.over("ReduceSum", counted, [1], keepdims=0))
    call.attrs.setdefault("epsilon", 1e-12)
    return _normalised(call, (value, 2), gamma, beta)


def quantised_embed_layer_norm(call: Call) -> bool:
    """Embeddings of integers with one scale each, added and normalised; tables stay integers.

    The second result counts the ones of each sentence's mask, 0 without one.
    """
    if call.opset < QUANTISED_ALONG_AXES:
        call.refuse(f"opset {call.opset}; need {QUANTISED_ALONG_AXES} or later")
    ids, segments, mask = call.input(0), call.input(1), call.input(7)

    def value(which: int, at: str = "") -> str:
        """Table, gamma or beta ``which``, or rows of it, as floats."""
        rows = call.op("Gather", call.input(2 + which), at, axis=0) if at else call.input(2 + which)
        scale, zero = (
            call.op("Reshape", call.input(first + which), call.constant([], np.int64))
            for first in (8, 13)
        )
        return call.op("DequantizeLinear", rows, scale, zero)

    total = call.op("Add", value(0, ids), value(1, call.up_to(call.extent(ids, 1))))
    if segments:
        total = call.op("Add", total, value(2, segments))
    if call.wants(1):
        ones = call.op("Equal", mask or ids, call.constant(1, np.int32))
        counted = call.op("Cast", ones, to=call.element()) if mask else call.op("Sub", ids, ids)
        call.give(1, call.over("ReduceSum", counted, [1], keepdims=0))
    call.attrs.setdefault("epsilon", 1e-12)
    return _normalised(call, (total, 8), value(3), value(4))
