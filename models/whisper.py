"""Whisper (Radford et al., 2022): features of sound, an encoder, and a decoder with a cache.

    log_mel: sound [1, samples], 16,000 a second -> features [1, mels, samples / 160]
    encoder: features -> cross.N.key, cross.N.value [1, heads, samples / 320, width] of each layer
    decoder: input_ids [1, sequence], cross.*, past_key_values.N.key and .value
             -> logits [1, sequence, vocabulary], present.*

Weights are seeded. The decoder's own keys and values grow; those of the sound stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .builder import GraphBuilder

RATE, WINDOW, HOP = 16_000, 400, 160
#: Seconds that the network hears at once.
SECONDS = 30
_PLACES = 448


@dataclass(frozen=True)
class WhisperShape:
    """Sizes of the encoder, which are the decoder's as well."""

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    vocabulary: int = 300
    mels: int = 80

    @property
    def width(self) -> int:
        """Numbers of a head."""
        return self.hidden // self.heads


SMALL = WhisperShape()


def mel_filters(mels: int) -> np.ndarray:
    """Triangles over the frequencies of a window [WINDOW / 2 + 1, mels], of equal areas (Slaney).

    Mels are linear up to 1,000 Hz, and logarithmic above.
    """
    turn, steps = 15.0, 27.0 / np.log(6.4)
    most = turn + steps * np.log(RATE / 2 / 1000)
    marks = np.linspace(0, most, mels + 2)
    hertz = np.where(marks < turn, marks * 200 / 3, 1000 * np.exp((marks - turn) / steps))
    places = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    left, middle, right = hertz[:-2], hertz[1:-1], hertz[2:]
    rising = (places[:, None] - left) / (middle - left)
    falling = (right - places[:, None]) / (right - middle)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return (triangles * 2 / (right - left)).astype(np.float32)


