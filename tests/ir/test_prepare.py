"""Reading models: static shapes, simplification, and one clear line for everything wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from byoc.errors import ByocError, ImportFailure, ModelError, ShapeError
from byoc.frontends import import_model
from byoc.frontends.onnx import import_onnx, model_inputs, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .interpret import run_with_tvm


def relu_model(shape: list[int | str] | None, opset: int = 17) -> onnx.ModelProto:
    return onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"], opset=opset)


def two_inputs(first: list[int | str], second: list[int | str]) -> onnx.ModelProto:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    return onnx_model([node], {"a": first, "b": second}, ["y"])


def shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    return {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model_inputs(model)
    }


def conv_model() -> onnx.ModelProto:
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])
    weights = {"w": random(4, 3, 3, 3)}
    return onnx_model([node], {"x": [1, 3, 8, 8]}, ["y"], weights)


def line_of(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert isinstance(error.value, ByocError) and "\n" not in text
    return text


# ---------------------------------------------------------------------- what a front end gives


def test_a_front_end_gives_names_shapes_and_source(tmp_path: Path) -> None:
    model = two_inputs(["n", 4], [1, 4])
    found = import_model(model, {"a": ["2*m", 4]})
    assert [str(info) for info in found.inputs] == ["a: float32[2*m, 4]", "b: float32[1, 4]"]
    assert [str(info) for info in found.outputs] == ["y: float32[2*m, 4]"]
    assert [len(found.module["main"].params), [file.name for file in found.source]] == [2, [""]]
    onnx.save(model, tmp_path / "two.onnx")
    (file,) = import_model(tmp_path / "two.onnx", {"a": [2, 4]}).source
    content = (tmp_path / "two.onnx").read_bytes()
    assert (file.name, file.sha256) == ("two.onnx", hashlib.sha256(content).hexdigest())


# ---------------------------------------------------------------------- shapes


@pytest.mark.parametrize("dims", [["n", 3, "h", "w"], [-1, 3, 0, -1], ["?", 3, "?", "?"], None])
def test_given_shapes_are_set(dims: list[int | str] | None) -> None:
    prepared = prepare(relu_model(dims), {"x": [2, 3, 4, 5]})
    assert shapes(prepared) == {"x": [2, 3, 4, 5]}


def test_symbolic_extents_are_written_in_one_form() -> None:
    prepared = prepare(relu_model(["n", 3, "h", "w"]), {"x": ["b", 3, "32 * k", "w*2"]})
    dims = prepared.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["b", 3, "32*k", "2*w"]


def test_inputs_share_symbolic_extents() -> None:
    prepared = prepare(two_inputs(["batch", 4], ["batch", 1]), {"a": ["2*n", 4]})
    assert prepared.graph.input[1].type.tensor_type.shape.dim[0].dim_param == "2*n"


def test_static_models_need_nothing_and_are_not_changed() -> None:
    model = relu_model([1, 4])
    before = model.SerializeToString()
    assert shapes(prepare(model)) == {"x": [1, 4]}
    assert model.SerializeToString() == before


def test_one_symbol_is_given_once() -> None:
    model = two_inputs(["batch", 4], ["batch", 1])
    assert shapes(prepare(model, {"a": [3, 4]})) == {"a": [3, 4], "b": [3, 1]}


def test_old_models_list_weights_among_inputs() -> None:
    model = conv_model()
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [4, 3, 3, 3]))
    assert shapes(prepare(model)) == {"x": [1, 3, 8, 8]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"z": [1]}, "input 'z' is not in the model; its inputs are 'x'"),
        (
            {"x": [1, 3, 4]},
            "input 'x': shape [1, 3, 4] has rank 3, the model's is [n, 3, h, w] of rank 4;"
            " give 4 extents",
        ),
        (
            {"x": [1, 4, 8, 8]},
            "input 'x': axis 1 of shape [1, 4, 8, 8] is 4, the model's is fixed to 3 in"
            " [n, 3, h, w]; give 3 there",
        ),
        (
            {"x": [1, 3, 0, 8]},
            "input 'x': extent 0 in its shape; need positive whole numbers,"
            " names for axes that stay symbolic, or multiples as in 32*h",
        ),
        (
            {"x": [1, 3, 2.5, 8]},
            "input 'x': extent 2.5 in its shape; need positive whole numbers,"
            " names for axes that stay symbolic, or multiples as in 32*h",
        ),
        (
            {"x": [1, 3, "h*w", 8]},
            "input 'x': 'h*w' is neither a name nor a multiple of one in its shape;"
            " need positive whole numbers,"
            " names for axes that stay symbolic, or multiples as in 32*h",
        ),
        (
            {"x": [1, 4, "32*h", 8]},
            "input 'x': axis 1 of shape [1, 4, 32*h, 8] is 4, the model's is fixed to 3 in"
            " [n, 3, h, w]; give 3 there",
        ),
    ],
)
def test_wrong_shapes(given: dict[str, list[int]], expected: str) -> None:
    with pytest.raises(ShapeError) as error:
        prepare(relu_model(["n", 3, "h", "w"]), given)
    assert line_of(error) == expected


def test_input_without_a_rank() -> None:
    with pytest.raises(ShapeError) as error:
        prepare(relu_model(None))
    assert "input 'x' has no shape in the model" in line_of(error)


def test_given_extents_may_differ_where_the_file_has_one_name() -> None:
    made = two_inputs(["batch", 4], ["batch", 1])
    prepared = prepare(made, {"a": [3, 4], "b": [2, 1]})
    dims = [value.type.tensor_type.shape.dim[0].dim_value for value in prepared.graph.input]
    assert dims == [3, 2]
    with pytest.raises(ImportFailure) as error:
        import_onnx(prepared)
    assert "Add" in line_of(error)


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("content", [b"", b"\x00\x01garbage" * 9, b"hello, world\n", "truncated"])
def test_files_that_are_no_models(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    whole = conv_model().SerializeToString()
    path.write_bytes(whole[: len(whole) // 2] if content == "truncated" else content)
    with pytest.raises(ModelError) as error:
        prepare(path)
    assert line_of(error).startswith(f"{path}: no ONNX model (")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        prepare(tmp_path / "no.onnx")
    assert line_of(error).endswith("no.onnx: no such file; give the path of an ONNX model")
    with pytest.raises(ModelError) as error:
        prepare(str(tmp_path))
    assert "is a folder" in line_of(error)


def save_with_external_data(path: Path) -> None:
    onnx.save(
        conv_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )


def test_external_data(tmp_path: Path) -> None:
    save_with_external_data(tmp_path / "model.onnx")
    prepared = prepare(tmp_path / "model.onnx")
    (weight,) = prepared.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), random(4, 3, 3, 3))


def test_missing_external_data(tmp_path: Path) -> None:
    save_with_external_data(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError) as error:
        prepare(tmp_path / "model.onnx")
    assert "external data file 'weights.bin' of tensor 'w' is missing" in line_of(error)


def test_short_external_data(tmp_path: Path) -> None:
    save_with_external_data(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").write_bytes(b"1234")
    with pytest.raises(ModelError) as error:
        prepare(tmp_path / "model.onnx")
    assert "has 4 bytes and tensor 'w' needs 432" in line_of(error)


def test_model_in_memory_without_its_external_data(tmp_path: Path) -> None:
    save_with_external_data(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    with pytest.raises(ModelError) as error:
        prepare(model)
    assert "tensor 'w' has its data in the file 'weights.bin'" in line_of(error)


# ---------------------------------------------------------------------- interface and importer


def test_interface_stays() -> None:
    nodes = [
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    model = onnx_model(nodes, {"unused": [2], "a": [4, 4], "last": [3]}, ["z", "y"])
    prepared = prepare(model)
    assert list(shapes(prepared)) == ["unused", "a", "last"]
    assert [value.name for value in prepared.graph.output] == ["z", "y"]


def test_large_matrices_survive() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gemm", ["a", "w"], ["b"], transB=1),
        helper.make_node("Conv", ["image", "k"], ["c"]),
    ]
    weights = {"w": random(256, 300), "k": random(64, 1024, 1, 1), "unused": random(512, 512)}
    inputs = {"x": [2, 256], "image": [1, 1024, 2, 2]}
    model = onnx_model(nodes, inputs, ["b", "c"], weights)
    prepared = prepare(model)
    assert shapes(prepared) == inputs
    feed = {name: random(*shape) for name, shape in inputs.items()}
    assert_agrees(onnxruntime_outputs(prepared, feed), onnxruntime_outputs(model, feed))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_auto_pad_becomes_pads(mode: str, stride: int) -> None:
    attrs = {"strides": [stride] * 2, "auto_pad": mode}
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 4], **attrs)
    weights = {"w": random(2, 3, 3, 4)}
    model = onnx_model([node], {"x": [1, 3, 7, 8]}, ["y"], weights)
    prepared = prepare(model)
    assert "auto_pad" not in [a.name for a in prepared.graph.node[0].attribute]
    feed = {"x": random(1, 3, 7, 8)}
    assert_agrees(onnxruntime_outputs(prepared, feed), onnxruntime_outputs(model, feed))


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 20, 22])
def test_opsets(opset: int, capfd: pytest.CaptureFixture[str]) -> None:
    mod = import_onnx(prepare(relu_model([1, 4], opset)))
    x = np.array([[-1, 0, 2, np.inf]], "float32")
    np.testing.assert_array_equal(run_with_tvm(mod, x)[0], np.maximum(x, 0))
    assert capfd.readouterr().out == ""


def test_unknown_operators_are_named_with_their_nodes() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="acme"),
        helper.make_node("Frobnicate", ["a"], ["b"], domain="acme"),
        helper.make_node("Quux", ["b"], ["y"], name="last", domain="acme"),
    ]
    model = onnx_model(nodes, {"x": [1, 4]}, ["y"])
    model.opset_import.append(helper.make_opsetid("acme", 1))
    with pytest.raises(ImportFailure) as error:
        import_onnx(model)
    assert line_of(error) == (
        "no converter for operators Frobnicate of domain 'acme' (node 'first', with output 'b'),"
        " Quux of domain 'acme' (node 'last'); export the model with ONNX's own operators, or with"
        " functions in the file that say what others compute, or bring a kernel for it"
        " (docs/my_library.md)"
    )


def test_an_unknown_operator_may_hold_bytes() -> None:
    """tf2onnx leaves TensorFlow's calls of functions as they are, with messages as attributes."""
    node = helper.make_node("PartitionedCall", ["x"], ["y"], name="call", config=b"\x82\x01")
    with pytest.raises(ImportFailure, match="no converter for operator PartitionedCall"):
        import_onnx(prepare(onnx_model([node], {"x": [1, 4]}, ["y"])))


def test_refused_node_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="soft_7", axis=5)
    with pytest.raises(ImportFailure) as error:
        import_onnx(onnx_model([node], {"x": [1, 4]}, ["y"]))
    assert "operator Softmax (node 'soft_7') of 'x' float[1, 4]: 'axis' must" in line_of(error)
    assert capfd.readouterr().out == ""
