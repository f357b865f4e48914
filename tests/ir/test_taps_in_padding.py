"""Taps of convolutions that meet padding alone are left out, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random

#: By name: image, kernel, pads, strides, dilations, and the taps that are left.
CASES: dict[str, tuple[tuple[int, ...], ...]] = {
    "the middle": ((8, 8), (3, 3), (12, 12, 12, 12), (1, 1), (12, 12), (1, 1)),
    "one pixel": ((1, 1), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), (1, 1)),
    "a row": ((1, 9), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1), (1, 3)),
    "with strides": ((6, 5), (3, 5), (8, 16, 8, 16), (2, 3), (8, 8), (1, 1)),
    "all": ((8, 8), (3, 3), (7, 7, 7, 7), (1, 1), (7, 7), (3, 3)),
    "less padding behind": ((5, 5), (3, 3), (6, 6, 6, 2), (1, 1), (6, 6), (1, 2)),
    "padding alone": ((2, 2), (1, 1), (9, 9, 0, 0), (20, 20), (1, 1), (1, 1)),
    "more than the taps": ((4, 4), (2, 2), (9, 9, 9, 9), (1, 1), (5, 5), (2, 2)),
}


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_taps(case: str, groups: int, tmp_path: Path) -> None:
    image, kernel, pads, strides, dilations, left = CASES[case]
    attributes = {"pads": pads, "strides": strides, "dilations": dilations, "group": groups}
    model = onnx_model(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)],
        {"x": [2, 4, *image]},
        ["y"],
        {"w": random(8, 4 // groups, *kernel), "b": random(8, seed=1)},
    )
    report = partition_with_report(import_onnx(prepare(model)), min_bytes=0)[1]
    feed = {"x": random(2, 4, *image, seed=2)}
    expected = onnxruntime_outputs(model, feed)
    pixels = int(np.prod(expected["y"].shape))
    assert [region.macs for region in report.regions] == [pixels * 4 // groups * int(np.prod(left))]
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert_agrees(byoc.load(tmp_path / "m.so").run(feed), expected)
