"""Networks that are multiplied in bfloat16: what is, how it is stored, and how far off it is."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx import helper as oh
from onnx import numpy_helper as nh

import byoc
from byoc.accuracy import share_of_range
from byoc.cli import main
from byoc.report import Report

#: Of bfloat16's eight bits of mantissa, after some layers.
LIMIT = 2e-2


def weights(random: np.random.Generator, name: str, *shape: int) -> onnx.TensorProto:
    scale = np.sqrt(1 / np.prod(shape[1:]))
    return nh.from_array((random.standard_normal(shape) * scale).astype(np.float32), name)


def residual_network(pixels: int = 14, channels: int = 32, stride: int = 2) -> onnx.ModelProto:
    """Convolutions of 1 x 1 and, with a stride, 3 x 3, an addition, and a classifier."""
    random = np.random.default_rng(7)
    nodes = [
        oh.make_node("Conv", ["x", "w0", "b0"], ["c0"], name="first"),
        oh.make_node("Relu", ["c0"], ["r0"]),
        oh.make_node(
            "Conv",
            ["r0", "w1"],
            ["c1"],
            name="strided",
            pads=[1, 1, 1, 1],
            strides=[stride, stride],
        ),
        oh.make_node("Relu", ["c1"], ["r1"]),
        oh.make_node("Conv", ["r1", "w2"], ["c2"], name="second"),
        oh.make_node("Conv", ["r1", "w3"], ["c3"], name="third"),
        oh.make_node("Add", ["c2", "c3"], ["a"]),
        oh.make_node("Relu", ["a"], ["r2"]),
        oh.make_node("GlobalAveragePool", ["r2"], ["p"]),
        oh.make_node("Flatten", ["p"], ["f"]),
        oh.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="head", transB=1),
    ]
    shapes = {
        "w0": (channels, 17, 1, 1),
        "w1": (67, channels, 3, 3),
        "w2": (40, 67, 1, 1),
        "w3": (40, 67, 1, 1),
        "w4": (10, 40),
    }
    constants = [weights(random, name, *shape) for name, shape in shapes.items()]
    constants += [weights(random, "b0", channels), weights(random, "b4", 10)]
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [2, 17, pixels, pixels])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])],
        constants,
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)


def compiled(model: onnx.ModelProto, folder: Path, **keywords: object) -> tuple[byoc.Model, Report]:
    report = byoc.compile(model, folder / "model.so", **keywords).report
    return byoc.load(folder / "model.so"), report


def answers(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def test_a_network_is_one_region_in_bfloat16(tmp_path: Path) -> None:
    model = residual_network()
    network, report = compiled(model, tmp_path, precision="bf16")
    assert len(report.regions) == 1 and report.left == ()
    assert list(report.multiplied_in) == ["bfloat16"]
    x = np.random.default_rng(1).standard_normal((2, 17, 14, 14)).astype(np.float32)
    (y,) = network.run({"x": x}).values()
    (expected,) = answers(model, {"x": x})
    assert y.dtype == np.float32
    assert share_of_range(y, expected) < LIMIT
    assert share_of_range(y, expected) > 1e-5  # or it was computed in float32


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_first_layers(tmp_path: Path, channels: int, kernel: int) -> None:
    """An odd number of channels, where two products belong to different taps."""
    random = np.random.default_rng(2)
    side = kernel // 2
    graph = oh.make_graph(
        [oh.make_node("Conv", ["x", "w"], ["y"], pads=[side] * 4, strides=[2, 2])],
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 20, 18])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [1, 72, 10, 9])],
        [weights(random, "w", 72, channels, kernel, kernel)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    network, report = compiled(model, tmp_path, precision="bf16")
    assert list(report.multiplied_in) == ["bfloat16"]
    x = random.standard_normal((1, channels, 20, 18)).astype(np.float32)
    (y,) = network.run({"x": x}).values()
    assert share_of_range(y, answers(model, {"x": x})[0]) < LIMIT


def test_nodes_and_operators_keep_float32(tmp_path: Path) -> None:
    model = residual_network()
    precision = ["bf16,matmul=fp32", "s*=fp32"]
    _, report = compiled(model, tmp_path, precision=precision)
    kept = {node.name for node in report.graph.nodes if node.kernel.multiplied_in == "float32"}
    assert any("strided" in name for name in kept) and any("second" in name for name in kept)
    assert any("head" in name for name in kept) and not any("first" in name for name in kept)


def test_what_only_bfloat16_nodes_touch_is_stored_so(tmp_path: Path) -> None:
    arenas = [
        compiled(residual_network(), tmp_path, precision=precision)[1].regions[0].plan.arena_bytes
        for precision in ("bf16", "fp32")
    ]
    assert arenas[0] < 0.9 * arenas[1]


def test_constants_are_stored_in_bfloat16(tmp_path: Path) -> None:
    random = np.random.default_rng(9)
    graph = oh.make_graph(
        [oh.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [1, 700])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1000])],
        [weights(random, "w", 700, 1000)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    sizes = []
    for precision in ("bf16", "fp32"):
        compiled(model, tmp_path, precision=precision)
        sizes.append((tmp_path / "model.so").stat().st_size)
    assert 1.3e6 < sizes[1] - sizes[0] < 1.7e6


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.0e38])
def test_special_values_of_the_input(tmp_path: Path, value: float) -> None:
    """What rounds to bfloat16 as infinity is infinity; NaN stays NaN."""
    random = np.random.default_rng(3)
    graph = oh.make_graph(
        [oh.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, [5, 19])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, [5, 33])],
        [weights(random, "w", 19, 33)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    network, report = compiled(model, tmp_path, precision="bf16")
    assert list(report.multiplied_in) == ["bfloat16"]
    x = random.standard_normal((5, 19)).astype(np.float32)
    x[2, 3] = value
    w = nh.to_array(model.graph.initializer[0])
    with np.errstate(all="ignore"):
        rounded = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (x, w)]
        expected = (rounded[0] @ rounded[1]).astype(np.float32)
    (y,) = network.run({"x": x}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_symbolic_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    graph = oh.make_graph(
        [
            oh.make_node("MatMul", ["x", "w"], ["h"]),
            oh.make_node("Relu", ["h"], ["r"]),
            oh.make_node("MatMul", ["r", "v"], ["y"]),
        ],
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 20])],
        [weights(random, "w", 24, 50), weights(random, "v", 50, 20)],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    network, report = compiled(model, tmp_path, precision="bf16", input_shapes={"x": ["n", 24]})
    assert list(report.multiplied_in) == ["bfloat16"]
    for rows in (0, 1, 3, 40):
        x = random.standard_normal((rows, 24)).astype(np.float32)
        (y,) = network.run({"x": x}).values()
        (expected,) = answers(model, {"x": x})
        assert y.shape == expected.shape
        assert share_of_range(y, expected) < LIMIT


def test_verify_knows_the_precision(tmp_path: Path) -> None:
    model = residual_network()
    byoc.compile(model, tmp_path / "model.so", precision="bf16")
    found = byoc.verify(model, tmp_path / "model.so")
    assert found.holds
    assert not byoc.verify(model, tmp_path / "model.so", tolerance=1e-6).holds


#: What ``auto`` keeps nodes in, by the name that reports have: bf16x3 where a CPU with AMX makes it
#: the faster of the two.
KEPT = {"fp32": "float32", "bf16x3": "bfloat16x3"}


@pytest.mark.slow
def test_auto_keeps_in_float32_what_loses_too_much(tmp_path: Path) -> None:
    model = residual_network()
    loose = byoc.choose_precision(model, 0.05)
    assert loose.precision == ("bf16",) and loose.error <= 0.05
    tight = byoc.choose_precision(model, loose.error / 2)
    assert tight.precision[-1] == "bf16" and tight.error <= loose.error / 2
    (kept,) = {spec.rpartition("=")[2] for spec in tight.precision[:-1]}
    _, report = compiled(model, tmp_path, precision=tight.precision)
    assert set(report.multiplied_in) <= {KEPT[kept], "bfloat16"}
    assert report.multiplied_in[KEPT[kept]] > 0


def test_auto_says_where_float32_itself_is_off_by_more() -> None:
    with pytest.raises(byoc.VerifyError, match="with every node in fp32; need at most"):
        byoc.choose_precision(residual_network(), 0.0)


def test_auto_is_not_for_compile_itself(tmp_path: Path) -> None:
    with pytest.raises(byoc.ControlError, match="precision auto has to be measured: give what"):
        byoc.compile(residual_network(), tmp_path / "model.so", precision="auto")


@pytest.mark.slow
def test_the_command_line_measures_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(residual_network(), tmp_path / "model.onnx")
    random = np.random.default_rng(1)
    np.savez(tmp_path / "in.npz", x=random.standard_normal((2, 17, 14, 14)).astype(np.float32))
    files = [str(tmp_path / "model.onnx"), "-o", str(tmp_path / "model.so")]
    options = ["--precision", "auto", "--max-error", "1e-4", "--json"]
    calibrated = ["--calibration", str(tmp_path / "in.npz")]
    assert main(["compile", *files, *options, *calibrated]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert {*report["multiplied_in"]} & {*KEPT.values()}
    assert main(["compile", *files, "--max-error", "1e-3"]) == 2
    assert "go with --precision auto" in capsys.readouterr().err
