"""Integers of 8 bits inside regions and at their borders, through every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import byoc
from byoc.errors import InputError
from tests.deploy.standalone_api import Instance
from tests.reference import onnxruntime_outputs

BYTES = ("int8", "uint8")


def whole_range(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, str],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "bytes",
        [info(name, kind(array.dtype), array.shape) for name, array in inputs.items()],
        [info(name, kind(np.dtype(dtype)), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    for name, want in wanted.items():
        assert found[name].dtype == want.dtype
        np.testing.assert_array_equal(found[name], want, err_msg=name)


def compiled(source: onnx.ModelProto, folder: Path) -> byoc.Model:
    done = byoc.compile(source, folder / "m.so", min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.left == ()
    return byoc.load(folder / "m.so")


def moved(dtype: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Every operator that moves what it reads; the condition is another dtype of one byte."""
    x, y = whole_range(2, 3, 4, 5, dtype=dtype), whole_range(2, 3, 4, 5, dtype=dtype, seed=1)
    inputs = {"x": x, "y": y, "c": whole_range(2, 1, 4, 5, dtype=dtype, seed=2) > 50}
    one = np.ones(4, np.int64)
    weights = {
        "to": np.array([2, 5, 12]),
        "from": one,
        "end": 9 * one,
        "picked": np.array([[2, 0], [1, 1]]),
        "origin": 0 * one,
        "corner": np.array([2, 1, 4, 1]),
        "wide": np.array([2, 3, 4, 5]),
    }
    make = helper.make_node
    nodes = [
        make("Where", ["c", "x", "y"], ["chosen"]),
        make("Transpose", ["chosen"], ["turned"], perm=[0, 3, 1, 2]),
        make("Reshape", ["turned", "to"], ["shaped"]),
        make("Concat", ["x", "y", "x"], ["joined"], axis=1),
        make("Slice", ["joined", "from", "end"], ["cut"]),
        make("Gather", ["x", "picked"], ["taken"], axis=1),
        make("Slice", ["y", "origin", "corner"], ["first"]),
        make("Expand", ["first", "wide"], ["wider"]),
    ]
    outputs = dict.fromkeys(("shaped", "joined", "cut", "taken", "wider"), dtype)
    return model(nodes, inputs, outputs, weights), inputs


@pytest.mark.parametrize("dtype", BYTES)
def test_what_moves_bytes(dtype: str, tmp_path: Path) -> None:
    source, inputs = moved(dtype)
    assert_same(compiled(source, tmp_path).run(inputs), onnxruntime_outputs(source, inputs))


@pytest.mark.parametrize("dtype", BYTES)
def test_arithmetic_wraps_and_comparisons_mind_the_sign(dtype: str, tmp_path: Path) -> None:
    inputs = {"x": whole_range(7, 9, dtype=dtype), "y": whole_range(9, dtype=dtype, seed=1)}
    kinds = ("Add", "Sub", "Mul", "Less", "GreaterOrEqual", "Equal")
    nodes = [helper.make_node(kind, ["x", "y"], [kind]) for kind in kinds]
    outputs = dict.fromkeys(kinds[:3], dtype) | dict.fromkeys(kinds[3:], "bool")
    source = model(nodes, inputs, outputs)
    want = dict(zip(outputs, ReferenceEvaluator(source).run(None, inputs), strict=True))
    assert_same(compiled(source, tmp_path).run(inputs), want)


def casts() -> Iterator[tuple[str, str]]:
    known = ("float32", "int32", "int64", "bool", *BYTES)
    for source in known:
        yield from ((source, to) for to in known if source != to and {source, to} & set(BYTES))


