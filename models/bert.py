"""A BERT encoder (Devlin et al., 2018), written as exporters write it."""

from __future__ import annotations

import numpy as np
import onnx

from .builder import GraphBuilder

#: What exporters add to the score of a masked position: the lowest fp32 number.
_MASKED = np.finfo(np.float32).min


def bert(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    sequence: int | str = 128,
    vocabulary: int = 30522,
    batch: int = 1,
    seed: int = 12,
) -> onnx.ModelProto:
    """Token ids and mask [batch, sequence] (int64) to the last hidden state and the pooled one.

    A name as ``sequence``, such as ``"s"``, keeps the length symbolic (at most 512), and adds the
    inputs ``token_type_ids`` and ``position_ids`` [batch, sequence].
    Outputs: ``last_hidden_state`` [batch, sequence, hidden] and ``pooler_output`` [batch, hidden].
    """
    graph = GraphBuilder("bert", seed)
    ids = graph.input("input_ids", (batch, sequence), "int64")
    mask = graph.input("attention_mask", (batch, sequence), "int64")
    bias = _attention_bias(graph, mask)
    x = _embeddings(graph, ids, (batch, sequence), vocabulary, hidden)
    for _ in range(layers):
        attended = _attention(graph, x, bias, hidden, heads)
        x = graph.layer_norm(graph.op("Add", attended, x), hidden)
        widened = graph.gelu(graph.linear(x, (hidden, 4 * hidden)))
        narrowed = graph.linear(widened, (4 * hidden, hidden))
        x = graph.layer_norm(graph.op("Add", narrowed, x), hidden)
    graph.output(x, "last_hidden_state", (batch, sequence, hidden))
    first = graph.op("Gather", x, graph.constant(np.int64(0), "first"), axis=1)
    pooled = graph.op("Tanh", graph.gemm(first, (hidden, hidden)))
    graph.output(pooled, "pooler_output", (batch, hidden))
    return graph.build()


def _attention_bias(graph: GraphBuilder, mask: str) -> str:
    """[batch, sequence] of 0 and 1 to [batch, 1, 1, sequence] of the lowest number and 0."""
    wide = graph.op("Unsqueeze", mask, graph.constant(np.array([1, 2], np.int64), "axes"))
    kept = graph.op("Cast", wide, to=onnx.TensorProto.FLOAT)
    dropped = graph.op("Sub", graph.constant(np.float32(1.0), "one"), kept)
    return graph.op("Mul", dropped, graph.constant(np.float32(_MASKED), "masked"))


def _embeddings(
    graph: GraphBuilder, ids: str, shape: tuple[int, int | str], vocabulary: int, hidden: int
) -> str:
    batch, sequence = shape
    words = graph.op("Gather", graph.normal((vocabulary, hidden), 0.5, "words"), ids)
    longest = 512 if isinstance(sequence, str) else max(512, sequence)
    if isinstance(sequence, str):
        types = graph.input("token_type_ids", shape, "int64")
        # Positions sliced by the length of the ids have no shape that TVM's importer can tell.
        positions = graph.input("position_ids", shape, "int64")
    else:
        types = graph.constant(np.zeros((batch, sequence), np.int64), "token_types")
        positions = graph.constant(np.arange(sequence, dtype=np.int64)[None], "positions")
    x = graph.op("Add", words, graph.op("Gather", graph.normal((2, hidden), 0.5, "types"), types))
    table = graph.normal((longest, hidden), 0.5, "positions_table")
    return graph.layer_norm(graph.op("Add", x, graph.op("Gather", table, positions)), hidden)


def _attention(graph: GraphBuilder, x: str, bias: str, hidden: int, heads: int) -> str:
    split = np.array([0, -1, heads, hidden // heads], np.int64)

    def heads_of(order: list[int]) -> str:
        projected = graph.linear(x, (hidden, hidden))
        shaped = graph.op("Reshape", projected, graph.constant(split, "split"))
        return graph.op("Transpose", shaped, perm=order)

    query, key, value = (heads_of(order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scale = graph.constant(np.float32(np.sqrt(hidden // heads)), "scale")
    scores = graph.op("Div", graph.op("MatMul", query, key), scale)
    weights = graph.op("Softmax", graph.op("Add", scores, bias), axis=-1)
    joined = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    flat = graph.op("Reshape", joined, graph.constant(np.array([0, 0, hidden], np.int64), "flat"))
    return graph.linear(flat, (hidden, hidden))
