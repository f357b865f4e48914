"""Layer norms over the channels of images, as Keras' and PyTorch's exporters write them."""

from __future__ import annotations

from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest

import byoc
from tests.models.test_group_norm import CHANNELS, Graph, check, compiled


def deviation(g: Graph, x: str) -> tuple[str, str, str]:
    """The mean over channels, what is left without it, and the root of the variance."""
    mean = g.call("ReduceMean", x, axes=[1])
    d = g.call("Sub", x, mean)
    variance = g.call("ReduceMean", g.call("Mul", d, d), axes=[1])
    return mean, d, g.call("Sqrt", g.call("Add", variance, g.weight(np.float32(1e-3))))


def keras(g: Graph, x: str) -> str:
    """What tf2onnx makes of LayerNormalization: scale and shift first, then x once."""
    mean, _, root = deviation(g, x)
    scale = g.call("Mul", g.call("Reciprocal", root), g.floats(1, CHANNELS, 1, 1))
    less = g.call("Mul", g.call("Neg", mean), scale)
    shift = g.call("Add", less, g.floats(1, CHANNELS, 1, 1))
    return g.call("Add", g.call("Mul", x, scale), shift)


def torch(g: Graph, x: str) -> str:
    """LayerNorm2d of Segment Anything, NAFNet and others."""
    _, d, root = deviation(g, x)
    y = g.call("Mul", g.floats(CHANNELS, 1, 1), g.call("Div", d, root))
    return g.call("Add", y, g.floats(CHANNELS, 1, 1))


def gelu(g: Graph, x: str) -> str:
    """tf2onnx's: the cube in channels-last, the rest not."""
    number = {
        value: g.weight(np.float32(value)) for value in (0.5, 1.0, 3.0, 0.044715, sqrt(2 / pi))
    }
    cube = g.call("Pow", g.call("Transpose", x, perm=[0, 2, 3, 1]), number[3.0])
    cube = g.call("Transpose", g.call("Mul", number[0.044715], cube), perm=[0, 3, 1, 2])
    inner = g.call("Mul", number[sqrt(2 / pi)], g.call("Add", x, cube))
    gate = g.call("Add", number[1.0], g.call("Tanh", inner))
    return g.call("Mul", g.call("Mul", number[0.5], x), gate)


def kernels(done: byoc.Compiled) -> dict[str, int]:
    (region,) = done.report.regions
    assert region.plan.copies_inside == 0
    return {use.algorithm: use.nodes for use in done.report.kernels}


@pytest.mark.parametrize("norm", [keras, torch])
@pytest.mark.parametrize("shape", [[2, 3, 20, 24], ["n", 3, "h", "w"]])
def test_one_kernel(norm, shape: list[int | str], tmp_path: Path) -> None:
    g = Graph()
    y = norm(g, g.conv(gelu(g, norm(g, g.conv("x", 3)))))
    taken = kernels(compiled(g.model(y, shape), tmp_path))
    assert taken["layer_norm"] == 2 and taken["unary"] == 1, taken
    assert not {"mul", "add", "sub", "pow", "tanh", "reduce_mean"} & {*taken}, taken
    shapes = [(2, 3, 20, 24)] if shape[0] == 2 else [(1, 3, 5, 7), (3, 3, 16, 9)]
    check(g.model(y, shape), tmp_path, *shapes, limit=2e-5)
