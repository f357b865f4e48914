"""Tables and weights in blocks, in the forms of ONNX Runtime's quantiser: 2 and 4 bits, halves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from byoc.errors import ByocError
from tests.reference import assert_agrees, onnxruntime_outputs

MICROSOFT = "com.microsoft"
ROWS = 9
INDICES = np.array([[0, 1, 8], [-1, 2, 2]])
X = np.random.default_rng(4).standard_normal((5, 48)).astype(np.float32)
FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}

Model = tuple[onnx.ModelProto, dict[str, np.ndarray]]


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers in bytes, the lower bits first."""
    each = 8 // bits
    even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)])
    parts = [even[..., at::each].astype(np.uint8) << (at * bits) for at in range(each)]
    return np.bitwise_or.reduce(parts)


def stored(name: str, values: np.ndarray, kind: str) -> onnx.TensorProto:
    """Integers as ``kind`` holds them: uint8 for 8 bits, packed for 4, or ONNX's own of 4 bits."""
    if kind in ("int4", "uint4"):
        element = TensorProto.INT4 if kind == "int4" else TensorProto.UINT4
        return helper.make_tensor(name, element, values.shape, values.ravel())
    bits = 4 if kind == "packed" else 8
    return numpy_helper.from_array(packed(values, bits), name)


def model_of(node: onnx.NodeProto, x: tuple[int, list[int]], weights: list) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_empty_tensor_value_info("y")],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def gathered(kind: str, columns: int, zeros: bool, dtype: type = np.float32) -> Model:
    draw = np.random.default_rng(0)
    low, high = {"int4": (-8, 8), "uint8": (0, 256)}.get(kind, (0, 16))
    blocks = -(-columns // 16)
    scale = draw.standard_normal((ROWS, blocks)).astype(dtype)
    weights = [stored("t", draw.integers(low, high, (ROWS, columns)), kind)]
    weights.append(numpy_helper.from_array(scale, "s"))
    if zeros:
        weights.append(stored("z", draw.integers(low, high, (ROWS, blocks)), kind))
    names = ["t", "x", "s", *(["z"] if zeros else [])]
    bits = 8 if kind == "uint8" else 4
    node = helper.make_node(
        "GatherBlockQuantized", names, ["y"], domain=MICROSOFT, bits=bits, block_size=16
    )
    return model_of(node, (TensorProto.INT64, [2, 3]), weights), {"x": INDICES}


def multiplied(bits: int, zeros: bool, dtype: type = np.float32) -> Model:
    """A product with a weight of 48 x 32 in blocks of 16."""
    draw = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(packed(draw.integers(0, 1 << bits, (32, 3, 16)), bits), "w"),
        numpy_helper.from_array(draw.uniform(-0.1, 0.1, (32, 3)).astype(dtype), "s"),
        numpy_helper.from_array(packed(draw.integers(0, 1 << bits, (32, 3)), bits), "z"),
    ]
    sizes = {"K": 48, "N": 32, "bits": bits, "block_size": 16}
    names = ["x", "w", "s", *(["z"] if zeros else [])]
    node = helper.make_node("MatMulNBits", names, ["y"], domain=MICROSOFT, **sizes)
    x = X.astype(dtype)
    model = model_of(node, (FLOATS[x.dtype], [5, 48]), weights[: len(names) - 1])
    return model, {"x": x}


def dequantised(scale: float) -> Model:
    """A product with a weight of int4, dequantised in blocks of 16 rows, with scales below 0."""
    draw = np.random.default_rng(2)
    weights = [
        stored("w", draw.integers(-8, 8, (48, 32)), "int4"),
        numpy_helper.from_array(draw.uniform(-scale, scale, (3, 32)).astype(np.float32), "s"),
    ]
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=16)
    model = model_of(node, (TensorProto.FLOAT, [5, 48]), weights)
    model.graph.node.append(helper.make_node("MatMul", ["x", "d"], ["y"]))
    return model, {"x": X}


