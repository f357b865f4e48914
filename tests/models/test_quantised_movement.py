"""Integers move as they are where all that is done to their numbers is to move them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import byoc
from tests.models.test_bytes import whole_range
from tests.models.test_quantise import network

make = helper.make_node
SHAPE = (2, 6, 5, 8)
#: What moves x into y: nodes, operands that are constants, kernels that are called.
MOVES: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, int]]] = {
    "nothing": ([make("Identity", ["x"], ["y"])], {}, {}),
    "reshape": ([make("Reshape", ["x", "to"], ["y"])], {"to": np.array([4, -1])}, {"reshape": 1}),
    "permute": ([make("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], {}, {"permute": 1}),
    "flatten": ([make("Flatten", ["x"], ["y"])], {}, {"reshape": 1}),
    "squeeze and unsqueeze": (
        [make("Unsqueeze", ["x", "one"], ["t"]), make("Squeeze", ["t", "one"], ["y"])],
        {"one": np.array([1])},
        {},
    ),
    "slice": (
        [make("Slice", ["x", "from", "to", "axes", "steps"], ["y"])],
        {
            "from": np.array([1, 0]),
            "to": np.array([5, 8]),
            "axes": np.array([1, 3]),
            "steps": np.array([1, 2]),
        },
        {"slice": 1},
    ),
    "split and join": (
        [
            make("Split", ["x"], ["a", "b"], axis=1),
            make("Concat", ["b", "a", "b"], ["y"], axis=1),
        ],
        {},
        {"slice": 2, "concat": 1},
    ),
    "gather": ([make("Gather", ["x", "at"], ["y"], axis=1)], {"at": np.array([3, 0])}, {"take": 1}),
    "expand": (
        [make("Reshape", ["x", "to"], ["t"]), make("Expand", ["t", "wide"], ["y"])],
        {"to": np.array([6, 2, 1, 40]), "wide": np.array([6, 2, 3, 40])},
        {"reshape": 1, "broadcast_to": 1},
    ),
    "nearest": (
        [
            make(
                "Resize", ["x", "", "scales"], ["y"], mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        ],
        {"scales": np.array([1, 1, 2, 2], "float32")},
        {"reshape": 2, "broadcast_to": 1},
    ),
    "greatest": (
        [
            make(
                "MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
            )
        ],
        {},
        {"max_pool2d": 1},
    ),
    "greatest of lines": (
        [
            make("Reshape", ["x", "to"], ["t"]),
            make("MaxPool", ["t"], ["y"], kernel_shape=[3], strides=[2], pads=[1, 1]),
        ],
        {"to": np.array([2, 30, 8])},
        {"reshape": 2, "max_pool2d": 1},
    ),
    "greatest, rounded up": (
        [make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)],
        {},
        {"max_pool2d": 1},
    ),
    "several": (
        [
            make("MaxPool", ["x"], ["t"], kernel_shape=[2, 2]),
            make("Transpose", ["t"], ["u"], perm=[0, 2, 3, 1]),
            make("Reshape", ["u", "to"], ["y"]),
        ],
        {"to": np.array([2, -1])},
        {"max_pool2d": 1, "permute": 1, "reshape": 1},
    ),
}  # fmt: skip


def moved(name: str, dtype: str, scale: float, zero: int) -> tuple[onnx.ModelProto, dict]:
    """Dequantised, moved and quantised by the same scale and zero point."""
    nodes, constants, _ = MOVES[name]
    weights = constants | {"s": np.float32(scale), "z": np.array(zero, dtype)}
    inputs = {"q": whole_range(*SHAPE, dtype=dtype)}
    around = [
        make("DequantizeLinear", ["q", "s", "z"], ["x"]),
        *nodes,
        make("QuantizeLinear", ["y", "s", "z"], ["r"]),
    ]
    return network(around, inputs, {"r": dtype}, weights), inputs


def as_written(model: onnx.ModelProto, inputs: dict) -> dict[str, np.ndarray]:
    """ONNX Runtime's results without its own rules of this kind."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def run(model: onnx.ModelProto, inputs: dict, folder: Path) -> dict[str, int]:
    """Equal integers, all in one region; how often each operator is there."""
    done = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert done.report.left == ()
    found = byoc.load(folder / "m.so").run(inputs)
    for name, want in as_written(model, inputs).items():
        assert found[name].dtype == want.dtype
        np.testing.assert_array_equal(found[name], want)
    return {use.algorithm: use.nodes for use in done.report.kernels}


@pytest.mark.parametrize(
    ("dtype", "scale", "zero"),
    [("int8", 0.037, -7), ("uint8", 1e-40, 255), ("uint8", 1e30, 3), ("int8", 1.1, 127)],
)
@pytest.mark.parametrize("name", MOVES)
def test_integers_move(name: str, dtype: str, scale: float, zero: int, tmp_path: Path) -> None:
    model, inputs = moved(name, dtype, scale, zero)
    assert run(model, inputs, tmp_path) == MOVES[name][2]


