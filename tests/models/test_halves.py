"""Networks in float16 and bfloat16 are one region, whose inner values are float32.

Those in float16 are compared with ONNX Runtime, which computes them in float16, and all with the
float32 network of the same weights: the distance from that is one rounding of each output.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import byoc
from codegen_cc.dtypes import DTYPES, KERNEL_HALVES
from models.bert import bert
from models.mobilenet import mobilenet_v2
from tests.models.halves import ONNX_TYPES, in_halves, rounded, rounded_weights
from tests.quantised.float_networks import resnet_like
from tests.reference import onnxruntime_outputs

#: One rounding of a result, as a share of the range of all.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
#: What ONNX Runtime's own roundings add up to.
THEIRS = 5e-3

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bert": lambda: bert(2, 64, 4, 16, 100),
    "mobilenet": lambda: mobilenet_v2(size=32),
    "resnet_like": resnet_like,
}


def compiled(model: onnx.ModelProto, folder: Path) -> byoc.Model:
    """A library of the model, all of whose work is in one region."""
    done = byoc.compile(model, folder / "model.so", min_bytes=0)
    report = done.report
    assert len(report.regions) == 1 and not report.left, report.summary()
    assert report.offloaded_macs == report.macs > 0
    return byoc.load(folder / "model.so")


def drawn(model: byoc.Model) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    inputs = {}
    for info in model.inputs:
        if info.dtype == "int64":
            inputs[info.name] = random.integers(0, 2, info.smallest)
        else:
            normal = random.standard_normal(info.smallest).astype(np.float32)
            inputs[info.name] = rounded(normal, info.dtype) if "16" in info.dtype else normal
    return inputs


def in_float32(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: array.astype(np.float32) if array.itemsize == 2 else array
        for name, array in arrays.items()
    }


def assert_near(
    got: dict[str, np.ndarray], want: dict[str, np.ndarray], share: float, same: bool = True
) -> None:
    """No error is above that share of an output's range; dtypes are the ``same``."""
    assert list(got) == list(want)
    for name, expected in want.items():
        assert got[name].shape == expected.shape
        assert not same or got[name].dtype == expected.dtype
        values = expected.astype(np.float32)
        worst = np.abs(got[name].astype(np.float32) - values).max()
        assert worst <= share * np.ptp(values), f"{name}: {worst} of {np.ptp(values)}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", KERNEL_HALVES)
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_and_values(name: str, dtype: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    model = in_halves(network, dtype)
    library = compiled(model, tmp_path)
    assert {info.dtype for info in library.outputs} == {dtype}
    inputs = drawn(library)
    got = library.run(inputs)
    exact = onnxruntime_outputs(rounded_weights(network, dtype), in_float32(inputs))
    assert_near(got, exact, ROUNDING[dtype], same=False)
    if dtype == "float16":
        assert_near(got, onnxruntime_outputs(model, inputs), THEIRS)


@pytest.mark.parametrize("dtype", KERNEL_HALVES)
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_alone(name: str, dtype: str, tmp_path: Path) -> None:
    """They are cast to float32 before their use: no weight is a cast at run time."""
    network = NETWORKS[name]()
    library = compiled(in_halves(network, dtype, only_weights=True), tmp_path)
    inputs = drawn(library)
    exact = onnxruntime_outputs(rounded_weights(network, dtype), inputs)
    assert_near(library.run(inputs), exact, 1e-5)


def _mixed(dtype: str) -> onnx.ModelProto:
    """A float32 and a 16-bit input, masks, a clip, a pad, and both dtypes among the outputs."""
    kind = ONNX_TYPES[dtype]
    weight = rounded(np.random.default_rng(1).normal(0, 0.3, (8, 8)).astype(np.float32), dtype)
    numbers = {"low": np.float32(-1.5), "high": np.float32(1.5), "lowest": np.float32(-1e4)}
    stored = [
        TensorProto(name="w", dims=(8, 8), data_type=kind, raw_data=weight.tobytes()),
        numpy_helper.from_array(np.array([0, 0, 1, 2], np.int64), "pads"),
    ]
    for name, number in numbers.items():
        data = rounded(number, dtype).tobytes()
        stored.append(TensorProto(name=name, data_type=kind, raw_data=data))
    nodes = [
        helper.make_node("Cast", ["a"], ["narrow"], to=kind),
        helper.make_node("Add", ["narrow", "b"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["product"]),
        helper.make_node("Clip", ["product", "low", "high"], ["clipped"]),
        helper.make_node("Where", ["mask", "clipped", "lowest"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["shares"]),
        helper.make_node("Pad", ["clipped", "pads"], ["padded"]),
        helper.make_node("Cast", ["shares"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["b"], ["turned"]),
        helper.make_node("ArgMax", ["clipped"], ["greatest"], axis=1, keepdims=0),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "mixed",
        [
            value("a", TensorProto.FLOAT, [4, 8]),
            value("b", kind, [4, 8]),
            value("mask", TensorProto.BOOL, [4, 8]),
        ],
        [
            value("padded", kind, [5, 10]),
            value("wide", TensorProto.FLOAT, [4, 8]),
            value("turned", kind, [8, 4]),
            value("greatest", TensorProto.INT64, [4]),
        ],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("dtype", KERNEL_HALVES)
def test_dtypes_are_mixed(dtype: str, tmp_path: Path) -> None:
    model = _mixed(dtype)
    library = compiled(model, tmp_path)
    random = np.random.default_rng(2)
    a, b = random.normal(0, 1, (2, 4, 8)).astype(np.float32)
    mask, narrow = random.integers(0, 2, (4, 8)).astype(bool), rounded(b, dtype)
    got = library.run({"a": a, "b": narrow, "mask": mask})
    (weight,) = (w for w in model.graph.initializer if w.name == "w")
    weight = np.frombuffer(weight.raw_data, DTYPES[dtype].numpy).reshape(8, 8)
    product = (a + narrow.astype(np.float32)) @ weight.astype(np.float32)
    clipped = product.clip(-1.5, 1.5)
    shares = np.exp(np.where(mask, clipped, -1e4))
    padded = np.pad(clipped, [(0, 1), (0, 2)])
    want = {
        "padded": padded.astype(narrow.dtype),
        "wide": shares / shares.sum(1, keepdims=True),
        "turned": narrow.T,
        "greatest": clipped.argmax(1),
    }
    assert_near(got, want, ROUNDING[dtype])
    assert (got["turned"] == narrow.T).all() and (got["greatest"] == want["greatest"]).all()


@pytest.mark.parametrize("dtype", KERNEL_HALVES)
def test_special_values_pass_the_borders(dtype: str, tmp_path: Path) -> None:
    """NaN, infinities and subnormal numbers come and go; what is too large becomes infinite."""
    kind = ONNX_TYPES[dtype]
    weight = TensorProto(
        name="w", dims=(1, 1), data_type=kind, raw_data=rounded(np.float32(2), dtype).tobytes()
    )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Neg", ["y"], ["z"])],
        "twice",
        [value("x", kind, [9, 1])],
        [value("y", kind, [9, 1]), value("z", kind, [9, 1])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    least = 2.0**-24 if dtype == "float16" else 2.0**-126
    greatest = 65504 if dtype == "float16" else 3.38953139e38
    x = np.float32([np.nan, np.inf, -np.inf, 0, -0.0, least, greatest, -greatest, 1])
    x = x.astype(DTYPES[dtype].numpy).reshape(9, 1)
    got = compiled(model, tmp_path).run({"x": x})
    with np.errstate(over="ignore"):
        want = (2 * x.astype(np.float32)).astype(x.dtype)
    assert np.isinf(want[6:8]).all()
    np.testing.assert_array_equal(got["y"].astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(got["z"].astype(np.float32), -want.astype(np.float32))


def _padded(dtype: int) -> onnx.ModelProto:
    """A float32 image, padded, convolved and joined in another dtype, and float32 again.

    ONNX Runtime stores in 16 bits what it joins.
    """
    random = np.random.default_rng(3)
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=dtype),
        helper.make_node("Pad", ["a", "widths", "fill"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=1),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {
        "widths": np.array([0, 0, 0, 1, 0, 0, 1, 2], np.int64),
        "fill": np.array(0.5, kind),
        "w": random.normal(0, 0.5, (4, 3, 3, 3)).astype(np.float16).astype(kind),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 9, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_images_of_an_open_batch_are_padded_in_the_region(tmp_path: Path) -> None:
    model = _padded(TensorProto.FLOAT16)
    library = compiled(model, tmp_path)
    for batch in (1, 3):
        x = np.random.default_rng(0).standard_normal((batch, 3, 9, 8)).astype(np.float32)
        got = library.run({"x": x})
        assert_near(got, onnxruntime_outputs(_padded(TensorProto.FLOAT), {"x": x}), 1e-6)
        assert_near(got, onnxruntime_outputs(model, {"x": x}), THEIRS)


def test_the_reference_may_round_what_it_computes_in_halves(tmp_path: Path) -> None:
    """Though no output has 16 bits; a share that a user gives counts as it is."""
    compiled(_padded(TensorProto.FLOAT16), tmp_path)
    library = tmp_path / "model.so"
    found = byoc.verify(_padded(TensorProto.FLOAT16), library)
    assert found.holds
    errors = [output.error for run in found.runs for output in run.outputs]
    assert max(errors) > 1e-4
    assert not byoc.verify(_padded(TensorProto.FLOAT16), library, tolerance=1e-4).holds
    exact = byoc.verify(_padded(TensorProto.FLOAT), library)
    assert {output.tolerance for run in exact.runs for output in run.outputs} == {1e-4}


@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_an_image_whose_sides_are_multiples_is_cast_in_the_region(tmp_path: Path) -> None:
    """As a U-Net has them: the cast stood before what says so, outside of the region."""
    node = helper.make_node
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    up = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["p"], **pool),
        node("Resize", ["p", "", "twice"], ["r"], **up),
        node("Concat", ["c", "r"], ["y"], axis=1),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 3, "h", "w_"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((8, 3, 3, 3)).astype(np.float16), "w"),
        numpy_helper.from_array(np.float32([1, 1, 2, 2]), "twice"),
    ]
    graph = helper.make_graph(nodes, "g", [image], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = random.standard_normal((2, 3, 10, 12)).astype(np.float16)
    with compiled(model, tmp_path) as loaded:
        found = loaded.run({"x": x})["y"]
    expected = onnxruntime_outputs(model, {"x": x})["y"].astype(np.float32)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=0, atol=THEIRS * np.ptp(expected))
