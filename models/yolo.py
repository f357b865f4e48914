"""A YOLOv8-style detector (Jocher et al., 2023), width and depth of its smallest version."""

from __future__ import annotations

import numpy as np
import onnx

from .builder import GraphBuilder

#: Bins in which the head gives each side of a box.
_BINS = 16
_STRIDES = (8, 16, 32)


def yolo(
    size: int | None = 320, classes: int = 80, batch: int = 1, seed: int = 8
) -> onnx.ModelProto:
    """Image [batch, 3, size, size] to boxes (centre, width, height) and class scores.

    The output ``detections`` is [batch, 4 + classes, cells]; ``size`` is a multiple of 32.  None
    means any height and width: the graph then computes where its cells are, as exporters write it.
    """
    graph = GraphBuilder("yolo", seed)
    sides_of_image = ("height", "width") if size is None else (size, size)
    x = _conv(graph, graph.input("image", (batch, 3, *sides_of_image)), (3, 16), 3, 2)
    x = _stage(graph, _conv(graph, x, (16, 32), 3, 2), (32, 32), 1, True)
    fine = _stage(graph, _conv(graph, x, (32, 64), 3, 2), (64, 64), 2, True)
    middle = _stage(graph, _conv(graph, fine, (64, 128), 3, 2), (128, 128), 2, True)
    coarse = _stage(graph, _conv(graph, middle, (128, 256), 3, 2), (256, 256), 1, True)
    coarse = _pyramid_pool(graph, coarse, 256)
    down = _stage(graph, _joined(graph, _twice(graph, coarse), middle), (384, 128), 1, False)
    small = _stage(graph, _joined(graph, _twice(graph, down), fine), (192, 64), 1, False)
    up = _joined(graph, _conv(graph, small, (64, 64), 3, 2), down)
    medium = _stage(graph, up, (192, 128), 1, False)
    up = _joined(graph, _conv(graph, medium, (128, 128), 3, 2), coarse)
    large = _stage(graph, up, (384, 256), 1, False)
    levels = ((small, 64), (medium, 128), (large, 256))
    heads = [
        graph.reshape(_head(graph, level, channels, classes), (0, 4 * _BINS + classes, -1))
        for level, channels in levels
    ]
    sides, scores = graph.split(_joined(graph, *heads, axis=2), [4 * _BINS, classes], 1)
    if size is None:
        cells = _computed_cells(graph, [level for level, _ in levels])
    else:
        cells = (
            graph.constant(_centres(size), "centres"),
            graph.constant(_strides(size), "strides"),
        )
    boxes = _boxes(graph, sides, *cells)
    result = _joined(graph, boxes, graph.op("Sigmoid", scores))
    count = "cells" if size is None else sum((size // stride) ** 2 for stride in _STRIDES)
    graph.output(result, "detections", (batch, 4 + classes, count))
    return graph.build()


def _conv(
    graph: GraphBuilder, x: str, channels: tuple[int, int], kernel: int = 1, stride: int = 1
) -> str:
    return graph.silu(graph.conv(x, channels, kernel, stride=stride))


def _joined(graph: GraphBuilder, *parts: str, axis: int = 1) -> str:
    return graph.op("Concat", *parts, axis=axis)


def _twice(graph: GraphBuilder, x: str) -> str:
    """The image at twice its height and width."""
    scales = graph.constant(np.array([1, 1, 2, 2], np.float32), "scales")
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return graph.op("Resize", x, "", scales, mode="nearest", **modes)


def _stage(
    graph: GraphBuilder, x: str, channels: tuple[int, int], depth: int, residual: bool
) -> str:
    """Half of the channels pass a chain of blocks; all steps of the chain are joined."""
    half = channels[1] // 2
    parts = graph.split(_conv(graph, x, channels), [half, half], 1)
    for _ in range(depth):
        y = _conv(graph, _conv(graph, parts[-1], (half, half), 3), (half, half), 3)
        parts.append(graph.op("Add", parts[-1], y) if residual else y)
    return _conv(graph, _joined(graph, *parts), ((2 + depth) * half, channels[1]))


def _pyramid_pool(graph: GraphBuilder, x: str, channels: int) -> str:
    """The image beside its maxima over windows of 5, 9 and 13 pixels."""
    parts = [_conv(graph, x, (channels, channels // 2))]
    for _ in range(3):
        pool = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
        parts.append(graph.op("MaxPool", parts[-1], **pool))
    return _conv(graph, _joined(graph, *parts), (2 * channels, channels))


def _head(graph: GraphBuilder, x: str, channels: int, classes: int) -> str:
    """Sides of boxes and class scores of one level."""
    parts = []
    for width, result in ((64, 4 * _BINS), (80, classes)):
        y = _conv(graph, _conv(graph, x, (channels, width), 3), (width, width), 3)
        parts.append(graph.conv(y, (width, result), 1, gain=1.0))
    return _joined(graph, *parts)


def _boxes(graph: GraphBuilder, sides: str, centres: str, strides: str) -> str:
    """Each side is the mean of a softmax over its bins, in cells from the cell's centre."""
    bins = graph.op("Transpose", graph.reshape(sides, (0, 4, _BINS, -1)), perm=[0, 2, 1, 3])
    weight = graph.constant(np.arange(_BINS, dtype=np.float32).reshape(1, _BINS, 1, 1), "bins")
    means = graph.op("Conv", graph.op("Softmax", bins, axis=1), weight)
    before, after = (
        graph.op("Slice", graph.reshape(means, (0, 4, -1)), *_bounds(graph, begin, begin + 2))
        for begin in (0, 2)
    )
    low, high = graph.op("Sub", centres, before), graph.op("Add", centres, after)
    two = graph.constant(np.float32(2.0), "two")
    middle = graph.op("Div", graph.op("Add", low, high), two)
    boxes = _joined(graph, middle, graph.op("Sub", high, low))
    return graph.op("Mul", boxes, strides)


def _bounds(graph: GraphBuilder, begin: int, end: int) -> list[str]:
    """Inputs of a Slice along axis 1."""
    return [graph.constant(np.array([value], np.int64), "bound") for value in (begin, end, 1)]


def _centres(size: int) -> np.ndarray:
    """[1, 2, cells]: x and y of every cell's centre, in units of its level's stride."""
    levels = []
    for stride in _STRIDES:
        y, x = np.mgrid[: size // stride, : size // stride].astype(np.float32) + 0.5
        levels.append(np.stack([x.ravel(), y.ravel()]))
    return np.concatenate(levels, axis=1)[None]


def _strides(size: int) -> np.ndarray:
    """[1, cells]: the stride of every cell's level."""
    levels = [np.full((size // stride) ** 2, stride, np.float32) for stride in _STRIDES]
    return np.concatenate(levels)[None]


def _computed_cells(graph: GraphBuilder, levels: list[str]) -> tuple[str, str]:
    """What ``_centres`` and ``_strides`` give, from the shapes of the levels' images."""
    centres, strides = [], []
    for level, stride in zip(levels, _STRIDES, strict=True):
        shape = graph.op("Shape", level)
        extents = [graph.op("Gather", shape, _integer(graph, axis)) for axis in (2, 3)]
        lists = [graph.op("Unsqueeze", extent, _integers(graph, 0)) for extent in extents]
        grid = graph.op("Concat", *lists, axis=0)
        flat = []
        for axis in (1, 0):  # x runs along the width, y along the height
            numbers = graph.op("Range", _integer(graph, 0), extents[axis], _integer(graph, 1))
            middle = graph.op(
                "Add",
                graph.op("Cast", numbers, to=onnx.TensorProto.FLOAT),
                graph.constant(np.float32(0.5), "half"),
            )
            line = graph.op("Unsqueeze", middle, _integers(graph, 1 - axis))
            flat.append(graph.reshape(graph.op("Expand", line, grid), (1, 1, -1)))
        centres.append(_joined(graph, *flat))
        count = graph.op("Unsqueeze", graph.op("Mul", *extents), _integers(graph, 0))
        value = onnx.numpy_helper.from_array(np.array([stride], np.float32))
        ones = graph.op("Concat", _integers(graph, 1), count, axis=0)
        strides.append(graph.op("ConstantOfShape", ones, value=value))
    return _joined(graph, *centres, axis=2), _joined(graph, *strides, axis=1)


def _integer(graph: GraphBuilder, value: int) -> str:
    return graph.constant(np.array(value, np.int64), "integer")


def _integers(graph: GraphBuilder, value: int) -> str:
    return graph.constant(np.array([value], np.int64), "integers")
