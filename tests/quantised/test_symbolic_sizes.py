"""Products of integers whose sizes are symbols: offloaded as those of known sizes are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import byoc
from tests.quantised.nodes import Draw

pytestmark = pytest.mark.filterwarnings("ignore::byoc.AxesNote")

f32, u8 = np.float32, np.uint8
node = helper.make_node


def dynamic_product(
    operator: str, weight: np.ndarray, bias: np.ndarray | None, each: bool = False
) -> tuple:
    """A product as ``quantize_dynamic`` writes it, now, and with a bias as it wrote it once.

    ``each`` channel has a scale and a zero point of its own, or all have one.
    """
    sums = "biased" if bias is not None else "sums"
    attributes = {"pads": [1, 1] * (weight.ndim - 2)} if operator == "ConvInteger" else {}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "x_scale", "x_zero"]),
        node(operator, ["q", "w", "x_zero", "w_zero"], ["sums"], **attributes),
        node("Mul", ["x_scale", "w_scale"], ["scale"]),
        node("Cast", [sums], ["floats"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["floats", "scale"], ["y"]),
    ]
    values = {"w": weight, "w_scale": f32(0.02), "w_zero": weight.dtype.type(3)}
    if each:
        count = len(weight) if operator == "ConvInteger" else weight.shape[1]
        scales = np.linspace(0.01, 0.03, count, dtype=f32)
        behind = (1,) * (weight.ndim - 2)
        values["w_scale"] = scales.reshape(-1, *behind)
        values["w_zero"] = np.linspace(3, 200, count).astype(weight.dtype)
    if bias is not None:
        nodes[3:3] = [
            node("Div", ["bias", "scale"], ["steps"]),
            node("Floor", ["steps"], ["whole"]),
            node("Cast", ["whole"], ["integers"], to=onnx.TensorProto.INT32),
            node("Add", ["sums", "integers"], ["biased"]),
        ]
        values["bias"] = bias
    return nodes, values


def static_product(operator: str, weight: np.ndarray) -> tuple:
    """A product of the QOperator form."""
    attributes = {"pads": [1, 1] * (weight.ndim - 2)} if operator == "QLinearConv" else {}
    values = {
        **{"x_scale": f32(0.03), "x_zero": u8(120), "w": weight, "w_scale": f32(0.02)},
        **{"w_zero": np.int8(0), "y_scale": f32(0.1), "y_zero": u8(130)},
    }
    operands = ["w", "w_scale", "w_zero", "y_scale", "y_zero"]
    return [
        node("QuantizeLinear", ["x", "x_scale", "x_zero"], ["q"]),
        node(operator, ["q", "x_scale", "x_zero", *operands], ["integers"], **attributes),
        node("DequantizeLinear", ["integers", "y_scale", "y_zero"], ["y"]),
    ], values


def forms() -> dict[str, tuple]:
    """Nodes and constants by name: of an image or a line of 4 channels, or rows of 20 numbers."""
    draw = Draw(5)
    image = draw.bytes(6, 4, 3, 3, dtype=np.int8, most=100)
    matrix = draw.bytes(20, 7, dtype=np.int8, most=100)
    along_channels = draw.random.standard_normal((1, 6, 1, 1)).astype(f32)
    along_columns = draw.random.standard_normal(7).astype(f32)
    wide, wide_matrix = draw.bytes(6, 4, 3, 3), draw.bytes(20, 7)
    return {
        "ConvInteger": dynamic_product("ConvInteger", image, None),
        "ConvInteger, bias": dynamic_product("ConvInteger", image, along_channels),
        "ConvInteger, uint8": dynamic_product("ConvInteger", wide, along_channels),
        "ConvInteger, uint8, each": dynamic_product("ConvInteger", wide, None, each=True),
        "ConvInteger, line": dynamic_product("ConvInteger", image[:, :, 0], along_channels[..., 0]),
        "ConvInteger, line, uint8": dynamic_product("ConvInteger", wide[..., 0], None),
        "MatMulInteger, uint8": dynamic_product("MatMulInteger", wide_matrix, None, each=True),
        "MatMulInteger": dynamic_product("MatMulInteger", matrix, None),
        "MatMulInteger, bias": dynamic_product("MatMulInteger", matrix, along_columns),
        "QLinearConv": static_product("QLinearConv", image),
        "QLinearConv, line": static_product("QLinearConv", image[:, :, 0]),
        "QLinearMatMul": static_product("QLinearMatMul", matrix),
    }


def data_of(name: str) -> tuple[list[int], list[int]]:
    """The shape of a form's data, and the axes that may be open: not those that are summed."""
    if "MatMul" in name:
        return [2, 3, 5, 20], [0, 1, 2]
    return ([2, 4, 9], [0, 2]) if "line" in name else ([2, 4, 8, 9], [0, 2, 3])


@pytest.mark.parametrize(
    ("name", "axis"), [(name, axis) for name in forms() for axis in data_of(name)[1]]
)
def test_a_symbolic_size(name: str, axis: int, tmp_path: Path) -> None:
    """Batch, height or width; of a matrix batch, or rows."""
    nodes, values = forms()[name]
    shape, _ = data_of(name)
    symbolic = [*shape[:axis], "size", *shape[axis + 1 :]]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "product",
            [helper.make_tensor_value_info("x", 1, symbolic)],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(np.asarray(value), key) for key, value in values.items()],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    report = byoc.compile(model, tmp_path / "model.so", min_bytes=0).report
    loaded = byoc.load(tmp_path / "model.so")
    assert len(report.regions) == 1 and report.left == ()
    assert all(use.algorithm.endswith("int8") for use in report.kernels if use.macs)
    for size in (1, 6):
        shape[axis] = size
        x = Draw(size).random.standard_normal(shape).astype(f32)
        got, (want,) = loaded.run({"x": x})["y"], by_integers(model, x)
        step = 0.1 if "QLinear" in name else 1e-5 * np.abs(want).max()
        apart = np.abs(got - want)
        assert got.shape == want.shape and apart.max() <= step * 1.01
        assert (apart > 1e-5 * np.abs(want).max()).mean() <= 0.001


def by_integers(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """ONNX's reference evaluator: ONNX Runtime has no ConvInteger of int8."""
    return ReferenceEvaluator(model).run(None, {"x": x})
