"""Attention as ONNX Runtime's optimisers and exporters for it write it (domain com.microsoft)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.attention import attend, causal, heads_of, joined, repeated
from byoc.frontends.onnx.bodies.call import Call

#: What a mask adds to scores that it hides, unless the node says something else.
_HIDDEN = -10000.0


def attention(call: Call) -> bool:
    """Attention: products with one weight for query, key and value, from [B, S, I].

    Not with a past that shares its buffer, rotations, or masks that say where rows begin.
    """
    heads, shape, weight = call.attrs["num_heads"], call.shape(0), call.shape(1)
    ours = ("num_heads", "unidirectional", "qkv_hidden_sizes", "mask_filter_value", "scale")
    if any(call.attrs[name] for name in call.attrs if name not in ours) or call.input(6):
        return False
    if shape is None or weight is None or weight[1] is None:
        return False
    sizes = list(call.attrs.get("qkv_hidden_sizes", [])) or [weight[1] // 3] * 3
    product = call.op("MatMul", call.input(0), call.input(1))
    if call.input(2):
        product = call.op("Add", product, call.input(2))
    q, k, v = (heads_of(call, part, heads) for part in call.parts(product, sizes, 2))
    past, columns = call.shape(4), shape[1]
    if call.input(4):
        if past is None:
            return False
        columns = None if None in (past[3], columns) else columns + past[3]
        both = [call.over("Squeeze", part, [0]) for part in call.parts(call.input(4), [1, 1], 0)]
        k, v = (call.op("Concat", *pair, axis=2) for pair in zip(both, (k, v), strict=True))
    if call.wants(1):
        stacked = [call.over("Unsqueeze", part, [0]) for part in (k, v)]
        call.give(1, call.op("Concat", *stacked, axis=0))
    return _attend(call, (q, k, v), (shape[1], columns), (3, 5), sizes[0] // heads)


def multi_head_attention(call: Call) -> bool:
    """MultiHeadAttention: query [B, S, N D], key and value that, or [B, N, T, D].

    Not with packed operands, or a past that shares its buffer.
    """
    heads, shapes = call.attrs["num_heads"], [call.shape(place) for place in range(3)]
    ours = ("num_heads", "unidirectional", "mask_filter_value", "scale")
    if any(call.attrs[name] for name in call.attrs if name not in ours):
        return False
    if any(call.input(place) for place in (8, 9)) or call.wants(3):
        return False
    if any(shape is None for shape in shapes) or len(shapes[0]) != 3 or shapes[0][2] is None:
        return False
    parts = [call.input(place) for place in range(3)]
    widths = [shapes[0][2]] * 2 + [
        shapes[2][2] if len(shapes[2]) == 3 else heads * (shapes[2][3] or 0)
    ]
    if call.input(3):
        if None in widths:
            return False
        biases = call.parts(call.input(3), widths, 0)
        for place in range(3):
            if len(shapes[place]) == 3:
                parts[place] = call.op("Add", parts[place], biases[place])
    q, k, v = (
        heads_of(call, part, heads) if len(shape) == 3 else part
        for part, shape in zip(parts, shapes, strict=True)
    )
    columns = shapes[1][1] if len(shapes[1]) == 3 else shapes[1][2]
    if call.input(6):
        past = call.shape(6)
        columns = None if None in (past and past[2], columns) else columns + past[2]
        k = call.op("Concat", call.input(6), k, axis=2)
        v = call.op("Concat", call.input(7), v, axis=2)
    call.give(1, k)
    call.give(2, v)
    return _attend(call, (q, k, v), (shapes[0][1], columns), (4, 5), shapes[0][2] // heads)


def _attend(
    call: Call,
    qkv: Sequence[str],
    size: tuple[int | None, int | None],
    places: tuple[int, int],
    width: int,
) -> bool:
    """Attention with the node's masks, by place: what hides keys, and what is added."""
    mask, added = places
    biases = _masks(call, qkv[1], size[1], mask)
    if biases is None:
        return False
    if call.attrs.get("unidirectional", 0):
        biases.insert(0, _causal(call, qkv, size))
    if call.input(added):
        biases.append(call.input(added))
    bias = biases[0] if biases else ""
    for other in biases[1:]:
        bias = call.op("Add", bias, other)
    scale = call.attrs.get("scale", 0.0) or 1 / sqrt(width)
    call.give(0, joined(call, attend(call, *qkv, scale, bias)))
    return True


