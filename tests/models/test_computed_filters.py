"""Convolutions whose weight is computed, as one region, against ONNX Runtime."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import byoc
from tests.ir.graphs import onnx_model
from tests.reference import assert_agrees, onnxruntime_outputs

#: Operator, shape of the image, shape of the weight, attributes.  Images of fewer pixels than there
#: are outputs in a group, points, and transposed convolutions become products.
CASES = {
    "few pixels": ("Conv", (1, 4, 5, 4), (40, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    "few pixels of groups": ("Conv", (1, 6, 4, 4), (60, 2, 3, 3), {"group": 3}),
    "panels": ("Conv", (1, 5, 9, 8), (37, 5, 3, 2), {}),
    "panels of groups": ("Conv", (1, 6, 9, 9), (66, 2, 3, 3), {"group": 3}),
    "few outputs": ("Conv", (1, 19, 9, 9), (2, 19, 3, 3), {"strides": [2, 2]}),
    "correlation": ("Conv", (1, 21, 12, 11), (21, 1, 5, 5), {"group": 21}),
    "3 x 3": ("Conv", (2, 4, 9, 7), (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    "points": ("Conv", (2, 4, 5, 6), (3, 4, 1, 1), {}),
    "strides": ("Conv", (1, 3, 11, 12), (5, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    "holes": ("Conv", (1, 3, 11, 12), (5, 3, 2, 3), {"dilations": [3, 2]}),
    "groups": ("Conv", (1, 6, 8, 8), (9, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    "groups of one channel": ("Conv", (2, 5, 8, 8), (10, 1, 3, 3), {"group": 5}),
    "line": ("Conv", (2, 4, 15), (6, 4, 5), {"strides": [2], "pads": [2, 2]}),
    "transposed": ("ConvTranspose", (1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2]}),
    "transposed groups": (
        "ConvTranspose",
        (2, 6, 5, 4),
        (6, 2, 4, 3),
        {"group": 3, "strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 0]},
    ),
    "transposed, cut": ("ConvTranspose", (1, 2, 6, 5), (2, 3, 2, 2), {"pads": [2, 1, 0, 2]}),
    "volume": ("Conv", (2, 4, 5, 7, 6), (6, 4, 3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "volume of groups": (
        "Conv",
        (1, 6, 9, 8, 7),
        (9, 2, 3, 2, 3),
        {"group": 3, "strides": [2, 1, 2], "dilations": [2, 1, 1], "pads": [1, 0, 1, 2, 1, 0]},
    ),
    "volume of channels": ("Conv", (1, 5, 4, 6, 7), (5, 1, 3, 3, 2), {"group": 5}),
    "faces": ("Conv", (1, 3, 4, 8, 7), (5, 3, 1, 3, 3), {}),
    "transposed volume": (
        "ConvTranspose",
        (1, 4, 3, 5, 4),
        (4, 3, 3, 2, 3),
        {"group": 2, "strides": [2, 2, 1], "pads": [1, 0, 1, 0, 1, 2], "dilations": [2, 1, 1]},
    ),
}


#: Those that become products, of any sizes.
PRODUCTS = ("points", *(case for case in CASES if case.startswith("transposed")))


@pytest.mark.parametrize("case", ["few pixels", "few pixels of groups", "points"])
def test_large_images(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps one by one, where patches would take much memory."""
    module = sys.modules["byoc.canonicalise.computed_filters"]  # named as its function
    monkeypatch.setattr(module, "_MOST_PATCHES", 0)
    test_computed_weight(case, "fixed", tmp_path)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", ["fixed", "open"])
def test_computed_weight(case: str, size: str, tmp_path: Path) -> None:
    operator, image, weight, attributes = CASES[case]
    random = np.random.default_rng(3)
    values = random.standard_normal(weight).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["w", "s"], ["modulated"]),
        helper.make_node(operator, ["x", "modulated", "b"], ["t"], **attributes),
        helper.make_node("LeakyRelu", ["t"], ["y"], alpha=0.2),
    ]
    outputs = weight[0] if operator == "Conv" else weight[1] * attributes.get("group", 1)
    constants = {"w": values, "b": random.standard_normal(outputs).astype(np.float32)}
    names = ["n", image[1], "h", "w", "d"][: len(image)]
    shape = names if size == "open" else list(image)
    factors = [weight[0], *[1] * (len(weight) - 1)]
    model = onnx_model(nodes, {"x": shape, "s": factors}, ["y"], constants)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    few = size == "fixed" and case.startswith("few pixels")
    ways = {use.algorithm for use in done.report.kernels}
    assert ("matmul" in ways) == (few or case in PRODUCTS)
    larger = (image[0] + 1, image[1], *(extent + 5 for extent in image[2:]))
    with byoc.load(tmp_path / "m.so") as library:
        for given in (image, larger) if size == "open" else (image,):
            arrays = {"x": random.standard_normal(given), "s": random.standard_normal(factors)}
            arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
            assert_agrees(library.run(arrays), onnxruntime_outputs(model, arrays))
