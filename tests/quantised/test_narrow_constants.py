"""Weights of floats of 8 bits, and of integers of 2 and 4 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.errors import ByocError
from tests.reference import assert_agrees, onnxruntime_outputs

X = np.random.default_rng(1).standard_normal((5, 48)).astype(np.float32)
FLOATS = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}
INTEGERS = {
    TensorProto.INT2: (-2, 2),
    TensorProto.UINT2: (0, 4),
    TensorProto.INT4: (-8, 8),
    TensorProto.UINT4: (0, 16),
}


def model_of(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], opset: int = 19
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 48])],
        [helper.make_empty_tensor_value_info("y")],
        weights,
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 21 else 13)


def floats(kind: int) -> onnx.TensorProto:
    values = np.random.default_rng(2).standard_normal((48, 32)).astype(FLOATS[kind])
    return helper.make_tensor("w", kind, values.shape, values.tobytes(), raw=True)


def integers(kind: int, name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(3).integers(*INTEGERS[kind], shape)
    return helper.make_tensor(name, kind, shape, values.ravel())


def scales(*shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(4).uniform(0.01, 0.1, shape)
    return numpy_helper.from_array(values.astype(np.float32), "s")


def compiled(model: onnx.ModelProto, folder: Path) -> Any:
    report = byoc.compile(model, folder / "m.so", min_bytes=0).report
    assert not report.left
    assert len(report.regions) == 1
    return byoc.load(folder / "m.so")


def assert_right(model: onnx.ModelProto, folder: Path) -> None:
    library = compiled(model, folder)
    for x in (X, X[:1]):
        assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}))


PRODUCT = helper.make_node("MatMul", ["x", "d"], ["y"])


@pytest.mark.parametrize("kind", FLOATS)
def test_casts_of_floats(kind: int, tmp_path: Path) -> None:
    cast = helper.make_node("Cast", ["w"], ["d"], to=TensorProto.FLOAT)
    assert_right(model_of([cast, PRODUCT], [floats(kind)]), tmp_path)


@pytest.mark.parametrize("shape", [(), (32,)])
@pytest.mark.parametrize("kind", FLOATS)
def test_scales_of_floats(kind: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    zero = helper.make_tensor("z", kind, shape, bytes(int(np.prod(shape))), raw=True)
    scaled = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=-1)
    assert_right(model_of([scaled, PRODUCT], [floats(kind), scales(*shape), zero]), tmp_path)


def test_blocks_of_floats(tmp_path: Path) -> None:
    scaled = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=16)
    weight, scale = floats(TensorProto.FLOAT8E4M3FN), scales(3, 32)
    model = model_of([scaled, PRODUCT], [weight, scale], 23)
    each = np.repeat(numpy_helper.to_array(scale), 16, axis=0)
    want = X @ (numpy_helper.to_array(weight).astype(np.float32) * each)
    assert_agrees(compiled(model, tmp_path).run({"x": X}), {"y": want})


@pytest.mark.parametrize("kind", INTEGERS)
def test_blocks_of_integers(kind: int, tmp_path: Path) -> None:
    """In exact arithmetic: ONNX Runtime rounds the data to bytes here."""
    weights = [integers(kind, "w", 48, 32), scales(3, 32), integers(kind, "z", 3, 32)]
    w, s, z = (numpy_helper.to_array(weight).astype(np.float64) for weight in weights)
    scaled = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=16)
    library = compiled(model_of([scaled, PRODUCT], weights, 25), tmp_path)
    want = X @ ((w - np.repeat(z, 16, axis=0)) * np.repeat(s, 16, axis=0))
    assert_agrees(library.run({"x": X}), {"y": want.astype(np.float32)})


@pytest.mark.parametrize("kind", INTEGERS)
def test_data_rounded_to_few_bits(kind: int, tmp_path: Path) -> None:
    zero = helper.make_tensor("z", kind, [], [1])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    assert_right(
        model_of(nodes, [numpy_helper.from_array(np.float32(0.3), "s"), zero], 25), tmp_path
    )


def test_numbers_of_few_bits_that_leave_are_refused() -> None:
    zero = helper.make_tensor("z", TensorProto.INT4, [], [1])
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    model = model_of([node], [numpy_helper.from_array(np.float32(0.3), "s"), zero], 21)
    with pytest.raises(ByocError, match="of a few bits"):
        byoc.compile(model)