def _causal(call: Call, qkv: Sequence[str], size: tuple[int | None, int | None]) -> str:
    """What hides keys behind each row, the last of which sees them all."""
    rows, columns = size
    least = float(np.finfo(call.dtype()).min)
    if rows is None or columns is None:
        ends = [call.extent(tensor, 2) for tensor in qkv[:2]]
        return causal(call, *ends, call.op("Sub", *reversed(ends)), least)
    seen = np.tri(rows, columns, columns - rows, dtype=bool)
    return call.constant(np.where(seen, 0.0, least), call.dtype())


def _masks(call: Call, keys: str, columns: int | None, place: int) -> list[str] | None:
    """What a mask of keys, so many if that is fixed, adds to the scores.

    None for forms that are not known.
    """
    low: float = call.attrs.get("mask_filter_value", _HIDDEN)
    if not call.input(place):
        return []
    shape = call.shape(place)
    if shape is None or len(shape) > 3:
        return None
    given = call.input(place)
    if len(shape) == 1:  # how many keys there are, and perhaps where they begin
        batch = (call.shape(0) or [None])[0]
        starts = None
        if None not in (batch, shape[0]) and shape[0] == 2 * batch:
            given, starts = call.parts(given, [batch, batch], 0)
        elif not call.is_as_long(place, 0, 0, 0):
            return None
        counts = call.over("Unsqueeze", given, [1])
        if columns is None:
            places = call.op("Cast", call.up_to(call.extent(keys, 2)), to=call.element(place))
            places = call.over("Unsqueeze", places, [0])
        else:
            places = call.constant(np.arange(columns)[None], call.dtype(place))
        shown = call.op("Less", places, counts)
        if starts is not None:
            before = call.op("Less", places, call.over("Unsqueeze", starts, [1]))
            shown = call.op("And", shown, call.op("Not", before))
    else:
        if None not in (columns, shape[-1]) and shape[-1] not in (columns, 1):
            return None
        shown = call.op("Cast", given, to=onnx.TensorProto.BOOL)
    hidden = call.op("Where", shown, call.number(0.0), call.number(low))
    return [call.over("Unsqueeze", hidden, [1] if len(shape) == 3 else [1, 2])]


#: Attributes of GroupQueryAttention.
_GROUPED = (
    "num_heads",
    "kv_num_heads",
    "scale",
    "do_rotary",
    "rotary_interleaved",
    "local_window_size",
    "softcap",
    "smooth_softmax",
)


