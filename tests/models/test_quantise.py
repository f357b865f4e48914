"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: one region, ONNX Runtime's integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.errors import ByocError
from tests.reference import onnxruntime_outputs

SHAPE = (2, 3, 5, 7)
KIND = helper.np_dtype_to_tensor_dtype


def network(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, str],
    weights: dict[str, np.ndarray],
    opset: int = 13,
) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "quantised",
        [info(name, KIND(array.dtype), array.shape) for name, array in inputs.items()],
        [info(name, KIND(np.dtype(dtype)), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def parameters(
    dtype: str, axis: int | None, shape: tuple[int, ...] = SHAPE
) -> dict[str, np.ndarray]:
    """A scale and a zero point, or one for each element of an axis."""
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    own = () if axis is None else (shape[axis],)
    zero = (
        rng.integers(limits.min // 2, limits.max // 2, own) if limits.bits == 8 else np.zeros(own)
    )
    scale = np.asarray(rng.uniform(0.01, 0.1, own), "float32")
    return {"s": scale, "z": np.asarray(zero, dtype)}


def numbers(*shape: int, special: bool = True) -> np.ndarray:
    x = 3 * np.random.default_rng(4).standard_normal(shape or SHAPE)
    if special:
        x.reshape(-1)[:6] = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0]
    return x.astype("float32")


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, int]:
    """One region, the same integers and fractions; nodes of the region by algorithm."""
    done = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    found = byoc.load(folder / "m.so").run(inputs)
    for name, want in onnxruntime_outputs(model, inputs).items():
        assert found[name].dtype == want.dtype
        np.testing.assert_array_equal(found[name], want, err_msg=name)
    return {use.algorithm: use.nodes for use in done.report.kernels}


#: Opset, axis, dtype (None: the zero point is left out).
FORMS = [
    (opset, axis, dtype)
    for opset in (10, 13, 19, 21)
    for axis in ((None,) if opset == 10 else (None, 0, 1, -1))
    for dtype in ("int8", "uint8", None)
]


@pytest.mark.parametrize(("opset", "axis", "dtype"), FORMS)
def test_linear(opset: int, axis: int | None, dtype: str | None, tmp_path: Path) -> None:
    weights = parameters(dtype or "uint8", axis)
    operands = ["s", "z"][: 2 if dtype else 1]
    along = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *operands], ["q"], **along),
        helper.make_node("DequantizeLinear", ["q", *operands], ["y"], **along),
    ]
    kept = {name: weights[name] for name in operands}
    x = {"x": numbers()}
    model = network(nodes, x, {"q": dtype or "uint8", "y": "float32"}, kept, opset)
    taken = check(model, x, tmp_path)
    assert taken == {"quantize": 1, "dequantize": 1}


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("with_zero", [False, True])
def test_biases_of_int32(axis: int | None, with_zero: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = {"x": rng.integers(-(2**31), 2**31, SHAPE).astype("int32")}
    weights = parameters("int32", axis)
    if not with_zero:
        del weights["z"]
    along = {} if axis is None else {"axis": axis}
    node = helper.make_node("DequantizeLinear", ["x", *weights], ["y"], **along)
    model = network([node], x, {"y": "float32"}, weights)
    assert check(model, x, tmp_path) == {"dequantize": 1}


@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 1, 1)])
def test_other_ranks(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = {"x": np.asarray(np.random.default_rng(6).standard_normal(shape), "float32")}
    model = network(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])],
        x,
        {"q": "uint8"},
        parameters("uint8", None),
    )
    assert check(model, x, tmp_path) == {"quantize": 1}


@pytest.mark.parametrize(
    "x",
    [
        numbers(special=False),
        np.abs(numbers(special=False)),
        -np.abs(numbers(special=False)),
        np.zeros(SHAPE, "float32"),
        np.float32(1e-38) * numbers(special=False),
        np.float32(1e30) * numbers(special=False),
    ],
    ids=["both signs", "above 0", "below 0", "zeros", "tiny", "huge"],
)
def test_dynamic(x: np.ndarray, tmp_path: Path) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    model = network([node], {"x": x}, {"q": "uint8", "s": "float32", "z": "uint8"}, {})
    assert check(model, {"x": x}, tmp_path)["dynamic_quantize"] == 1


