"""GridSample against ONNX Runtime, of fixed and of open sizes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

FORMS = {
    f"{mode}_{padding}_{corners}": {
        "mode": mode,
        "padding_mode": padding,
        "align_corners": corners,
    }
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    )
}


def network(image: list[int | str], grid: list[int | str]) -> onnx.ModelProto:
    """Every form of one image and grid, behind and before other operators."""
    nodes = [helper.make_node("Relu", ["x"], ["image"])]
    for name, attributes in FORMS.items():
        nodes.append(helper.make_node("GridSample", ["image", "grid"], [name], **attributes))
        nodes.append(helper.make_node("Neg", [name], [f"y_{name}"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "sampled",
        [info("x", TensorProto.FLOAT, image), info("grid", TensorProto.FLOAT, grid)],
        [info(f"y_{name}", TensorProto.FLOAT, None) for name in FORMS],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize("sizes", ["open", "fixed"])
def test_all_forms_are_one_region(tmp_path: Path, sizes: str) -> None:
    fixed = [2, 5, 6, 7], [2, 4, 3, 2]
    shapes = fixed if sizes == "fixed" else (["n", 5, "h", "w"], ["n", "r", "c", 2])
    model = network(*shapes)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    rng = np.random.default_rng(2)
    with byoc.load(made.path) as library:
        for image, grid in [fixed] if sizes == "fixed" else [fixed, ([1, 5, 1, 9], [1, 1, 6, 2])]:
            inputs = {
                "x": rng.standard_normal(image).astype(np.float32),
                "grid": rng.uniform(-1.7, 1.7, grid).astype(np.float32),
            }
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("sizes", ["open", "fixed"])
def test_volumes_are_one_region(tmp_path: Path, sizes: str) -> None:
    fixed = [2, 5, 3, 6, 7], [2, 4, 3, 2, 3]
    image, grid = fixed if sizes == "fixed" else (["n", 5, "d", "h", "w"], ["n", "p", "r", "c", 3])
    model = network(image, grid)
    model.opset_import[0].version = 20
    of_mode = {b"bilinear": b"linear", b"nearest": b"nearest"}
    nodes, outputs = list(model.graph.node[:1]), []
    for sample, neg in zip(model.graph.node[1::2], model.graph.node[2::2], strict=True):
        mode = next(a for a in sample.attribute if a.name == "mode")
        if mode.s in of_mode:
            mode.s = of_mode[mode.s]
            nodes += [sample, neg]
            outputs.append(neg.output[0])
    kept = [o for o in model.graph.output if o.name in outputs]
    graph = helper.make_graph(nodes, "volumes", model.graph.input, kept)
    model = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)
    made = byoc.compile(model, tmp_path / "m.so")
    assert len(made.report.regions) == 1 and not made.report.left and len(kept) == 12
    rng = np.random.default_rng(2)
    with byoc.load(made.path) as library:
        others = [([1, 5, 1, 1, 9], [1, 1, 2, 6, 3])] * (sizes == "open")
        for image, grid in [fixed, *others]:
            inputs = {
                "x": rng.standard_normal(image).astype(np.float32),
                "grid": rng.uniform(-1.7, 1.7, grid).astype(np.float32),
            }
            assert_agrees(library.run(inputs), onnxruntime_outputs(model, inputs))
