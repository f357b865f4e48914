"""Large weights that are left where they are until the importer asks for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from byoc.errors import ModelError
from byoc.frontends.onnx import import_onnx, prepare, prepare_apart
from byoc.frontends.onnx.read_model import load_model
from byoc.frontends.onnx.weights_apart import LARGE_WEIGHT, ApartModel, outline, read_apart
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random


def two_products() -> onnx.ModelProto:
    """x [2, 256] by a large w, by a small v, and by a large one whose numbers are no raw bytes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("MatMul", ["b", "u"], ["y"]),
    ]
    model = onnx_model(nodes, {"x": [2, 256]}, ["y"], {"w": random(256, 300), "v": random(300, 8)})
    values = random(8, LARGE_WEIGHT // 16)
    model.graph.initializer.append(helper.make_tensor("u", 1, values.shape, values.reshape(-1)))
    return model


def normalised(**options: float) -> onnx.ModelProto:
    """A large convolution with bias and a BatchNormalization behind it."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"], **options),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    weights = {"w": random(96, 1024, 1, 1), "b": random(96), "v": np.abs(random(96)) + 0.5}
    weights |= {name: random(96) for name in "stm"}
    return onnx_model(nodes, {"x": [1, 1024, 5, 4]}, ["y"], weights)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def data_of(apart: ApartModel, name: str) -> bytes:
    return next(t.raw_data for t in apart.model.graph.initializer if t.name == name)


def never() -> onnx.ModelProto:
    raise AssertionError("a plain file was read as a whole")


def test_a_file_is_read_without_its_large_weights(tmp_path: Path) -> None:
    model = two_products()
    apart = read_apart(saved(model, tmp_path), never)
    assert set(apart.weights) == {"w"} and not data_of(apart, "w")
    assert apart.model.ByteSize() < model.ByteSize() - LARGE_WEIGHT
    assert apart.whole() == model


def test_a_loaded_file_is_whole(tmp_path: Path) -> None:
    assert load_model(saved(two_products(), tmp_path)) == two_products()


def test_external_data_stay_in_their_file(tmp_path: Path) -> None:
    model = two_products()
    onnx.save(two_products(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    apart = prepare_apart(tmp_path / "m.onnx")
    assert "w" in apart.weights and not data_of(apart, "w")
    feed = {"x": random(2, 256)}
    assert_agrees(onnxruntime_outputs(apart.whole(), feed), onnxruntime_outputs(model, feed))


def test_memory_that_numpy_shows_for_reading_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NumPy 1.26 and 2.1 show that of TVM's tensors."""

    def shown(tensor: object) -> np.ndarray:
        values = from_dlpack(tensor)
        values.flags.writeable = False
        return values

    from_dlpack = np.from_dlpack
    monkeypatch.setattr(np, "from_dlpack", shown)
    onnx.save(two_products(), tmp_path / "m.onnx")
    made = byoc.compile(tmp_path / "m.onnx", tmp_path / "m.so")
    assert len(made.report.regions) == 1 and not made.report.left
    inputs = {"x": random(2, 256)}
    found = byoc.load(made.path).run(inputs)
    assert_agrees(found, onnxruntime_outputs(two_products(), inputs))


def test_a_file_that_changes_is_named(tmp_path: Path) -> None:
    path = saved(two_products(), tmp_path)
    apart = prepare_apart(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"model\.onnx: the file was changed while it was read"):
        apart.whole()


def test_a_model_in_memory_is_not_changed() -> None:
    model = two_products()
    model.metadata_props.add(key="k", value="v")
    before = model.SerializeToString(deterministic=True)
    apart = prepare_apart(model)
    assert {"w", "u"} <= set(apart.weights)
    assert len(import_onnx(apart)["main"].params) == 1
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("as_file", [True, False], ids=["file", "memory"])
def test_weights_reach_the_compiled_model(as_file: bool, tmp_path: Path) -> None:
    model = two_products()
    compiled = byoc.compile(saved(model, tmp_path) if as_file else model, tmp_path / "m.so")
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    feed = {"x": random(2, 256)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(feed), onnxruntime_outputs(model, feed))


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.5}], ids=["plain", "epsilon"])
def test_batch_norm_goes_into_weights_that_are_apart(
    options: dict[str, float], tmp_path: Path
) -> None:
    model = normalised(**options)
    apart = prepare_apart(saved(model, tmp_path))
    assert [node.op_type for node in apart.model.graph.node] == ["Conv", "Relu"]
    assert list(apart.weights) == ["n_weight"] and apart.model.graph.node[0].name == "conv"
    feed = {"x": random(1, 1024, 5, 4)}
    expected = onnxruntime_outputs(model, feed)
    compiled = byoc.compile(tmp_path / "model.onnx", tmp_path / "m.so")
    assert [node["composite"] for node in compiled.report.to_json()["nodes"]] == [
        "ext.conv2d_bias_relu"
    ]
    assert_agrees(byoc.load(tmp_path / "m.so").run(feed), expected)
    assert_agrees(onnxruntime_outputs(apart.whole(), feed), expected)


