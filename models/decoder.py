"""Decoders with caches, written as optimum exports them: one token, or a prompt, at a time.

Inputs are ``input_ids`` and ``position_ids`` [batch, sequence], ``attention_mask`` [batch, past +
sequence] of 1 and 0, and ``past_key_values.N.key`` and ``.value`` [batch, groups, past, width] of
each layer; outputs ``logits`` [batch, sequence, vocabulary] and ``present.N.key`` and ``.value``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .builder import GraphBuilder


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder: ``groups`` are the heads that keys and values have."""

    layers: int
    hidden: int
    heads: int
    groups: int
    inner: int
    vocabulary: int

    @property
    def width(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads


def llama(seed: int = 31, biased: bool = False, **sizes: int) -> onnx.ModelProto:
    """Llama (Touvron et al., 2023): RMSNorm, rotary positions, grouped heads, a gated SiLU.

    With ``biased`` queries, keys and values have a bias, as in Qwen 2 (Yang et al., 2024).
    """
    decoder = _Decoder("qwen2" if biased else "llama", Shape(**sizes), seed)
    return decoder.build(_Llama(decoder, biased))


def gpt2_decoder(seed: int = 32, **sizes: int) -> onnx.ModelProto:
    """GPT-2 (Radford et al., 2019): LayerNorm, learned positions, GELU."""
    decoder = _Decoder("gpt2", Shape(**sizes), seed)
    return decoder.build(_Gpt2(decoder))


class _Decoder:
    """What all decoders share: inputs, the mask, attention over the cache, outputs."""

    def __init__(self, name: str, shape: Shape, seed: int) -> None:
        self.graph, self.shape = GraphBuilder(name, seed), shape
        graph = self.graph
        self.ids = graph.input("input_ids", ("batch", "sequence"), "int64")
        self.seen = graph.input("attention_mask", ("batch", "past + sequence"), "int64")
        self.positions = graph.input("position_ids", ("batch", "sequence"), "int64")
        self.words = graph.normal((shape.vocabulary, shape.hidden), 0.05, "words")

    def build(self, style: _Llama | _Gpt2) -> onnx.ModelProto:
        graph, shape = self.graph, self.shape
        cache = ("batch", shape.groups, "past", shape.width)
        past = [
            [graph.input(f"past_key_values.{layer}.{kind}", cache) for kind in ("key", "value")]
            for layer in range(shape.layers)
        ]
        mask, present = self._mask(), []
        x = style.begin()
        for keys, values in past:
            query, key, value = style.heads(style.norm(x))
            key = graph.op("Concat", keys, key, axis=2)
            value = graph.op("Concat", values, value, axis=2)
            present.append((key, value))
            x = graph.op("Add", x, style.out(self._attention(query, key, value, mask)))
            x = graph.op("Add", x, style.feed_forward(style.norm(x)))
        table = graph.op("Transpose", self.words, perm=[1, 0])
        logits = graph.op("MatMul", style.norm(x), table)
        graph.output(logits, "logits", ("batch", "sequence", shape.vocabulary))
        grown = ("batch", shape.groups, "past + sequence", shape.width)
        for layer, pair in enumerate(present):
            for kind, tensor in zip(("key", "value"), pair, strict=True):
                graph.output(tensor, f"present.{layer}.{kind}", grown)
        return graph.build()

    def split_heads(self, x: str, heads: int) -> str:
        """[batch, sequence, heads * width] as [batch, heads, sequence, width]."""
        parted = self.graph.reshape(x, (0, 0, heads, self.shape.width))
        return self.graph.op("Transpose", parted, perm=[0, 2, 1, 3])

    def matmul(self, x: str, features: tuple[int, int], biased: bool = False) -> str:
        """A linear layer over the last axis."""
        graph = self.graph
        weight = graph.normal(features, np.sqrt(1.0 / features[0]))
        y = graph.op("MatMul", x, weight)
        return graph.op("Add", y, graph.normal((features[1],), 0.02, "bias")) if biased else y

    def _attention(self, query: str, key: str, value: str, mask: str) -> str:
        graph, shape = self.graph, self.shape
        key, value = self._repeated(key), self._repeated(value)
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        scale = graph.constant(np.float32(1 / np.sqrt(shape.width)), "scale")
        scores = graph.op("Add", graph.op("Mul", scores, scale), mask)
        y = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        y = graph.op("Transpose", y, perm=[0, 2, 1, 3])
        return graph.reshape(y, (0, 0, shape.heads * shape.width))

    def _repeated(self, x: str) -> str:
        """[batch, groups, n, width] as [batch, heads, n, width], each for a group of heads."""
        graph, shape = self.graph, self.shape
        times = shape.heads // shape.groups
        if times == 1:
            return x
        axis = graph.constant(np.array([2], np.int64), "axis")
        ones = np.array([1, 1, times, 1, 1], np.int64)
        wide = graph.op("Expand", graph.op("Unsqueeze", x, axis), graph.constant(ones, "times"))
        return graph.reshape(wide, (0, shape.heads, -1, shape.width))

    def _mask(self) -> str:
        """[batch, 1, sequence, past + sequence]: 0 where a token may look."""
        graph = self.graph

        def number(value: int) -> str:
            return graph.constant(np.array(value, np.int64), "number")

        def axes(*places: int) -> str:
            return graph.constant(np.array(places, np.int64), "axes")

        length = graph.op("Gather", graph.op("Shape", self.ids), number(1))
        total = graph.op("Gather", graph.op("Shape", self.seen), number(1))
        keys = graph.op("Range", number(0), total, number(1))
        queries = graph.op("Range", graph.op("Sub", total, length), total, number(1))
        behind = graph.op("Unsqueeze", queries, axes(1))
        causal = graph.op("LessOrEqual", graph.op("Unsqueeze", keys, axes(0)), behind)
        given = graph.op("Cast", graph.op("Unsqueeze", self.seen, axes(1, 2)), to=9)
        allowed = graph.op("And", graph.op("Unsqueeze", causal, axes(0, 1)), given)
        zero = graph.constant(np.float32(0.0), "zero")
        return graph.op("Where", allowed, zero, graph.constant(np.finfo(np.float32).min, "lowest"))


class _Llama:
    def __init__(self, decoder: _Decoder, biased: bool) -> None:
        self.decoder, self.graph, self.shape = decoder, decoder.graph, decoder.shape
        self.biased = biased
        self._angles: tuple[str, str] | None = None

    def begin(self) -> str:
        graph, width = self.graph, self.shape.width
        steps = 1e4 ** (-np.arange(0, width, 2, dtype=np.float32) / width)
        places = graph.op("Cast", self.decoder.positions, to=1)
        axis = graph.constant(np.array([1, 3], np.int64), "axes")
        angles = graph.op(
            "Mul", graph.op("Unsqueeze", places, axis), graph.constant(steps, "steps")
        )
        angles = graph.op("Concat", angles, angles, axis=-1)
        self._angles = graph.op("Cos", angles), graph.op("Sin", angles)
        return graph.op("Gather", self.decoder.words, self.decoder.ids)

    def norm(self, x: str) -> str:
        """x / sqrt(mean(x^2) + 1e-6) times a weight."""
        graph = self.graph
        square = graph.op("Pow", x, graph.constant(np.float32(2.0), "two"))
        mean = graph.op("ReduceMean", square, axes=[-1], keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", mean, graph.constant(np.float32(1e-6), "epsilon")))
        weight = graph.constant(np.ones(self.shape.hidden, np.float32), "gamma")
        return graph.op("Mul", graph.op("Div", x, root), weight)

    def heads(self, x: str) -> tuple[str, str, str]:
        shape, decoder = self.shape, self.decoder
        query, key, value = (
            decoder.split_heads(
                decoder.matmul(x, (shape.hidden, count * shape.width), self.biased), count
            )
            for count in (shape.heads, shape.groups, shape.groups)
        )
        return self._rotated(query), self._rotated(key), value

    def out(self, x: str) -> str:
        return self.decoder.matmul(x, (self.shape.hidden, self.shape.hidden))

    def feed_forward(self, x: str) -> str:
        hidden, inner = self.shape.hidden, self.shape.inner
        gate = self.graph.silu(self.decoder.matmul(x, (hidden, inner)))
        both = self.graph.op("Mul", gate, self.decoder.matmul(x, (hidden, inner)))
        return self.decoder.matmul(both, (inner, hidden))

    def _rotated(self, x: str) -> str:
        """x cos + (-x2, x1) sin, with x1 and x2 the halves of x."""
        graph = self.graph
        cos, sin = self._angles
        first, second = graph.split(x, [self.shape.width // 2] * 2, 3)
        turned = graph.op("Concat", graph.op("Neg", second), first, axis=-1)
        return graph.op("Add", graph.op("Mul", x, cos), graph.op("Mul", turned, sin))


class _Gpt2:
    def __init__(self, decoder: _Decoder) -> None:
        self.decoder, self.graph, self.shape = decoder, decoder.graph, decoder.shape

    def begin(self) -> str:
        graph, decoder = self.graph, self.decoder
        table = graph.normal((1024, self.shape.hidden), 0.05, "positions")
        places = graph.op("Gather", table, decoder.positions)
        return graph.op("Add", graph.op("Gather", decoder.words, decoder.ids), places)

    def norm(self, x: str) -> str:
        return self.graph.layer_norm(x, self.shape.hidden)

    def heads(self, x: str) -> tuple[str, str, str]:
        hidden = self.shape.hidden
        joined = self.decoder.matmul(x, (hidden, 3 * hidden), True)
        parts = self.graph.split(joined, [hidden] * 3, 2)
        query, key, value = (self.decoder.split_heads(p, self.shape.heads) for p in parts)
        return query, key, value

    def out(self, x: str) -> str:
        return self.decoder.matmul(x, (self.shape.hidden, self.shape.hidden), True)

    def feed_forward(self, x: str) -> str:
        hidden, inner = self.shape.hidden, self.shape.inner
        wide = self.graph.gelu(self.decoder.matmul(x, (hidden, inner), True))
        return self.decoder.matmul(wide, (inner, hidden), True)