def log_mel(seconds: int = SECONDS, mels: int = SMALL.mels) -> onnx.ModelProto:
    """Logarithms of the power that mels have, in windows of 25 ms, one each 10 ms."""
    graph, samples = GraphBuilder("log_mel", 0), seconds * RATE
    sound = graph.input("sound", (1, samples))
    half = np.array([0, WINDOW // 2] * 2, np.int64)
    padded = graph.op("Pad", sound, graph.constant(half, "pads"), mode="reflect")
    signal = graph.reshape(padded, (1, samples + WINDOW, 1))
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW, dtype=np.float32) / WINDOW)
    step = graph.constant(np.array(HOP, np.int64), "step")
    spectrum = graph.op("STFT", signal, step, graph.constant(window, "window"), onesided=1)
    power = graph.op("Mul", spectrum, spectrum)
    axis = graph.constant(np.array([3], np.int64), "axis")
    power = graph.op("ReduceSum", power, axis, keepdims=0)
    # The window that begins with the last sample is left out.
    bounds = (np.array([place], np.int64) for place in (0, samples // HOP, 1))
    power = graph.op("Slice", power, *(graph.constant(bound, "bound") for bound in bounds))
    mel = graph.op("MatMul", power, graph.constant(mel_filters(mels), "filters"))

    def number(value: float) -> str:
        return graph.constant(np.float32(value), "number")

    tens = graph.op("Log", graph.op("Max", mel, number(1e-10)))
    tens = graph.op("Mul", tens, number(1 / np.log(10)))
    most = graph.op("ReduceMax", tens, axes=[0, 1, 2], keepdims=1)
    tens = graph.op("Max", tens, graph.op("Sub", most, number(8)))
    scaled = graph.op("Mul", graph.op("Add", tens, number(4)), number(0.25))
    features = graph.op("Transpose", scaled, perm=[0, 2, 1])
    graph.output(features, "features", (1, mels, samples // HOP))
    return graph.build()


def encoder(seconds: int = SECONDS, shape: WhisperShape = SMALL) -> onnx.ModelProto:
    """Two convolutions and layers of attention, then keys and values for the decoder's layers."""
    net = _Layers("whisper_encoder", 41, shape)
    graph, frames = net.graph, seconds * RATE // HOP
    x = graph.input("features", (1, shape.mels, frames))
    for channels, stride in ((shape.mels, 1), (shape.hidden, 2)):
        weight = graph.normal((shape.hidden, channels, 3), (2.0 / (3 * channels)) ** 0.5)
        bias = graph.normal((shape.hidden,), 0.1, "bias")
        sizes = {"kernel_shape": [3], "pads": [1, 1], "strides": [stride]}
        x = graph.gelu(graph.op("Conv", x, weight, bias, **sizes))
    x = graph.op("Transpose", x, perm=[0, 2, 1])
    steps = np.exp(-np.log(1e4) * np.arange(shape.hidden // 2) / (shape.hidden // 2 - 1))
    angles = np.arange(frames // 2)[:, None] * steps
    places = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
    x = graph.op("Add", x, graph.constant(places, "places"))
    for _ in range(shape.layers):
        y = net.norm(x)
        x = graph.op("Add", x, net.attention(net.heads(y), net.heads(y), net.heads(y)))
        x = graph.op("Add", x, net.feed_forward(net.norm(x)))
    x = net.norm(x)
    for layer in range(shape.layers):
        for kind in ("key", "value"):
            sizes = (1, shape.heads, frames // 2, shape.width)
            graph.output(net.heads(x), f"cross.{layer}.{kind}", sizes)
    return graph.build()


def decoder(seconds: int = SECONDS, shape: WhisperShape = SMALL) -> onnx.ModelProto:
    """Layers of attention over what was written, and over the sound."""
    net = _Layers("whisper_decoder", 42, shape)
    graph, heads = net.graph, (1, shape.heads)
    ids = graph.input("input_ids", (1, "sequence"), "int64")
    rows = {"cross": seconds * RATE // HOP // 2, "past_key_values": "past"}
    kept = {
        name: graph.input(name, (*heads, rows[group], shape.width))
        for group in rows
        for layer in range(shape.layers)
        for name in (f"{group}.{layer}.key", f"{group}.{layer}.value")
    }
    mask, places = _mask(graph, ids, kept["past_key_values.0.key"])
    words = graph.normal((shape.vocabulary, shape.hidden), 0.05, "words")
    table = graph.normal((_PLACES, shape.hidden), 0.05, "places")
    x = graph.op("Add", graph.op("Gather", words, ids), graph.op("Gather", table, places))
    for layer in range(shape.layers):
        y, pair = net.norm(x), []
        for kind in ("key", "value"):
            past = kept[f"past_key_values.{layer}.{kind}"]
            pair.append(graph.op("Concat", past, net.heads(y), axis=2))
            grown = (*heads, "past + sequence", shape.width)
            graph.output(pair[-1], f"present.{layer}.{kind}", grown)
        x = graph.op("Add", x, net.attention(net.heads(y), *pair, mask))
        sound = (kept[f"cross.{layer}.{kind}"] for kind in ("key", "value"))
        x = graph.op("Add", x, net.attention(net.heads(net.norm(x)), *sound))
        x = graph.op("Add", x, net.feed_forward(net.norm(x)))
    logits = graph.op("MatMul", net.norm(x), graph.op("Transpose", words, perm=[1, 0]))
    graph.output(logits, "logits", (1, "sequence", shape.vocabulary))
    return graph.build()


def _mask(graph: GraphBuilder, ids: str, past: str) -> tuple[str, str]:
    """What hides later tokens [sequence, past + sequence], and the places [sequence] of these."""

    def number(value: int) -> str:
        return graph.constant(np.array(value, np.int64), "number")

    def axes(place: int) -> str:
        return graph.constant(np.array([place], np.int64), "axes")

    before = graph.op("Gather", graph.op("Shape", past), number(2))
    length = graph.op("Gather", graph.op("Shape", ids), number(1))
    total = graph.op("Add", before, length)
    keys = graph.op("Range", number(0), total, number(1))
    queries = graph.op("Range", before, total, number(1))
    later = graph.op(
        "Greater", graph.op("Unsqueeze", keys, axes(0)), graph.op("Unsqueeze", queries, axes(1))
    )
    lowest, zero = (
        graph.constant(np.float32(value), "number") for value in (np.finfo(np.float32).min, 0.0)
    )
    return graph.op("Where", later, lowest, zero), queries


class _Layers:
    """What encoder and decoder are made of; norms stand before what they are for."""

    def __init__(self, name: str, seed: int, shape: WhisperShape) -> None:
        self.graph, self.shape = GraphBuilder(name, seed), shape

    def norm(self, x: str) -> str:
        return self.graph.layer_norm(x, self.shape.hidden)

    def heads(self, x: str) -> str:
        """A linear layer [1, n, hidden] as [1, heads, n, width]."""
        shape = self.shape
        y = self.graph.linear(x, (shape.hidden, shape.hidden))
        parted = self.graph.reshape(y, (0, 0, shape.heads, shape.width))
        return self.graph.op("Transpose", parted, perm=[0, 2, 1, 3])

    def attention(self, query: str, key: str, value: str, mask: str = "") -> str:
        graph, shape = self.graph, self.shape
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        scale = graph.constant(np.float32(shape.width**-0.5), "scale")
        scores = graph.op("Mul", scores, scale)
        scores = graph.op("Add", scores, mask) if mask else scores
        y = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        y = graph.reshape(graph.op("Transpose", y, perm=[0, 2, 1, 3]), (0, 0, shape.hidden))
        return graph.linear(y, (shape.hidden, shape.hidden))

    def feed_forward(self, x: str) -> str:
        hidden = self.shape.hidden
        return self.graph.linear(
            self.graph.gelu(self.graph.linear(x, (hidden, 4 * hidden))), (4 * hidden, hidden)
        )
