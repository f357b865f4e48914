"""A small classifier of pictures with any number of rows, compiled, and ONNX Runtime's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from byoc.compiler.compile import compile
from models.builder import GraphBuilder

SIDE = 16
#: Pictures of a job: no multiple of a batch.
COUNT = 23
CLASSES = 10
_HIDDEN = 768


def classifier(seed: int = 7, batch: int | str = "batch") -> onnx.ModelProto:
    """Image [batch, 3, 16, 16] to scores [batch, 10], with 2.4 MB of weights."""
    graph = GraphBuilder("classifier", seed)
    x = graph.input("image", (batch, 3, SIDE, SIDE))
    x = graph.op("Relu", graph.conv(x, (3, 16), 3, stride=2))
    x = graph.op("Relu", graph.conv(x, (16, 32), 3, stride=2))
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x))
    for sizes in ((32, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, CLASSES)):
        x = graph.op("Relu", x) if sizes[0] != 32 else x
        x = graph.op("MatMul", x, graph.normal(sizes, (2 / sizes[0]) ** 0.5))
    graph.output(x, "scores", (batch, CLASSES))
    return graph.build()


def pictures(count: int, seed: int = 1) -> np.ndarray:
    """So many pictures as bytes, [count, 16, 16, 3]."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)


def images(pictures: np.ndarray) -> np.ndarray:
    """Pictures as the network takes them."""
    return np.ascontiguousarray((pictures.astype("f4") / 255).transpose(0, 3, 1, 2))


def compile_whole(model: onnx.ModelProto, path: Path) -> Path:
    """Compile a network, which must be offloaded to the last operator."""
    report = compile(model, path).report
    assert report.operators > 0 and not report.left
    return path