def group_query_attention(call: Call) -> bool:
    """GroupQueryAttention: [B, S, N D], several heads of the query for one of key and value.

    ``seqlens_k`` tells the place of the last row of each sentence; new keys go behind those that
    it leaves of the past, [B, M, P, D], and a row sees the keys up to its own place.  Results have
    room for P + S keys.
    """
    attrs, shape = call.attrs, call.shape(0)
    heads, own = attrs["num_heads"], attrs["kv_num_heads"]
    for name in attrs:
        if name not in _GROUPED and (name, attrs[name]) != ("qk_output", 0):
            return False
    if call.wants(3) or shape is None or shape[2] is None:
        return False
    parts = [call.input(place) for place in range(3)]
    width = shape[2] // (heads if parts[1] else heads + 2 * own)
    if not parts[1]:
        parts = call.parts(parts[0], [heads * width, own * width, own * width], 2)
    q, k, v = (
        heads_of(call, part, count) for part, count in zip(parts, (heads, own, own), strict=True)
    )
    past = call.shape(3) if call.input(3) else [0] * 4
    if past is None:
        return False
    has_past = past[2] != 0
    rows = call.extent(call.input(0), 1)
    room = call.extent(call.input(3), 2) if has_past else call.integers(0)
    ends = room, call.op("Add", room, rows)
    own_places = _places(call, rows, ends)
    if attrs.get("do_rotary", 0):
        table = call.shape(7)
        if table is None or table[1] is None:
            return False
        tables, ids = (call.input(7), call.input(8)), call.input(9) or own_places
        q, k = (rotated(call, x, ids, tables, (width, 2 * table[1])) for x in (q, k))
    keys = call.up_to(ends[1])
    if has_past:
        sizes = call.extent(call.input(0), 0), own_places, own
        pairs = (call.input(3), k), (call.input(4), v)
        k, v = (_appended(call, pair, sizes) for pair in pairs)
    call.give(1, k)
    call.give(2, v)
    seen_to = call.over("Unsqueeze", own_places, [1, 3])
    hidden = call.op("Greater", keys, seen_to)
    window = attrs.get("local_window_size", -1)
    if window > 0:
        first = call.op("Sub", seen_to, call.constant(window - 1, np.int64))
        hidden = call.op("Or", hidden, call.op("Less", keys, first))
    bias = call.op("Where", hidden, call.number(-np.inf), call.number(0.0))
    if call.input(10):
        bias = call.op("Add", bias, call.input(10))
    k, v = (repeated(call, x, own, heads // own) for x in (k, v))
    scale = attrs.get("scale", 0.0) or 1 / sqrt(width)
    sink = call.number(0.0) if attrs.get("smooth_softmax", 0) == 1 else ""
    if call.input(11):
        sink = call.reshape(call.input(11), heads, 1, 1)
    y = attend(call, q, k, v, scale, bias, attrs.get("softcap", 0.0), sink)
    call.give(0, joined(call, y))
    return True


def _places(call: Call, rows: str, ends: tuple[str, str]) -> str:
    """Where the new keys of each sentence belong, [B, S].

    ``seqlens_k`` tells the last place; the first one is no lower than 0, and none is behind those
    that there is room for, ``ends``.
    """
    last = call.reshape(call.op("Cast", call.input(5), to=onnx.TensorProto.INT64), -1, 1)
    # S as a tensor, of numbers up to there: those are part of the network, shapes are not.
    one = call.integers(1)
    count = call.up_to(call.op("Add", rows, one), rows)
    first = call.op("Sub", call.op("Add", last, one), count)
    steps = call.up_to(rows)
    least = call.op("Max", call.op("Add", first, steps), steps)
    return call.op("Min", least, call.up_to(ends[1], ends[0]))


def _appended(call: Call, pair: tuple[str, str], sizes: tuple[str, str, int]) -> str:
    """New keys behind those of the past that count: [B, M, P + S, D].

    ``sizes`` are B, the places [B, S] of the new keys, and M. Keys are joined to the whole past,
    where those of the longest sentence belong, and put where each sentence ends.
    """
    batch, places, heads = sizes
    both = call.op("Concat", *pair, axis=2)
    at = [call.over("Unsqueeze", call.up_to(batch), [1, 2]), call.over("Unsqueeze", places, [1])]
    at.insert(1, call.constant(np.arange(heads)[:, None], np.int64))
    shape = call.slice(call.op("Shape", pair[1]), 0, 0, 3)
    wide = [call.over("Unsqueeze", call.op("Expand", x, shape), [3]) for x in at]
    return call.op("ScatterND", both, call.op("Concat", *wide, axis=3), pair[1])


# ---------------------------------------------------------------------- rotations


def rotary_embedding(call: Call) -> bool:
    """RotaryEmbedding of [B, S, N D] or [B, N, S, D], by positions [1] or [B, S]."""
    shape, places, table = call.shape(0), call.shape(1), call.shape(2)
    if call.attrs.get("is_packed_batching", 0) or None in (shape, places, table):
        return False
    if call.attrs.get("scale", 1.0) != 1.0 or table[1] is None:
        return False
    width, flat = call.attrs.get("rotary_embedding_dim", 0) or 2 * table[1], len(shape) == 3
    x, size = _heads_apart(call, shape, width)
    rows = shape[1] if flat else shape[2]
    ids = call.input(1)
    if len(places) == 1:
        if rows is None:
            return False
        ids = call.over("Unsqueeze", call.op("Add", ids, call.integers(*range(rows))), [0])
    if size is None:
        return False
    y = rotated(call, x, ids, (call.input(2), call.input(3)), (size, width))
    call.give(0, joined(call, y) if flat else y)
    return True


def _heads_apart(call: Call, shape: Sequence[int | None], width: int) -> tuple[str, int | None]:
    """The first input as [B, N, S, D], and D: None where it is not known."""
    x = call.input(0)
    if len(shape) != 3:
        return x, shape[3]
    if shape[2] is None:
        return x, None
    heads = call.attrs.get("num_heads", 0) or shape[2] // width
    return heads_of(call, x, heads), shape[2] // heads


def multimodal_rotary_embedding(call: Call) -> bool:
    """MRotaryEmbedding: each column of the angles has a place of its own, in time, height or width.

    ``position_ids`` are [3, B, S]; ``mrope_section`` says how many columns are of which.
    """
    shape, places, table = call.shape(0), call.shape(1), call.shape(2)
    if call.attrs.get("is_packed_batching", 0) or None in (shape, places, table):
        return False
    sections, interleaved = list(call.attrs["mrope_section"]), call.attrs.get("mrope_layout", 0)
    half = table[1]
    if call.attrs.get("scale", 1.0) != 1.0 or half is None or len(sections) != 3:
        return False
    width, flat = call.attrs.get("rotary_embedding_dim", 0) or 2 * half, len(shape) == 3
    if width != 2 * half or sum(sections) != half or places[0] != 3:
        return False
    x, size = _heads_apart(call, shape, width)
    if size is None:
        return False
    columns = np.repeat(np.arange(3), sections)
    if interleaved:
        columns = np.zeros(half, np.int64)
        for stream in (1, 2):
            columns[stream : 3 * sections[stream] : 3] = stream
    of_stream = [
        call.over("Squeeze", call.slice(call.input(1), 0, stream, stream + 1), [0])
        for stream in range(3)
    ]

    def angles(table: str) -> str:
        found = call.op("Gather", table, of_stream[0], axis=0)
        for stream in (1, 2):
            other = call.op("Gather", table, of_stream[stream], axis=0)
            chosen = call.constant(columns == stream, np.bool_)
            found = call.op("Where", chosen, other, found)
        return call.over("Unsqueeze", found, [1])

    y = turned(call, x, (angles(call.input(2)), angles(call.input(3))), (size, width))
    call.give(0, joined(call, y) if flat else y)
    return True


def rotated(call: Call, x: str, ids: str, tables: tuple[str, str], sizes: tuple[int, int]) -> str:
    """Pairs of numbers of [B, N, S, D] turned by the angles of their places [B or 1, S].

    ``tables`` are cosines and sines [places, width / 2]; ``sizes`` are D and the width that turns.
    """
    cosine, sine = (
        call.over("Unsqueeze", call.op("Gather", table, ids, axis=0), [1]) for table in tables
    )
    return turned(call, x, (cosine, sine), sizes)


def turned(call: Call, x: str, angles: tuple[str, str], sizes: tuple[int, int]) -> str:
    """The same with the cosines and sines of each place, [B or 1, 1, S, width / 2]."""
    size, width = sizes
    cosine, sine = angles
    interleaved = bool(call.attrs.get("interleaved", 0) or call.attrs.get("rotary_interleaved", 0))
    turning, rest = x, ""
    if width < size:
        turning, rest = call.parts(x, [width, size - width], 3)
    if interleaved:
        first, second = (call.slice(turning, 3, start, width, 2) for start in (0, 1))
    else:
        first, second = call.parts(turning, [width // 2] * 2, 3)
    real = call.op("Sub", call.op("Mul", first, cosine), call.op("Mul", second, sine))
    imaginary = call.op("Add", call.op("Mul", first, sine), call.op("Mul", second, cosine))
    if interleaved:
        pair = [call.over("Unsqueeze", part, [4]) for part in (real, imaginary)]
        y = call.reshape(call.op("Concat", *pair, axis=4), 0, 0, 0, width)
    else:
        y = call.op("Concat", real, imaginary, axis=3)
    return call.op("Concat", y, rest, axis=3) if rest else y
