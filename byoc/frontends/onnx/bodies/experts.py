"""Mixtures of experts of com.microsoft: rows by the matrices that a router picks for each.

As ONNX Runtime's CPU provider computes them.  MoE weighs experts by the softmax of all scores, QMoE
by that of the chosen ones, or by weights of their own.  Rows are sorted by their experts, so that a
matrix is read once, and not at all where no row picked it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.honoured import EXPERT_ORDER, EXPERT_PRODUCT, OWN

#: Weights of experts from which on ONNX Runtime computes these at all.
_MOE_WEIGHT, _QMOE_WEIGHT = 0.0, 1e-8


def moe(call: Call) -> bool:
    """Experts whose weights are floats."""
    _check(call, (6, 7))
    scores = _scores(call)
    weight, expert = _chosen(call, call.op("Softmax", scores, axis=-1))
    if call.attrs.get("normalize_routing_weights", 0):
        weight = call.op("Div", weight, call.over("ReduceSum", weight, [1], keepdims=1))
    weight = _positive(call, weight, _MOE_WEIGHT)
    _mixed(call, weight, expert, ((2, 3), (4, 5)), ({}, {}))
    return True


def qmoe(call: Call) -> bool:
    """Experts whose weights are integers of few bits, with a scale for each row or block of it."""
    _check(call, (8, 9, 10, 13))
    if call.attrs.get("quant_type", b"int") != b"int" or any(map(call.input, range(15, 18))):
        call.refuse("quant_type other than 'int'; need weights that are integers")
    scores = _scores(call)
    logit, expert = _chosen(call, scores)
    weight = call.op("Softmax", logit, axis=-1)
    if call.input(14):
        weight = call.op("GatherElements", call.single(14), expert, axis=1)
        if call.attrs.get("normalize_routing_weights", 0):
            total = call.over("ReduceSum", weight, [1], keepdims=1)
            none = call.op("Equal", total, call.constant(0, np.float32))
            total = call.op("Where", none, call.constant(1, np.float32), total)
            weight = call.op("Div", weight, total)
    weight = _positive(call, weight, _QMOE_WEIGHT)
    usual = call.attrs.get("expert_weight_bits", 4)
    bits = [int(call.attrs.get(f"fc{place}_expert_weight_bits", usual)) for place in (1, 2)]
    block = int(call.attrs.get("block_size", 0))
    attributes = [{"bits": number, "block_size": block} for number in bits]
    _mixed(call, weight, expert, ((2, 4, 3, 11), (5, 7, 6, 12)), attributes)
    return True


def _check(call: Call, gated: Sequence[int]) -> None:
    """Refuse forms that ONNX Runtime's CPU provider has no kernel for, or computes otherwise."""
    if any(map(call.input, gated)):
        call.refuse("a third matrix for each expert; need swiglu_fusion=1 with both in the first")
    if call.attrs.get("use_sparse_mixer", 0):
        call.refuse("use_sparse_mixer=1; need the usual choice of the k greatest scores")
    if call.opset < 13:
        call.refuse(f"opset {call.opset}; need 13 or later")


def _scores(call: Call) -> str:
    """The router's scores as float32 [rows, experts]."""
    shape = call.shape(1)
    if shape is None or len(shape) != 2 or not shape[1] or call.shape() is None:
        call.refuse(f"scores of shape {shape}; need [rows, experts], a fixed number of these")
    if not 1 <= call.attrs.get("k", 1) <= shape[1]:
        call.refuse(f"k={call.attrs.get('k', 1)} of {shape[1]} experts; need 1 to {shape[1]}")
    return call.single(1)


def _chosen(call: Call, scores: str) -> tuple[str, str]:
    """The k greatest of each row, and their experts; of equal ones those that stand last."""
    count = (call.shape(1) or [])[1]
    turned = call.slice(scores, 1, -1, -(count + 1), -1)
    k = call.integers(call.attrs.get("k", 1))
    value, place = call.op("TopK", turned, k, outputs=2, axis=1)
    return value, call.op("Sub", call.constant(count - 1, np.int64), place)


def _positive(call: Call, weight: str, least: float) -> str:
    """Weights above a number, 0 for others."""
    above = call.op("Greater", weight, call.constant(least, np.float32))
    return call.op("Where", above, weight, call.constant(0, np.float32))