def quantised(kind: str, axis: int, size: int, dtype: str) -> Model:
    """Numbers in blocks along an axis, with scales that are constants or another input."""
    draw = np.random.default_rng(3)
    shape = [4, 10, 6]
    shape[axis] = -(-shape[axis] // size)
    element = getattr(TensorProto, dtype.upper())
    scale = draw.uniform(0.01, 0.1, shape).astype(np.float32)
    zero = draw.integers(0, 20, shape).astype(dtype if dtype != "int4" else "int8")
    names = ["x", "s", *(["z"] if kind != "no zero points" else [])]
    further = {} if "z" in names else {"output_dtype": element}
    node = helper.make_node("QuantizeLinear", names, ["y"], axis=axis, block_size=size, **further)
    weights = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")]
    feed = {"x": draw.standard_normal((4, 10, 6)).astype(np.float32)}
    model = model_of(node, (TensorProto.FLOAT, [4, 10, 6]), weights[: len(names) - 1])
    if kind == "computed":
        model.graph.initializer.pop(0)
        model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, shape))
        feed["s"] = scale
    return model, feed


def assert_right(made: Model, folder: Path, rounding: float = 0.0) -> None:
    model, feed = made
    report = byoc.compile(model, folder / "m.so", min_bytes=0).report
    assert not report.left
    assert len(report.regions) == 1
    expected = onnxruntime_outputs(model, feed)
    assert_agrees(byoc.load(folder / "m.so").run(feed), expected, rounding=rounding)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("columns", [64, 40, 16])
@pytest.mark.parametrize("kind", ["int4", "uint4", "packed", "uint8"])
def test_rows_of_a_table(kind: str, columns: int, zeros: bool, tmp_path: Path) -> None:
    assert_right(gathered(kind, columns, zeros), tmp_path)


def test_rows_of_a_table_in_float16(tmp_path: Path) -> None:
    assert_right(gathered("int4", 40, True, np.float16), tmp_path)


def test_a_table_in_another_order_is_refused() -> None:
    model, _ = gathered("int4", 64, False)
    model.graph.node[0].attribute.add(name="gather_axis", type=onnx.AttributeProto.INT, i=1)
    with pytest.raises(ByocError, match=r"GatherBlockQuantized .*gather_axis=1.* need rows of two"):
        byoc.compile(model)


@pytest.mark.parametrize("axis, size", [(1, 5), (2, 4), (0, 2)])
@pytest.mark.parametrize(
    "kind, dtype", [("constants", "int8"), ("computed", "uint8"), ("no zero points", "int8")]
)
def test_numbers_become_integers_in_blocks(
    kind: str, dtype: str, axis: int, size: int, tmp_path: Path
) -> None:
    model, feed = quantised(kind, axis, size, dtype)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert not report.left and len(report.regions) == 1
    (want,) = onnxruntime_outputs(model, feed).values()
    (got,) = byoc.load(tmp_path / "m.so").run(feed).values()
    np.testing.assert_array_equal(got, want)


def test_integers_of_4_bits_in_blocks_are_refused() -> None:
    model, _ = quantised("no zero points", 1, 5, "int4")
    with pytest.raises(ByocError, match=r"QuantizeLinear .*tensors of a few bits"):
        byoc.compile(model)


@pytest.mark.parametrize("zeros", [False, True])
def test_products_with_two_bits(zeros: bool, tmp_path: Path) -> None:
    assert_right(multiplied(2, zeros), tmp_path)


@pytest.mark.parametrize("zeros", [False, True])
def test_products_in_float16(zeros: bool, tmp_path: Path) -> None:
    assert_right(multiplied(4, zeros, np.float16), tmp_path, rounding=1e-2)


def test_scales_below_zero(tmp_path: Path) -> None:
    """ONNX Runtime rounds the data to bytes here, as its products with 4 bits may."""
    model, feed = dequantised(0.1)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert not report.left
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    scale = numpy_helper.to_array(model.graph.initializer[1]).astype(np.float64)
    assert (scale < 0).any()
    product = X.astype(np.float64) @ (weight * np.repeat(scale, 16, axis=0))
    got = byoc.load(tmp_path / "m.so").run(feed)["y"]
    np.testing.assert_allclose(got, product, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got, onnxruntime_outputs(model, feed)["y"], atol=0.05)