@pytest.mark.parametrize("reader", ["conv", "output", "weight"])
def test_batch_norm_stays_where_the_sum_is_read_elsewhere(reader: str) -> None:
    """``conv`` is read twice, is an output, or its weight is another layer's as well."""
    model = normalised()
    if reader == "output":
        model.graph.output.append(helper.make_empty_tensor_value_info("c"))
    else:
        operands = ["c", "n"] if reader == "conv" else ["n", "w2"]
        if reader == "weight":
            reshape = helper.make_node("Reshape", ["w", "shape"], ["w2"])
            model.graph.node.insert(0, reshape)
            shape = np.array([1, 96, 1024, 1], np.int64)
            model.graph.initializer.append(numpy_helper.from_array(shape, "shape"))
            operands = ["w2", "w2"]
        model.graph.node.append(helper.make_node("Add", operands, ["z"]))
        model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    model = onnx.shape_inference.infer_shapes(model)
    feed = {"x": random(1, 1024, 5, 4)}
    expected = onnxruntime_outputs(model, feed)
    assert_agrees(onnxruntime_outputs(prepare(model), feed), expected)


def test_batch_norm_gives_its_parameters_names_of_their_own() -> None:
    """The result is called ``n``, and there are tensors of the names that it would give."""
    model = normalised()
    for node in model.graph.node[:2]:
        for place, name in enumerate(node.input):
            node.input[place] = {"s": "n_weight", "t": "n_bias"}.get(name, name)
    for tensor in model.graph.initializer:
        tensor.name = {"s": "n_weight", "t": "n_bias"}.get(tensor.name, tensor.name)
    model.graph.node.append(helper.make_node("Mul", ["y", "n_bias_1"], ["z"]))
    model.graph.output[0].name = "z"
    model.graph.initializer.append(numpy_helper.from_array(random(1, 96, 1, 1), "n_bias_1"))
    feed = {"x": random(1, 1024, 5, 4)}
    expected = onnxruntime_outputs(model, feed)
    prepared = prepare(model)
    assert [node.op_type for node in prepared.graph.node] == ["Conv", "Relu", "Mul"]
    assert_agrees(onnxruntime_outputs(prepared, feed), expected)


def test_batch_norm_stays_where_a_branch_reads_the_sum() -> None:
    model = normalised()
    branches = {
        name: helper.make_graph(
            [helper.make_node(kind, ["c"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, None)],
        )
        for name, kind in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    model.graph.node.append(helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0))
    model.graph.node.append(helper.make_node("Cast", ["largest"], ["which"], to=9))
    model.graph.node.append(helper.make_node("If", ["which"], ["z"], **branches))
    model.graph.output.append(helper.make_tensor_value_info("z", 1, None))
    feed = {"x": random(1, 1024, 5, 4)}
    expected = onnxruntime_outputs(model, feed)
    prepared = prepare(model)
    assert "BatchNormalization" in [node.op_type for node in prepared.graph.node]
    assert_agrees(onnxruntime_outputs(prepared, feed), expected)


def test_models_above_2_gb_are_prepared_in_little_memory(tmp_path: Path) -> None:
    """3 GB of weights in a file with holes: nothing is read, and no message is too large."""
    nodes, value = [], "x"
    model = onnx_model([], {"x": [1, 16384]}, ["y2"])
    for index in range(3):
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"]))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"y{index}"]))
        value = f"y{index}"
        tensor = onnx.TensorProto(name=f"w{index}", data_type=1, dims=[16384, 16384])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, number in (("location", "w"), ("offset", str(index << 30))):
            tensor.external_data.add(key=key, value=number)
        model.graph.initializer.append(tensor)
    model.graph.node.extend(nodes)
    with (tmp_path / "w").open("wb") as file:
        file.truncate(3 << 30)
    apart = prepare_apart(saved(model, tmp_path))
    assert len(apart.weights) == 3 and apart.model.ByteSize() < 10_000
    assert outline(apart.model).ByteSize() < 10_000


def test_the_outline_of_a_model_has_the_data_of_shapes_alone() -> None:
    model = two_products()
    model.graph.initializer.append(numpy_helper.from_array(np.arange(4), "shape"))
    copy = outline(model)
    assert copy.ByteSize() < 1000 and len(copy.graph.initializer) == 4
    assert copy.graph.initializer[3] == model.graph.initializer[3]