def test_symbolic_axes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    x = numbers(2, 3, 4, 4)
    model = network(nodes, {"x": x}, {"q": "int8", "y": "float32"}, parameters("int8", 1))
    for axis, name in ((0, "n"), (2, "h")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    shapes = {"x": ["n", 3, "h", 4]}
    done = byoc.compile(model, tmp_path / "m.so", input_shapes=shapes, min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    loaded = byoc.load(tmp_path / "m.so")
    for batch, height in ((2, 4), (1, 9), (0, 4)):
        given = {"x": numbers(batch, 3, height, 4, special=batch > 0)}
        sized = network(nodes, given, {"q": "int8", "y": "float32"}, parameters("int8", 1))
        for name, want in onnxruntime_outputs(sized, given).items():
            np.testing.assert_array_equal(loaded.run(given)[name], want)


def test_images_stay_channels_last_and_are_read_across_gaps(tmp_path: Path) -> None:
    """Between convolutions nothing is turned around; two copies join the bytes."""
    rng = np.random.default_rng(7)
    weights = {
        "w": rng.standard_normal((16, 3, 3, 3)).astype("float32"),
        "v": rng.standard_normal((16, 3, 3, 3)).astype("float32"),
        "u": rng.standard_normal((8, 32, 1, 1)).astype("float32"),
        **parameters("int8", None),
        **{f"c{name}": array for name, array in parameters("int8", 0, (16,)).items()},
    }
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["a"]),
        make("Conv", ["x", "v"], ["b"]),
        make("Concat", ["a", "b"], ["joined"], axis=1),
        make("QuantizeLinear", ["a", "cs", "cz"], ["qa"], axis=1),
        make("QuantizeLinear", ["b", "s", "z"], ["qb"]),
        make("Concat", ["qa", "qb"], ["bytes"], axis=1),
        make("DequantizeLinear", ["bytes", "s", "z"], ["whole"]),
        make("Add", ["joined", "whole"], ["sum"]),
        make("Conv", ["sum", "u"], ["y"]),
    ]
    x = {"x": numbers(1, 3, 12, 12, special=False)}
    model = network(nodes, x, {"y": "float32"}, weights)
    done = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    (region,) = done.report.regions
    assert done.report.left == () and region.plan.copies_inside == 2
    want = onnxruntime_outputs(model, x)["y"]
    (found,) = byoc.load(tmp_path / "m.so").run(x).values()
    # A sum that is rounded otherwise may be a step of the integers away: most are not.
    errors = np.abs(found - want)
    assert np.median(errors) < 1e-4 and errors.max() < 4 * 0.1 * np.abs(weights["u"]).max()


BAD: list[tuple[str, dict[str, np.ndarray], dict[str, Any], str]] = [
    ("scale of 0", {"s": np.float32(0)}, {}, "scale 0; need finite ones above 0"),
    ("scale below 0", {"s": np.float32(-1)}, {}, "scale -1; need finite ones above 0"),
    ("scale of NaN", {"s": np.float32(np.nan)}, {}, "scale nan; need finite ones above 0"),
    ("infinite scale", {"s": np.float32(np.inf)}, {}, "scale inf; need finite ones above 0"),
    (
        "scales of a wrong length",
        {"s": np.full(2, 0.5, "float32"), "z": np.zeros(2, "uint8")},
        {"axis": 1},
        r"scales of shape \[2\]; need one, or 3 as axis 1 of \[2, 3, 5, 7\] has",
    ),
    (
        "zero points of another length",
        {"s": np.full(3, 0.5, "float32")},
        {"axis": 1},
        r"the zero point has shape \[\], the scale \[3\]; need as many of both",
    ),
    (
        "no such axis",
        {"s": np.full(3, 0.5, "float32"), "z": np.zeros(3, "uint8")},
        {"axis": 4},
        "axis|need",
    ),
]


@pytest.mark.parametrize(
    ("weights", "attributes", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_parameters_are_one_line(
    weights: dict[str, np.ndarray], attributes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    weights = parameters("uint8", None) | weights
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="first", **attributes)
    model = network([node], {"x": numbers()}, {"q": "uint8"}, weights)
    with pytest.raises(ByocError, match=message) as raised:
        byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert "\n" not in str(raised.value) and "QuantizeLinear" in str(raised.value)


def test_mixed_dtypes_are_one_line(tmp_path: Path) -> None:
    weights = parameters("uint8", None)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"])
    model = network([node], {"x": np.zeros(SHAPE, "int8")}, {"y": "float32"}, weights)
    with pytest.raises(ByocError, match="uint8") as raised:
        byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert "\n" not in str(raised.value) and "DequantizeLinear" in str(raised.value)


@pytest.mark.parametrize(("dtype", "number"), [("uint8", 300), ("uint8", -1), ("int8", 128)])
def test_zero_points_out_of_range_are_one_line(dtype: str, number: int, tmp_path: Path) -> None:
    """ONNX stores them in fields of 32 bits, and whoever reads them drops what is above 8."""
    weights = parameters(dtype, None)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    model = network([node], {"x": numbers()}, {"q": dtype}, weights)
    (zero,) = (tensor for tensor in model.graph.initializer if tensor.name == "z")
    zero.ClearField("raw_data")
    zero.int32_data.append(number)
    with pytest.raises(ByocError, match=f"'z' of {dtype} has the number {number}") as raised:
        byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert "\n" not in str(raised.value)
