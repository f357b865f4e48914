"""Col2Im, which puts windows into images, as one region, against ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import byoc
from tests.ir.graphs import onnx_model

#: Image, block, attributes.
CASES = {
    "apart": ([6, 8], [2, 2], {"strides": [2, 2]}),
    "overlapping": ([7, 5], [3, 3], {}),
    "overlapping, in steps": ([14, 14], [3, 3], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "gaps": ([9, 11], [2, 3], {"strides": [3, 4]}),
    "taps apart": ([9, 10], [3, 2], {"dilations": [2, 3], "strides": [2, 1]}),
    "rest": ([10, 11], [3, 3], {"strides": [3, 2], "pads": [0, 2, 1, 0]}),
    "line": ([12], [4], {"strides": [2]}),
    "volume": ([4, 5, 6], [2, 1, 3], {"pads": [0, 0, 1, 1, 0, 1]}),
}


def _windows(image: list[int], block: list[int], attributes: dict[str, list[int]]) -> int:
    rank = len(image)
    strides, dilations = (attributes.get(n, [1] * rank) for n in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 2 * rank)
    return int(
        np.prod(
            [
                (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1)
                // strides[i]
                + 1
                for i in range(rank)
            ]
        )
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", ["n", 2])
def test_col2im(case: str, batch: str | int, tmp_path: Path) -> None:
    image, block, attributes = CASES[case]
    rows, windows = 3 * int(np.prod(block)), _windows(image, block, attributes)
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    sizes = {"image": np.array(image), "block": np.array(block)}
    model = onnx_model([node], {"x": [batch, rows, windows]}, ["y"], sizes, 18)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    judge = ReferenceEvaluator(model)
    with byoc.load(tmp_path / "m.so") as library:
        for count in (2, 1, 0) if batch == "n" else (2,):
            x = np.random.default_rng(0).standard_normal((count, rows, windows)).astype("f")
            x[..., :1] = np.inf  # meets no tap but its own
            if count == 0:  # of which the judge makes nothing
                assert library.run({"x": x})["y"].shape == (0, 3, *image)
                continue
            (want,) = judge.run(None, {"x": x})
            np.testing.assert_allclose(library.run({"x": x})["y"], want, atol=1e-5)