def _mixed(
    call: Call,
    weight: str,
    expert: str,
    places: Sequence[Sequence[int]],
    attributes: Sequence[dict[str, int]],
) -> None:
    """Give what the experts make of each row, weighed.

    ``places`` are those of matrix, bias, scales and zero points among the inputs, of both layers.
    """
    shape, k = call.shape() or [], call.attrs.get("k", 1)
    x = call.single(0)
    if len(shape) > 2:
        x = call.reshape(x, -1, shape[-1]) if shape[-1] else call.op("Flatten", x, axis=-1)
    flat = call.reshape(expert, -1)
    order = call.op(EXPERT_ORDER, flat, domain=OWN)
    group = call.op("Gather", flat, order, axis=0)
    row = call.op("Div", order, call.constant(k, np.int64)) if k > 1 else order
    y = call.op("Gather", x, row, axis=0)
    for layer, (matrix, *rest) in enumerate(places):
        y = _layer(call, y, group, (matrix, *rest), attributes[layer])
        if not layer:
            y = _activated(call, y)
    back = call.op(EXPERT_ORDER, order, domain=OWN)
    y = call.op("Gather", y, back, axis=0)
    width = (call.shape(places[1][0]) or [0, -1])[1]
    y = call.op("Mul", call.reshape(y, -1, k, width), call.over("Unsqueeze", weight, [2]))
    y = call.over("ReduceSum", y, [1], keepdims=0)
    if len(shape) > 2:
        y = call.op("Reshape", y, call.op("Shape", call.input(0)))
    call.give(0, call.as_given(y))


def _layer(
    call: Call, x: str, group: str, places: Sequence[int], attributes: dict[str, int]
) -> str:
    """Rows by the matrices [experts, N, K] of their groups, and the biases of these."""
    matrix, bias, *integers = places
    wide = call.over("Unsqueeze", group, [1])
    operands = [x, wide, *(call.input(place) for place in (matrix, *integers))]
    while not operands[-1]:
        operands.pop()
    y = call.op(EXPERT_PRODUCT, *operands, domain=OWN, **attributes)
    if call.input(bias):
        y = call.op("Add", y, call.op("Gather", call.single(bias), group, axis=0))
    return y


def _activated(call: Call, x: str) -> str:
    """The activation between both layers."""
    kind = call.attrs.get("activation_type", b"relu").decode()
    if kind == "swiglu":
        return _gated(call, x)
    if kind == "gelu":
        return call.op("FastGelu", x, domain=call.node.domain)
    if kind == "silu":
        return call.op("Mul", x, call.op("Sigmoid", x))
    if kind not in ("relu", "identity"):
        call.refuse(f"activation_type {kind}; need relu, gelu, silu, swiglu or identity")
    return call.op("Relu", x) if kind == "relu" else x


def _gated(call: Call, x: str) -> str:
    """g sigmoid(alpha g) (l + beta), g and l turn by turn (swiglu_fusion=1) or in halves (2)."""
    fusion, columns = call.attrs.get("swiglu_fusion", 0), (call.shape(2) or [0, 0])[1]
    if fusion not in (1, 2) or not columns or columns % 2:
        call.refuse(f"swiglu_fusion={fusion}, {columns} columns; need both matrices in the first")
    if fusion == 1:
        g, linear = (call.slice(x, 1, start, columns, 2) for start in (0, 1))
    else:
        g, linear = call.parts(x, [columns // 2] * 2, 1)
    limit = call.attrs.get("swiglu_limit")
    if limit is not None:
        high, low = (call.constant(sign * limit, np.float32) for sign in (1, -1))
        g, linear = call.op("Min", g, high), call.op("Clip", linear, low, high)
    alpha, beta = call.attrs.get("activation_alpha", 1.0), call.attrs.get("activation_beta", 0.0)
    inner = g if alpha == 1 else call.op("Mul", g, call.constant(alpha, np.float32))
    swish = call.op("Mul", g, call.op("Sigmoid", inner))
    if beta:
        linear = call.op("Add", linear, call.constant(beta, np.float32))
    return call.op("Mul", swish, linear)
