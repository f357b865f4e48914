"""Resizing of images in numpy, from the formulas of the ONNX operator specification (Resize)."""

from __future__ import annotations

import numpy as np

from codegen_cc.node import Node


def resize2d(node: Node, x: np.ndarray) -> np.ndarray:
    """[N, C, H, W] to the node's size; every axis is a matrix of weights."""
    down, across = (
        weights_of(node, extent, size)
        for extent, size in zip(x.shape[2:], node.shape[2:], strict=True)
    )
    return np.einsum("nchw,ih,jw->ncij", x, down, across)


def weights_of(node: Node, extent: int, size: int) -> np.ndarray:
    """[size, extent]: what each element of the result takes from each of the operand."""
    attrs = node.attrs
    weights = np.zeros((size, extent))
    for i in range(size):
        at = coordinate(attrs["coordinate"], i, extent, size)
        if attrs["method"] == "nearest":
            weights[i, int(np.clip(rounded(attrs["rounding"], at), 0, extent - 1))] = 1.0
            continue
        first = int(np.floor(at))
        share = at - first
        if attrs["method"] == "linear":
            taps = {0: 1 - share, 1: share}
        else:
            taps = cubic(share, attrs["cubic_alpha"])
        if attrs["method"] == "cubic" and attrs["cubic_exclude"]:
            taps = {k: w for k, w in taps.items() if 0 <= first + k < extent}
            taps = {k: w / sum(taps.values()) for k, w in taps.items()}
        for k, weight in taps.items():
            weights[i, int(np.clip(first + k, 0, extent - 1))] += weight
    return weights


def coordinate(mode: str, i: int, extent: int, size: int) -> float:
    """Where element ``i`` of the result lies in the operand."""
    scale = extent / size
    return {
        "half_pixel": lambda: (i + 0.5) * scale - 0.5,
        "pytorch_half_pixel": lambda: (i + 0.5) * scale - 0.5 if size > 1 else 0.0,
        "align_corners": lambda: i * (extent - 1) / (size - 1) if size > 1 else 0.0,
        "asymmetric": lambda: i * scale,
        "tf_half_pixel_for_nn": lambda: (i + 0.5) * scale,
    }[mode]()


def rounded(mode: str, at: float) -> float:
    """The nearest element; halves go to the even one unless the mode says otherwise."""
    return {
        "round": lambda: np.rint(at),
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
    }[mode]()


def cubic(share: float, alpha: float) -> dict[int, float]:
    """Weights of the four neighbours of a point (Keys, 1981)."""

    def near(t: float) -> float:
        return ((alpha + 2) * t - (alpha + 3)) * t * t + 1

    def far(t: float) -> float:
        return ((alpha * t - 5 * alpha) * t + 8 * alpha) * t - 4 * alpha

    return {-1: far(share + 1), 0: near(share), 1: near(1 - share), 2: far(2 - share)}
