"""GPT-2 (Radford et al., 2019), one forward pass, written as exporters write it."""

from __future__ import annotations

import numpy as np
import onnx

from .builder import GraphBuilder


def gpt2(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    sequence: int = 128,
    vocabulary: int = 50257,
    batch: int = 1,
    seed: int = 22,
) -> onnx.ModelProto:
    """Token ids [batch, sequence] (int64) to logits [batch, sequence, vocabulary]."""
    graph = GraphBuilder("gpt2", seed)
    ids = graph.input("input_ids", (batch, sequence), "int64")
    words = graph.normal((vocabulary, hidden), 0.05, "words")
    places = graph.constant(np.arange(sequence, dtype=np.int64)[None], "positions")
    table = graph.normal((1024, hidden), 0.05, "positions_table")
    x = graph.op("Add", graph.op("Gather", words, ids), graph.op("Gather", table, places))
    mask = _causal_mask(graph, sequence)
    for _ in range(layers):
        attended = _attention(graph, graph.layer_norm(x, hidden), mask, hidden, heads)
        x = graph.op("Add", attended, x)
        wide = _gelu_new(graph, _conv1d(graph, graph.layer_norm(x, hidden), (hidden, 4 * hidden)))
        x = graph.op("Add", x, _conv1d(graph, wide, (4 * hidden, hidden)))
    x = graph.layer_norm(x, hidden)
    logits = graph.op("MatMul", x, graph.op("Transpose", words, perm=[1, 0]))  # tied weights
    graph.output(logits, "logits", (batch, sequence, vocabulary))
    return graph.build()


def _causal_mask(graph: GraphBuilder, sequence: int) -> str:
    """[1, 1, sequence, sequence]: 0 where a token may look, the lowest fp32 number elsewhere."""
    seen = np.tril(np.ones((1, 1, sequence, sequence), bool))
    zero = graph.constant(np.float32(0.0), "zero")
    lowest = graph.constant(np.finfo(np.float32).min, "lowest")
    return graph.op("Where", graph.constant(seen, "seen"), zero, lowest)


def _conv1d(graph: GraphBuilder, x: str, features: tuple[int, int]) -> str:
    """GPT-2's linear layer: Gemm over the tokens of all sequences, weights stored [in, out]."""
    in_features, out_features = features
    weight = graph.normal(features, np.sqrt(1.0 / in_features))
    bias = graph.normal((out_features,), 0.02, "bias")
    shape = graph.op("Shape", x)
    lead = graph.op(
        "Slice", shape, *(graph.constant(np.array([i], np.int64), "bound") for i in (0, 2))
    )
    flat = graph.reshape(x, (-1, in_features))
    last = graph.constant(np.array([out_features], np.int64), "features")
    return graph.op(
        "Reshape",
        graph.op("Gemm", flat, weight, bias),
        graph.op("Concat", lead, last, axis=0),
    )


def _attention(graph: GraphBuilder, x: str, mask: str, hidden: int, heads: int) -> str:
    joined = _conv1d(graph, x, (hidden, 3 * hidden))
    query, key, value = (
        graph.op("Transpose", graph.reshape(part, (0, 0, heads, hidden // heads)), perm=order)
        for part, order in zip(
            graph.split(joined, [hidden] * 3, 2),
            ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]),
            strict=True,
        )
    )
    scale = graph.constant(np.float32(np.sqrt(hidden // heads)), "scale")
    scores = graph.op("Div", graph.op("MatMul", query, key), scale)
    weights = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
    attended = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return _conv1d(graph, graph.reshape(attended, (0, 0, hidden)), (hidden, hidden))


def _gelu_new(graph: GraphBuilder, x: str) -> str:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), in exporters' eight nodes."""
    half, one, three, small, slope = (
        graph.constant(np.float32(value), "gelu")
        for value in (0.5, 1.0, 3.0, 0.044715, np.sqrt(2.0 / np.pi))
    )
    cubed = graph.op("Mul", graph.op("Pow", x, three), small)
    tanh = graph.op("Tanh", graph.op("Mul", graph.op("Add", x, cubed), slope))
    return graph.op("Mul", graph.op("Mul", x, half), graph.op("Add", tanh, one))
