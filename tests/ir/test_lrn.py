"""LRN: one kernel for the pieces that the importer writes, whatever its numbers and shape.

ONNX Runtime slides its sums along the channels, so that rounding errors stay in them, and NaN for
ever; ONNX's evaluator takes the batch for the channels.  So where it matters the reference is the
formula.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from onnx import helper as oh

import byoc

SHAPE = (2, 7, 6, 5)
PLAIN = {"size": 5, "alpha": 2e-2, "beta": 0.75, "bias": 1.5}


def model(shape, *after: onnx.NodeProto, result: str = "y", **attributes) -> onnx.ModelProto:
    nodes = [oh.make_node("LRN", ["x"], ["y"], **attributes), *after]
    info = oh.make_tensor_value_info
    graph = oh.make_graph(
        nodes, "lrn", [info("x", TensorProto.FLOAT, shape)], [info(result, TensorProto.FLOAT, None)]
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)


def taken(compiled: byoc.Compiled) -> dict[str, int]:
    return {use.algorithm: use.nodes for use in compiled.report.kernels}


def compiled(source: onnx.ModelProto, folder: Path, **options) -> byoc.Compiled:
    done = byoc.compile(source, folder / "m.so", min_bytes=0, **options)
    assert len(done.report.regions) == 1 and done.report.left == ()
    return done


def run(folder: Path, x: np.ndarray) -> np.ndarray:
    (found,) = byoc.load(folder / "m.so").run({"x": x}).values()
    return found


def formula(x: np.ndarray, size: int, alpha=1e-4, beta=0.75, bias=1.0) -> np.ndarray:
    """In double precision, apart from the squares, which overflow as they do in single."""
    with np.errstate(all="ignore"):
        squares = np.square(x).astype(np.float64)
        widths = [(0, 0), ((size - 1) // 2, size // 2)] + [(0, 0)] * (x.ndim - 2)
        padded = np.pad(squares, widths)
        windows = (padded[:, k : k + x.shape[1]] for k in range(size))
        return (x / (bias + alpha / size * sum(windows)) ** beta).astype(np.float32)


def by_onnxruntime(source: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return ort.InferenceSession(source.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        (SHAPE, PLAIN),
        (SHAPE, {"size": 1}),
        (SHAPE, {"size": 13, "alpha": 0.5, "bias": 0.25}),
        (SHAPE, PLAIN | {"alpha": 1.0}),
        (SHAPE, PLAIN | {"bias": 0.0}),
        (SHAPE, PLAIN | {"beta": 0.5}),
        (SHAPE, PLAIN | {"beta": 1.0}),
        (SHAPE, PLAIN | {"beta": 1.3}),
        (SHAPE, {"size": 3, "alpha": 1.0, "beta": 1.0, "bias": 0.0}),
        ((1, 64, 1, 1), PLAIN),
        ((3, 1, 4, 4), PLAIN),
    ],
    ids=str,
)
def test_against_onnxruntime(shape, attributes, tmp_path: Path) -> None:
    source = model(shape, **attributes)
    assert taken(compiled(source, tmp_path)) == {"lrn": 1}
    x = 3 * np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    found = run(tmp_path, x)
    np.testing.assert_allclose(found, by_onnxruntime(source, x), rtol=1e-4)
    np.testing.assert_allclose(found, formula(x, **attributes), rtol=2e-6)


def test_three_axes(tmp_path: Path) -> None:
    source = model((2, 7, 9), **PLAIN)
    assert taken(compiled(source, tmp_path)) == {"lrn": 1}
    x = 3 * np.random.default_rng(2).standard_normal((2, 7, 9)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path, x), formula(x, **PLAIN), rtol=2e-6)


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_symbolic_axes(batch: int, tmp_path: Path) -> None:
    source = model(("n", 7, "h", 5), **PLAIN)
    shapes = {"x": ["n", 7, "h", 5]}
    assert taken(compiled(source, tmp_path, input_shapes=shapes)) == {"lrn": 1}
    x = np.random.default_rng(3).standard_normal((batch, 7, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path, x), formula(x, **PLAIN), rtol=2e-6)


def test_between_convolutions_the_image_stays_channels_last(tmp_path: Path) -> None:
    weight = np.random.default_rng(4).standard_normal((7, 7, 3, 3)).astype(np.float32)
    source = model(SHAPE, oh.make_node("Conv", ["y", "w"], ["z"]), result="z", **PLAIN)
    source.graph.node.insert(0, oh.make_node("Conv", ["x", "w"], ["c"]))
    source.graph.node[1].input[0] = "c"
    source.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    done = compiled(source, tmp_path)
    assert taken(done)["lrn"] == 1 and len(done.report.kernels) == 2
    assert sum(region.plan.copies_inside for region in done.report.regions) == 0
    x = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path, x), by_onnxruntime(source, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e-30])
def test_special_values_stay_in_their_windows(value: float, tmp_path: Path) -> None:
    source = model(SHAPE, **PLAIN)
    assert taken(compiled(source, tmp_path)) == {"lrn": 1}
    x = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    x[0, 3, 2, 2] = value
    found, wanted = run(tmp_path, x), formula(x, **PLAIN)
    np.testing.assert_allclose(found, wanted, rtol=2e-6)
    assert np.isnan(found).sum() == (0 if np.isfinite(value) else 5 if np.isnan(value) else 1)


@pytest.mark.parametrize(
    "reader",
    [
        oh.make_node("Mul", ["y", "p"], ["z"]),
        oh.make_node("Add", ["y", "p"], ["z"]),
    ],
    ids=lambda node: node.op_type,
)
def test_pieces_that_are_not_its_own_stay(reader: onnx.NodeProto, tmp_path: Path) -> None:
    """A pool over the wrong axis, a square of something else: the pieces, and the right answer."""
    nodes = [
        oh.make_node("Mul", ["x", "x"], ["q"]),
        oh.make_node(
            "AveragePool", ["q"], ["m"], kernel_shape=[3, 1], pads=[1, 0, 1, 0], count_include_pad=1
        ),
        oh.make_node("Mul", ["m", "alpha"], ["s"]),
        oh.make_node("Add", ["s", "bias"], ["b"]),
        oh.make_node("Pow", ["b", "beta"], ["p"]),
        oh.make_node("Div", ["x", "p"], ["y"]),
        reader,
    ]
    info = oh.make_tensor_value_info
    graph = oh.make_graph(
        nodes,
        "pieces",
        [info("x", TensorProto.FLOAT, SHAPE)],
        [info("z", TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.float32(value), name)
            for name, value in (("alpha", 0.5), ("bias", 1.5), ("beta", 0.75))
        ],
    )
    source = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    done = compiled(source, tmp_path)
    assert "lrn" not in taken(done) and taken(done)["avg_pool2d"] == 1
    x = np.random.default_rng(7).standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path, x), by_onnxruntime(source, x), rtol=1e-5)
