"""Images that scales make one pixel larger than ONNX infers: as large as ONNX Runtime has them.

tf2onnx writes every size of an image of known extents as a scale, the ratio in fp32, and half of
them fall short of the ratio.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from tests.reference import onnxruntime_outputs


def resized(extents: tuple[int, int], sizes: tuple[int, int], opset: int) -> onnx.ModelProto:
    """An image by scales, and what is made of its shape."""
    scales = [np.float32(size / extent) for size, extent in zip(sizes, extents, strict=True)]
    stored = {
        "scales": np.float32([1, 1, *scales]),
        "flat": np.array([0, 0, -1]),
        "last": np.array(3),
    }
    inputs = ["x", "scales"] if opset < 11 else ["x", "", "scales"]
    nodes = [
        helper.make_node("Resize", inputs, ["image"], mode="linear"),
        helper.make_node("Shape", ["image"], ["shape"]),
        helper.make_node("Reshape", ["image", "flat"], ["y"]),
        helper.make_node("Gather", ["shape", "last"], ["width"]),
    ]
    float_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", float_, ["N", 3, *extents])],
        [
            helper.make_tensor_value_info("y", float_, None),
            helper.make_tensor_value_info("width", int_, []),
        ],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


#: Extents and sizes; of the first ones fp32 rounds up to the size, of the last one it does not.
CASES = [((40, 157), (26, 167)), ((192, 59), (329, 489)), ((97, 40), (32, 26))]


@pytest.mark.parametrize("opset", [10, 13, 18])
@pytest.mark.parametrize(("extents", "sizes"), CASES)
def test_sizes_are_those_of_onnx_runtime(
    extents: tuple[int, int], sizes: tuple[int, int], opset: int, tmp_path: Path
) -> None:
    model = resized(extents, sizes, opset)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, *extents)).astype("float32")}
    got = byoc.load(tmp_path / "m.so").run(feeds)
    for name, want in onnxruntime_outputs(model, feeds).items():
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)


def test_a_shape_that_a_file_claims_makes_no_difference(tmp_path: Path) -> None:
    model = onnx.shape_inference.infer_shapes(resized((40, 40), (26, 26), 13))
    assert any(
        d.dim_value == 25 for v in model.graph.value_info for d in v.type.tensor_type.shape.dim
    )
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    feeds = {"x": np.zeros((1, 3, 40, 40), np.float32)}
    assert byoc.load(tmp_path / "m.so").run(feeds)["width"] == 26


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e30])
def test_scales_without_a_size_are_refused_by_node(scale: float, tmp_path: Path) -> None:
    model = resized((40, 40), (26, 26), 13)
    (scales,) = (t for t in model.graph.initializer if t.name == "scales")
    scales.CopyFrom(numpy_helper.from_array(np.float32([1, 1, scale, scale]), "scales"))
    with pytest.raises(byoc.ByocError, match=r"operator Resize \(node"):
        byoc.compile(model, tmp_path / "m.so")
