"""Decoders as onnxruntime-genai writes them: attention is GroupQueryAttention of com.microsoft.

Inputs are ``input_ids`` [batch, sequence], ``attention_mask`` [batch, total] of 1 and 0, and
``past_key_values.N.key`` and ``.value`` [batch, groups, past, width] of each layer; outputs
``logits`` [batch, sequence, vocabulary] and ``present.N.key`` and ``.value``. Places of tokens are
told by how many a sentence has so far; what is shorter than others ends in zeros of the mask.
"""

from __future__ import annotations

import numpy as np
import onnx

from .builder import GraphBuilder
from .decoder import Shape

_MICROSOFT = "com.microsoft"
_EPSILON = 1e-6
#: Places that the tables of cosines and sines have.
_PLACES = 4096


def grouped_llama(seed: int = 33, packed: bool = False, **sizes: int) -> onnx.ModelProto:
    """Llama (Touvron et al., 2023); ``packed``: one product for queries, keys and values."""
    return _Grouped(Shape(**sizes), packed, seed).build()


class _Grouped:
    def __init__(self, shape: Shape, packed: bool, seed: int) -> None:
        self.graph, self.shape, self.packed = GraphBuilder("grouped_llama", seed), shape, packed
        graph = self.graph
        self.ids = graph.input("input_ids", ("batch", "sequence"), "int64")
        self.seen = graph.input("attention_mask", ("batch", "total"), "int64")
        steps = 1e4 ** (-np.arange(0, shape.width, 2, dtype=np.float32) / shape.width)
        angles = np.arange(_PLACES, dtype=np.float32)[:, None] * steps
        self.tables = [graph.constant(f(angles), f.__name__) for f in (np.cos, np.sin)]

    def build(self) -> onnx.ModelProto:
        graph, shape = self.graph, self.shape
        cache = ("batch", shape.groups, "past", shape.width)
        past = [
            [graph.input(f"past_key_values.{layer}.{kind}", cache) for kind in ("key", "value")]
            for layer in range(shape.layers)
        ]
        lengths, present = self._lengths(), []
        x = graph.op(
            "Gather", graph.normal((shape.vocabulary, shape.hidden), 0.05, "words"), self.ids
        )
        normed = graph.op(
            "SimplifiedLayerNormalization", x, self._ones(), axis=-1, epsilon=_EPSILON
        )
        for layer in range(shape.layers):
            attended, *grown = self._attention(normed, past[layer], lengths)
            present.append(grown)
            normed, x = self._added(x, self._matmul(attended, shape.hidden, shape.hidden))
            normed, x = self._added(x, self._feed_forward(normed))
        logits = self._matmul(normed, shape.hidden, shape.vocabulary)
        graph.output(logits, "logits", ("batch", "sequence", shape.vocabulary))
        for layer, pair in enumerate(present):
            for kind, tensor in zip(("key", "value"), pair, strict=True):
                grown = ("batch", shape.groups, "total", shape.width)
                graph.output(tensor, f"present.{layer}.{kind}", grown)
        # SimplifiedLayerNormalization is an operator of ONNX Runtime's in ONNX's domain.
        return graph.build(checked=False)

    def _lengths(self) -> tuple[str, str]:
        """The last place of each sentence [batch], and how many places there are."""
        graph = self.graph
        one = graph.constant(np.array(1, np.int64), "one")
        axis = graph.constant(np.array([1], np.int64), "axis")
        count = graph.op("ReduceSum", self.seen, axis, keepdims=0)
        last = graph.op("Cast", graph.op("Sub", count, one), to=onnx.TensorProto.INT32)
        total = graph.op("Gather", graph.op("Shape", self.seen), one)
        return last, graph.op("Cast", total, to=onnx.TensorProto.INT32)

    def _attention(self, x: str, past: list[str], lengths: tuple[str, str]) -> list[str]:
        shape = self.shape
        query, own = shape.heads * shape.width, shape.groups * shape.width
        if self.packed:
            parts = [self._matmul(x, shape.hidden, query + 2 * own), "", ""]
        else:
            parts = [self._matmul(x, shape.hidden, size) for size in (query, own, own)]
        sizes = {"num_heads": shape.heads, "kv_num_heads": shape.groups}
        return self.graph.several(
            "GroupQueryAttention",
            [True] * 3,
            *(*parts, *past, *lengths, *self.tables),
            **sizes,
            scale=float(shape.width**-0.5),
            do_rotary=1,
            rotary_interleaved=0,
            local_window_size=-1,
            softcap=0.0,
            domain=_MICROSOFT,
        )

    def _added(self, x: str, y: str) -> tuple[str, str]:
        """The sum of both, normed and as it is."""
        normed, _, _, added = self.graph.several(
            "SkipSimplifiedLayerNormalization",
            [True, False, False, True],
            *(x, y, self._ones()),
            epsilon=_EPSILON,
            domain=_MICROSOFT,
        )
        return normed, added

    def _feed_forward(self, x: str) -> str:
        hidden, inner = self.shape.hidden, self.shape.inner
        gate = self.graph.silu(self._matmul(x, hidden, inner))
        both = self.graph.op("Mul", gate, self._matmul(x, hidden, inner))
        return self._matmul(both, inner, hidden)

    def _matmul(self, x: str, inputs: int, outputs: int) -> str:
        return self.graph.op("MatMul", x, self.graph.normal((inputs, outputs), inputs**-0.5))

    def _ones(self) -> str:
        return self.graph.constant(np.ones(self.shape.hidden, np.float32), "gamma")