def test_parts_of_a_concatenation_get_its_parameters(tmp_path: Path) -> None:
    weights = {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.int8(3)}
    inputs = {name: whole_range(*SHAPE, dtype="int8", seed=i) for i, name in enumerate("qp")}
    for second, kernels in (
        ("s", {"concat": 1}),
        ("t", {"lookup": 1, "concat": 1}),
    ):
        nodes = [
            make("DequantizeLinear", ["q", "s", "z"], ["x"]),
            make("DequantizeLinear", ["p", second, "z"], ["y"]),
            make("Concat", ["x", "y"], ["c"], axis=1),
            make("QuantizeLinear", ["c", "s", "z"], ["r"]),
        ]
        kept = {name: weights[name] for name in {"s", second, "z"}}
        assert run(network(nodes, inputs, {"r": "int8"}, kept), inputs, tmp_path) == kernels


def test_a_concatenation_that_is_read_as_numbers_stays_one_of_numbers(tmp_path: Path) -> None:
    weights = {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.int8(3)}
    inputs = {name: whole_range(*SHAPE, dtype="int8", seed=i) for i, name in enumerate("qp")}
    nodes = [
        make("DequantizeLinear", ["q", "s", "z"], ["x"]),
        make("DequantizeLinear", ["p", "t", "z"], ["y"]),
        make("Concat", ["x", "y"], ["c"], axis=1),
        make("QuantizeLinear", ["c", "s", "z"], ["r"]),
    ]
    model = network(nodes, inputs, {"r": "int8", "c": "float32"}, weights)
    wanted = {"dequantize": 2, "concat": 1, "quantize": 1}
    assert run(model, inputs, tmp_path) == wanted


@pytest.mark.parametrize(
    ("scale", "zero"), [(0.1, 4), (0.2, 3), (1e37, 3)], ids=["zero point", "scale", "overflow"]
)
def test_other_parameters_change_the_integers(scale: float, zero: int, tmp_path: Path) -> None:
    own = scale if scale > 1 else 0.1
    weights = {"s": np.float32(own), "z": np.uint8(3), "t": np.float32(scale), "u": np.uint8(zero)}
    nodes = [
        make("DequantizeLinear", ["q", "s", "z"], ["x"]),
        make("Flatten", ["x"], ["y"]),
        make("QuantizeLinear", ["y", "t", "u"], ["r"]),
    ]
    inputs = {"q": whole_range(*SHAPE, dtype="uint8")}
    taken = run(network(nodes, inputs, {"r": "uint8"}, weights), inputs, tmp_path)
    assert taken == {"dequantize": 1, "reshape": 1, "quantize": 1}


def test_numbers_that_are_quantised_first_stay_rounded(tmp_path: Path) -> None:
    weights = {"s": np.float32(0.5), "z": np.uint8(3)}
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"]),
        make("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    inputs = {"x": np.linspace(-3, 200, 90, dtype="float32").reshape(9, 10)}
    taken = run(network(nodes, inputs, {"y": "float32"}, weights), inputs, tmp_path)
    assert taken == {"quantize": 1, "dequantize": 1}


def test_numbers_that_are_read_elsewhere_are_there(tmp_path: Path) -> None:
    weights = {"s": np.float32(0.5), "z": np.uint8(3)}
    nodes = [
        make("DequantizeLinear", ["q", "s", "z"], ["x"]),
        make("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]),
        make("QuantizeLinear", ["y", "s", "z"], ["r"]),
        make("Exp", ["y"], ["e"]),
    ]
    inputs = {"q": whole_range(*SHAPE, dtype="uint8")}
    model = network(nodes, inputs, {"r": "uint8", "y": "float32"}, weights)
    assert run(model, inputs, tmp_path) == {"dequantize": 1, "permute": 2}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_images_are_pooled_channels_last_and_joined_in_place(dtype: str, tmp_path: Path) -> None:
    """Pools write the slices of their concatenation; only input and output are turned."""
    weights = {"s": np.float32(0.1), "z": np.array(3, dtype)}
    nodes = [make("DequantizeLinear", ["q", "s", "z"], ["x"])]
    for name, kernel, pads in (("a", [3, 3], [1] * 4), ("b", [5, 5], [2] * 4)):
        nodes += [
            make("MaxPool", ["x"], [name], kernel_shape=kernel, pads=pads),
            make("QuantizeLinear", [name, "s", "z"], [f"q{name}"]),
            make("DequantizeLinear", [f"q{name}", "s", "z"], [f"d{name}"]),
        ]
    nodes += [
        make("Concat", ["da", "db"], ["y"], axis=1),
        make("QuantizeLinear", ["y", "s", "z"], ["r"]),
    ]
    inputs = {"q": whole_range(*SHAPE, dtype=dtype)}
    model = network(nodes, inputs, {"r": dtype}, weights)
    assert run(model, inputs, tmp_path) == {"max_pool2d": 2, "concat": 1}
    report = byoc.compile(model, tmp_path / "again.so", min_bytes=0).report
    assert [region.plan.copies for region in report.regions] == [2]
