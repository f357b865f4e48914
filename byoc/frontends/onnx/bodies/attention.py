"""Attention of ONNX and of com.microsoft, with its masks, past and rotations.

    y = softmax(q k^T * scale + bias) v        [B, N, S, D] of q [B, N, S, E], k [B, N, T, E]

What is written here is the form that ``byoc.canonicalise.attention`` looks for. Rows of queries
that a mask leaves no key are 0 by ONNX's definition.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call

_HEADS_FIRST = (0, 2, 1, 3)


def attend(
    call: Call,
    query: str,
    key: str,
    value: str,
    scale: float,
    bias: str = "",
    softcap: float = 0.0,
    sink: str = "",
) -> str:
    """The formula, of tensors of rank 4; ``bias`` is added to the scores.

    ``softcap`` c makes c tanh(score / c) of these before. ``sink``, [N, 1, 1], is the score of a
    key whose value is 0.
    """
    scores = call.op("MatMul", query, call.transpose(key, 0, 1, 3, 2))
    if scale != 1.0:
        scores = call.op("Mul", scores, call.number(scale))
    if softcap:
        small = call.op("Tanh", call.op("Div", scores, call.number(softcap)))
        scores = call.op("Mul", small, call.number(softcap))
    if bias:
        scores = call.op("Add", scores, bias)
    if not sink:
        return call.op("MatMul", call.op("Softmax", scores, axis=3), value)
    shape = call.slice(call.op("Shape", scores), 0, 0, 3)
    column = call.op("Expand", sink, call.op("Concat", shape, call.integers(1), axis=0))
    shares = call.op("Softmax", call.op("Concat", scores, column, axis=3), axis=3)
    return call.op("MatMul", call.slice(shares, 3, 0, -1), value)


def heads_of(call: Call, value: str, heads: int) -> str:
    """[B, S, N D] as [B, N, S, D]."""
    return call.transpose(call.reshape(value, 0, 0, heads, -1), *_HEADS_FIRST)


def joined(call: Call, value: str) -> str:
    """[B, N, S, D] as [B, S, N D]."""
    return call.reshape(call.transpose(value, *_HEADS_FIRST), 0, 0, -1)


def repeated(call: Call, value: str, heads: int, times: int) -> str:
    """Every head so many times: [B, N, T, D] as [B, N times, T, D]."""
    if times == 1:
        return value
    wide = call.op("Expand", call.over("Unsqueeze", value, [2]), call.integers(1, 1, times, 1, 1))
    shape = call.op("Shape", value)
    batch, rows = call.slice(shape, 0, 0, 1), call.slice(shape, 0, 2, 4)
    extents = call.op("Concat", batch, call.integers(heads * times), rows, axis=0)
    return call.op("Reshape", wide, extents)


def causal(call: Call, rows: str, columns: str, before: str, low: float) -> str:
    """What is added to scores [rows, columns]: ``low`` where a key comes after the row, else 0.

    Row i sees keys up to ``before`` + i; all three are vectors of one number.
    """
    seen_to = call.over("Unsqueeze", call.up_to(call.op("Add", before, rows), before), [1])
    hidden = call.op("Greater", call.over("Unsqueeze", call.up_to(columns), [0]), seen_to)
    return call.op("Where", hidden, call.number(low), call.number(0.0))


# ---------------------------------------------------------------------- ONNX's


def attention(call: Call) -> bool:
    """Attention of opsets 23 to 25; False for forms that its schema's body has to do.

    Those are nonpad_kv_seqlen, a softcap, a window of keys, the scores as a result, softmax in
    another precision.
    """
    shapes = [call.shape(place) for place in range(3)]
    if any(shape is None for shape in shapes) or call.input(6) or call.wants(3):
        return False
    windows = [call.attrs.get(f"{side}_window_size", -1) for side in ("left", "right")]
    if call.attrs.get("softcap", 0.0) or max(windows) >= 0:
        return False
    if call.attrs.get("softmax_precision", call.element()) != call.element():
        return False
    query, key, value = (call.input(place) for place in range(3))
    packed = len(shapes[0]) == 3
    if packed:
        heads, own = call.attrs["q_num_heads"], call.attrs["kv_num_heads"]
        width = shapes[0][2] and shapes[0][2] // heads
        query = heads_of(call, query, heads)
        key, value = (heads_of(call, x, own) for x in (key, value))
    else:
        heads, own, width = shapes[0][1], shapes[1][1], shapes[0][3]
    if None in (heads, own, width) or heads % own:
        return False
    past = call.shape(4)
    if call.input(4):
        key = call.op("Concat", call.input(4), key, axis=2)
        value = call.op("Concat", call.input(5), value, axis=2)
    call.give(1, key)
    call.give(2, value)
    rows = shapes[0][1] if packed else shapes[0][2]
    columns = shapes[1][1] if packed else shapes[1][2]
    before = 0 if not call.input(4) else past and past[2]
    if before is None or columns is None:
        columns = None
    else:
        columns += before
    hiding = ""
    if call.attrs.get("is_causal", 0):
        if None in (rows, columns, before):
            first = call.extent(call.input(4), 2) if call.input(4) else call.integers(0)
            ends = call.extent(query, 2), call.extent(key, 2)
            hiding = causal(call, *ends, first, -np.inf)
        else:
            seen = np.tri(rows, columns, before, dtype=bool)
            hiding = call.constant(np.where(seen, 0.0, -np.inf), call.dtype())
    found = _bias(call, columns, hiding)
    if found is None:
        return False
    bias, hidden = found
    key, value = (repeated(call, x, own, heads // own) for x in (key, value))
    y = attend(call, query, key, value, call.attrs.get("scale", 1 / sqrt(width)), bias)
    if hidden:
        y = call.op("Where", hidden, call.number(0.0), y)
    call.give(0, joined(call, y) if packed else y)
    return True


def _bias(call: Call, columns: int | None, hiding: str) -> tuple[str, str] | None:
    """What is added to the scores, and which rows see nothing; None for masks of other widths.

    A mask and keys of which one has a width that is not fixed are taken to be equally wide.
    """
    mask = call.input(3)
    if not mask:
        return hiding, ""
    shape = call.shape(3)
    if shape is None or len(shape) < 2 or (columns is None and shape[-1] not in (None, 1)):
        return None
    zero, low = call.number(0.0), call.number(-np.inf)
    bias = mask
    if call.element(3) == onnx.TensorProto.BOOL:
        bias = call.op("Where", mask, zero, low)
    if None not in (columns, shape[-1]) and shape[-1] not in (columns, 1):
        pads = call.integers(*[0] * (2 * len(shape) - 1), columns - shape[-1])
        bias = call.op("Pad", bias, pads, low)
    if hiding:
        bias = call.op("Add", bias, hiding)
    least = call.over("ReduceMax", bias, [-1], keepdims=1)
    hidden = call.op("Equal", least, low)
    return bias, hidden