@pytest.mark.parametrize(("source", "to"), list(casts()))
def test_casts_wrap_as_onnx_runtime_has_it(source: str, to: str, tmp_path: Path) -> None:
    if source in BYTES:
        x = whole_range(500, dtype=source)
    else:
        special = [300, -1.9, -129.5, 255.9, 256, 128, 1e6, -1e6, 0, -0.4, 0.9]
        x = np.array(special * 7).astype(source)
    if source == "float32":
        x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf], source)])
    node = helper.make_node("Cast", ["x"], ["y"], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    network = model([node], {"x": x}, {"y": to})
    (got,) = compiled(network, tmp_path).run({"x": x}).values()
    assert got.dtype == to
    np.testing.assert_array_equal(got, onnxruntime_outputs(network, {"x": x})["y"])


@pytest.mark.parametrize("dtype", BYTES)
def test_every_door_takes_and_gives_bytes(dtype: str, tmp_path: Path) -> None:
    """DLPack, TVM's machine, and the standalone form."""
    source, inputs = moved(dtype)
    want = onnxruntime_outputs(source, inputs)
    loaded = compiled(source, tmp_path)
    tensors = {name: tvm_ffi.from_dlpack(array) for name, array in inputs.items()}
    assert_same(loaded.run(tensors), want)
    with pytest.raises(InputError, match=f"dtype int16; need {dtype}"):
        loaded.run(inputs | {"x": inputs["x"].astype("int16")})

    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "m.so")), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
    assert_same({n: r.numpy() for n, r in zip(want, found, strict=True)}, want)

    done = byoc.compile_standalone(source, tmp_path / "folder", name="bytes")
    assert len(done.report.regions) == 1 and not done.report.left
    with Instance(done.folder / "lib" / "libbytes.so") as instance:
        assert_same(instance.answers(inputs), want)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.filterwarnings("ignore::byoc.AxesNote")
def test_images_between_whose_pixels_others_lie(dtype: str, is_open: bool, tmp_path: Path) -> None:
    """Resized in floats, of which the whole part stays; fractions of a quarter are exact."""
    modes = ("half_pixel", "asymmetric", "pytorch_half_pixel")
    nodes = [
        helper.make_node(
            "Resize", ["x", "", s], [f"y{i}"], mode="linear", coordinate_transformation_mode=mode
        )
        for i, (mode, s) in enumerate([(m, s) for m in modes for s in ("twice", "half")])
    ]
    x = whole_range(2, 3, 8, 12, dtype=dtype)
    weights = {"twice": np.float32([1, 1, 2, 2]), "half": np.float32([1, 1, 0.5, 0.5])}
    outputs = {f"y{i}": dtype for i in range(len(nodes))}
    source = model(nodes, {"x": x}, outputs, weights)
    if is_open:
        dims = source.graph.input[0].type.tensor_type.shape.dim
        for dim, name in zip(dims, ("n", "", "h", "w"), strict=True):
            if name:
                dim.dim_param = name
    with compiled(source, tmp_path) as loaded:
        assert_same(loaded.run({"x": x}), onnxruntime_outputs(source, {"x": x}))


@pytest.mark.parametrize("dtype", [*BYTES, "float16"])
def test_images_of_repeated_pixels(dtype: str, tmp_path: Path) -> None:
    """Nearest, by whole numbers: elements are repeated, and a region is worth that alone."""
    near = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    nodes = [
        helper.make_node("Resize", ["x", "", s], [f"y_{s}"], nearest_mode="floor", **near)
        for s in ("twice", "apart", "wide")
    ]
    x = whole_range(2, 3, 40, 27, dtype="int8").astype(dtype)
    scales = {"twice": [1, 1, 2, 2], "apart": [1, 1, 3, 4], "wide": [1, 1, 1, 5]}
    weights = {name: np.float32(values) for name, values in scales.items()}
    source = model(nodes, {"x": x}, dict.fromkeys((f"y_{s}" for s in scales), dtype), weights)
    done = byoc.compile(source, tmp_path / "m.so")
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(tmp_path / "m.so") as loaded:
        assert_same(loaded.run({"x": x}), onnxruntime_outputs(source, {"x": x}))
