"""Swin Transformer (Liu et al., 2021), written as exporters write it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from .builder import GraphBuilder

#: What is added to the score of two patches that a shift brought into one window.
_APART = np.float32(-100.0)


def swin(
    depths: Sequence[int] = (2, 2, 6, 2),
    heads: Sequence[int] = (3, 6, 12, 24),
    width: int = 96,
    window: int = 7,
    size: int = 224,
    batch: int = 1,
    seed: int = 18,
) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, 1000]; the defaults are Swin-T.

    The number of patches along a side, ``size / 4`` halved from stage to stage, is a multiple of
    ``window``.
    """
    graph = GraphBuilder("swin", seed)
    x = graph.input("image", (batch, 3, size, size))
    x = graph.conv(x, (3, width), 4, stride=4, padding=0, gain=1.0)
    x = graph.layer_norm(graph.op("Transpose", x, perm=[0, 2, 3, 1]), width)
    side = size // 4
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        if stage > 0:
            x = _merged(graph, x, width)
            side, width = side // 2, 2 * width
        if side % window:
            raise ValueError(
                f"stage {stage} has {side} patches a side; need a multiple of {window}"
            )
        for block in range(depth):
            # One window for the whole image has no neighbours to be shifted to.
            shift = window // 2 if block % 2 and side > window else 0
            y = graph.layer_norm(x, width)
            x = graph.op("Add", x, _attention(graph, y, (batch, side), window, shift, width, count))
            wide = graph.gelu(graph.linear(graph.layer_norm(x, width), (width, 4 * width)))
            x = graph.op("Add", x, graph.linear(wide, (4 * width, width)))
    x = graph.op("Transpose", graph.layer_norm(x, width), perm=[0, 3, 1, 2])
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x), axis=1)
    graph.output(graph.gemm(x, (width, 1000)), "logits", (batch, 1000))
    return graph.build()


def _slice(graph: GraphBuilder, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
    numbers = (
        graph.constant(np.array([number], np.int64), hint)
        for number, hint in ((start, "starts"), (end, "ends"), (axis, "axes"), (step, "steps"))
    )
    return graph.op("Slice", x, *numbers)


def _rolled(graph: GraphBuilder, x: str, by: int) -> str:
    """x[..., i, j, :] comes from x[..., i + by, j + by, :], round the edges."""
    whole = np.iinfo(np.int64).max
    for axis in (1, 2):
        first, rest = _slice(graph, x, axis, by, whole), _slice(graph, x, axis, 0, by)
        x = graph.op("Concat", first, rest, axis=axis)
    return x


def _merged(graph: GraphBuilder, x: str, width: int) -> str:
    """Four patches become one, of twice the width."""
    whole = np.iinfo(np.int64).max
    parts = [
        _slice(graph, _slice(graph, x, 1, row, whole, 2), 2, column, whole, 2)
        for column in (0, 1)
        for row in (0, 1)
    ]
    joined = graph.layer_norm(graph.op("Concat", *parts, axis=-1), 4 * width)
    weight = graph.normal((4 * width, 2 * width), np.sqrt(1.0 / (4 * width)))
    return graph.op("MatMul", joined, weight)


def _attention(
    graph: GraphBuilder,
    x: str,
    image: tuple[int, int],
    window: int,
    shift: int,
    width: int,
    heads: int,
) -> str:
    """Attention among the patches of each window; ``image`` is (batch, patches along a side)."""
    batch, side = image
    along, tokens = side // window, window * window
    if shift:
        x = _rolled(graph, x, shift)
    x = graph.reshape(x, (batch, along, window, along, window, width))
    x = graph.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = graph.reshape(x, (batch * along * along, tokens, width))
    joined = graph.reshape(
        graph.linear(x, (width, 3 * width)), (-1, tokens, 3, heads, width // heads)
    )
    parts = graph.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.op("Gather", parts, graph.constant(np.int64(i), "part"), axis=0) for i in range(3)
    )
    scale = graph.constant(np.float32((width // heads) ** -0.5), "scale")
    query = graph.op("Mul", query, scale)
    scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = graph.op("Add", scores, _position_bias(graph, window, heads))
    if shift:
        mask = graph.constant(_mask(side, window, shift)[None, :, None], "mask")
        scores = graph.reshape(scores, (batch, along * along, heads, tokens, tokens))
        scores = graph.reshape(graph.op("Add", scores, mask), (-1, heads, tokens, tokens))
    attended = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    attended = graph.op("Transpose", attended, perm=[0, 2, 1, 3])
    x = graph.linear(graph.reshape(attended, (-1, tokens, width)), (width, width))
    x = graph.reshape(x, (batch, along, along, window, window, width))
    x = graph.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = graph.reshape(x, (batch, side, side, width))
    return _rolled(graph, x, -shift) if shift else x


def _position_bias(graph: GraphBuilder, window: int, heads: int) -> str:
    """[1, heads, tokens, tokens]: a number for each head and distance along both axes."""
    places = np.stack(np.meshgrid(*2 * [np.arange(window)], indexing="ij")).reshape(2, -1)
    rows, columns = places[:, :, None] - places[:, None, :] + window - 1
    index = rows * (2 * window - 1) + columns
    table = graph.normal(((2 * window - 1) ** 2, heads), 0.5, "position_bias")
    picked = graph.op("Gather", table, graph.constant(index.reshape(-1), "distances"), axis=0)
    picked = graph.reshape(picked, (window * window, window * window, heads))
    axes = graph.constant(np.array([0], np.int64), "axes")
    return graph.op("Unsqueeze", graph.op("Transpose", picked, perm=[2, 0, 1]), axes)


def _mask(side: int, window: int, shift: int) -> np.ndarray:
    """[windows, tokens, tokens]: what keeps patches apart that were not neighbours."""
    part = np.zeros(side, np.int64)
    part[-window:-shift], part[-shift:] = 1, 2
    parts = (3 * part[:, None] + part).reshape(side // window, window, side // window, window)
    parts = parts.transpose(0, 2, 1, 3).reshape(-1, window * window)
    return np.where(parts[:, None, :] == parts[:, :, None], np.float32(0), _APART)
