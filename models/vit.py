"""Vision Transformer (Dosovitskiy et al., 2020), written as exporters write it."""

from __future__ import annotations

import numpy as np
import onnx

from .builder import GraphBuilder


def vit(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    patch: int = 16,
    size: int = 224,
    batch: int = 1,
    classes: int = 1000,
    seed: int = 16,
) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to logits [batch, classes]; the defaults are ViT-B/16."""
    graph = GraphBuilder("vit", seed)
    image = graph.input("image", (batch, 3, size, size))
    patches = _patches(graph, image, hidden, patch)
    token = graph.normal((1, 1, hidden), 0.02, "class_token")
    shape = graph.constant(np.array([batch, -1, -1], np.int64), "extents")
    x = graph.op("Concat", graph.op("Expand", token, _expanded(graph, shape)), patches, axis=1)
    tokens = (size // patch) ** 2 + 1
    x = graph.op("Add", x, graph.normal((1, tokens, hidden), 0.02, "positions"))
    for _ in range(layers):
        x = graph.op(
            "Add", x, _attention(graph, graph.layer_norm(x, hidden), tokens, hidden, heads)
        )
        wide = graph.gelu(graph.linear(graph.layer_norm(x, hidden), (hidden, 4 * hidden)))
        x = graph.op("Add", x, graph.linear(wide, (4 * hidden, hidden)))
    x = graph.layer_norm(x, hidden)
    first = graph.op("Gather", x, graph.constant(np.int64(0), "first"), axis=1)
    graph.output(graph.gemm(first, (hidden, classes)), "logits", (batch, classes))
    return graph.build()


def _expanded(graph: GraphBuilder, shape: str) -> str:
    """A shape in which -1 keeps an axis, as Expand needs it: ``where(shape == -1, 1, shape)``."""
    one = graph.constant(np.array([1], np.int64), "one")
    keep = graph.op("Equal", shape, graph.constant(np.array([-1], np.int64), "keep"))
    return graph.op("Where", keep, one, shape)


def _patches(graph: GraphBuilder, image: str, hidden: int, patch: int) -> str:
    """[batch, patches, hidden]: a convolution whose windows do not overlap."""
    x = graph.conv(image, (3, hidden), patch, stride=patch, padding=0, gain=1.0)
    return graph.op("Transpose", graph.reshape(x, (0, hidden, -1)), perm=[0, 2, 1])


def _attention(graph: GraphBuilder, x: str, tokens: int, hidden: int, heads: int) -> str:
    """Query, key and value from one product; the query carries the scale."""
    width = hidden // heads
    joined = graph.reshape(graph.linear(x, (hidden, 3 * hidden)), (0, tokens, 3, heads, width))
    parts = graph.op("Transpose", joined, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.op("Gather", parts, graph.constant(np.int64(i), "part"), axis=0) for i in range(3)
    )
    scaled = graph.op("Mul", query, graph.constant(np.float32(width**-0.5), "scale"))
    scores = graph.op("MatMul", scaled, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
    attended = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    joined = graph.op("Transpose", attended, perm=[0, 2, 1, 3])
    return graph.linear(graph.reshape(joined, (0, tokens, hidden)), (hidden, hidden))
