"""Files from strangers: sound models are read, anything else is one line, quickly and in bounds."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph

import byoc
from byoc.errors import ByocError, CompileError, ModelError, PartitionError
from byoc.frontends.onnx import prepare, prepare_apart
from byoc.frontends.onnx.weights_apart import LARGE_WEIGHT
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random

FLOAT = TensorProto.FLOAT


def refusal(model: Path | onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as error:
        prepare_apart(model)
    text = str(error.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------------- external data

#: Elements of a small tensor, which ONNX's reader reads, and of a large one, which ours does.
SMALL, LARGE = 4, LARGE_WEIGHT // 4


def external(name: str, count: int, **entries: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[count])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def saved(folder: Path, tensor: TensorProto, where: str = "initializer") -> Path:
    """A model x + w in a folder of its own; the tensor is in the graph or inside of it."""
    count = tensor.dims[0]
    nodes, weights = [helper.make_node("Add", ["x", "w"], ["y"])], [tensor]
    if where == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
        weights = []
    elif where == "branch":
        result = [helper.make_tensor_value_info("r", FLOAT, None)]
        add = [helper.make_node("Add", ["x", "w"], ["r"])]
        neg = [helper.make_node("Neg", ["x"], ["r"])]
        nodes = [
            helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
            helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=helper.make_graph(add, "then", [], result, weights),
                else_branch=helper.make_graph(neg, "else", [], result),
            ),
        ]
        weights = []
    model = onnx_model(nodes, {"x": [count]}, ["y"])
    model.graph.initializer.extend(weights)
    (folder / "model").mkdir()
    path = folder / "model" / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file beside the model's folder that is long enough for any tensor here."""
    path = tmp_path / "secret"
    path.write_bytes(np.arange(2 * LARGE, dtype=np.float32).tobytes())
    return path


@pytest.mark.parametrize("where", ["initializer", "constant", "branch"])
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("location", ["../secret", "{secret}", "sub/../../secret", "..\\secret"])
def test_data_outside_of_the_folder(
    tmp_path: Path, secret: Path, location: str, count: int, where: str
) -> None:
    location = location.format(secret=secret)
    path = saved(tmp_path, external("w", count, location=location), where)
    (path.parent / "sub").mkdir()
    assert "is not in the model's folder; put it into" in refusal(path)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_out_of_the_folder(tmp_path: Path, secret: Path, kind: str, count: int) -> None:
    location = "w" if kind == "file" else "sub/secret"
    path = saved(tmp_path, external("w", count, location=location))
    if kind == "file":
        (path.parent / "w").symlink_to(secret)
    else:
        (path.parent / "sub").symlink_to(secret.parent, target_is_directory=True)
    assert "is a link that leads out of the model's folder; copy the file into" in refusal(path)


@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "-4"}, "has the offset '-4'; need a whole number of bytes, 0 or more"),
        ({"length": "-4"}, "has the length '-4'; need a whole number"),
        ({"offset": "1.5"}, "has the offset '1.5'"),
        ({"offset": "0x10"}, "has the offset '0x10'"),
        ({"offset": "٣"}, "has the offset '٣'"),
        ({"offset": "9" * 30}, "has the offset '999"),
        ({"offset": "1000000000000"}, "bytes and tensor 'w' needs 1000000"),
        ({"length": "3"}, "and has 3 in 'w'"),
    ],
)
def test_places_that_are_none(
    tmp_path: Path, entries: dict[str, str], message: str, count: int
) -> None:
    path = saved(tmp_path, external("w", count, location="w", **entries))
    (path.parent / "w").write_bytes(bytes(4 * count))
    assert message in refusal(path)


def test_data_that_are_no_plain_file(tmp_path: Path) -> None:
    path = saved(tmp_path, external("w", SMALL, location="w"))
    os.mkfifo(path.parent / "w")
    assert "is no plain file" in refusal(path)


@pytest.mark.parametrize("where", ["initializer", "constant", "branch"])
@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_data_below_the_folder_are_read(tmp_path: Path, count: int, where: str) -> None:
    """In a folder of their own, behind an offset, with no length: all that follows is not meant."""
    values = random(count + 8)
    path = saved(tmp_path, external("w", count, location="sub/w", offset="16"), where)
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "w").write_bytes(values.tobytes())
    feed = {"x": np.ones(count, np.float32)}
    got = onnxruntime_outputs(prepare(path), feed)
    assert_agrees(got, {"y": 1 + values[4 : 4 + count]})


# ---------------------------------------------------------------------- no files


@pytest.mark.parametrize("kind", ["device", "pipe", "socket", "folder", "missing", "long name"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.close()
    elif kind == "folder":
        path.mkdir()
    elif kind == "long name":
        path = tmp_path / ("m" * 5000)
    begin = time.monotonic()
    message = refusal(path)
    assert time.monotonic() - begin < 5
    expected = {
        **{"folder": "is a folder", "missing": "no such file", "long name": "cannot be read"},
    }
    assert expected.get(kind, "is a device, a pipe or a socket") in message


@pytest.mark.parametrize("byte", [0xFF, 0x80])
def test_numbers_without_an_end_cost_no_time(tmp_path: Path, byte: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08:" + bytes([byte]) * 5_000_000)
    begin = time.process_time()
    assert "no ONNX model" in refusal(path)
    assert time.process_time() - begin < 2


# ---------------------------------------------------------------------- valid models


def weight(dims: Sequence[int], data: bytes = b"", data_type: int = FLOAT) -> TensorProto:
    return TensorProto(name="w", data_type=data_type, dims=dims, raw_data=data)


def adding(*weights: TensorProto) -> onnx.ModelProto:
    model = onnx_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"])
    model.graph.initializer.extend(weights)
    return model


def relus(*pairs: str) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [a], [b], name=f"{a}{b}") for a, b in pairs]
    return onnx_model(nodes, {"x": [4]}, ["y"])


def of_type(elem: int) -> onnx.ModelProto:
    model = relus("xy")
    model.graph.input[0].type.tensor_type.elem_type = elem
    return model


def of_opset(*versions: int) -> onnx.ModelProto:
    model = relus("xy")
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid("", version) for version in versions)
    return model


def without_output() -> onnx.ModelProto:
    model = relus("xa")
    return model


def shadowing() -> onnx.ModelProto:
    result = [helper.make_tensor_value_info("z", FLOAT, None)]
    body = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "body", [], result)
    nodes = [
        helper.make_node("Relu", ["x"], ["z"]),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
    ]
    model = onnx_model(nodes, {"x": [4]}, ["y"])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    return model


INVALID: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "two results": (lambda: relus("xa", "xa", "ay"), "the name 'a' of a result of node 'xa' is"),
    "a weight's name": (
        lambda: onnx_model(
            [helper.make_node("Relu", ["x"], ["w"]), helper.make_node("Relu", ["w"], ["y"])],
            {"x": [4]},
            ["y"],
            {"w": random(4)},
        ),
        "the name 'w' of a result of node with output 'w' is given twice",
    ),
    "a name in a branch": (shadowing, "the name 'z' of a result of node with output 'z' is given"),
    "undefined input": (lambda: relus("ny"), "(node 'ny') reads the tensor 'n', which no input"),
    "undefined output": (without_output, "output 'y' is given by no input, weight or node"),
    "cycle": (lambda: relus("ab", "ba", "xy"), "needs its own result, by way of others"),
    "itself": (lambda: relus("aa", "xy"), "node 'aa' needs its own result"),
    "negative extent": (lambda: adding(weight([-4], bytes(16))), "'w' has the shape [-4]"),
    "two negative extents": (lambda: adding(weight([-2, -2], bytes(16))), "the shape [-2, -2]"),
    "short data": (
        lambda: adding(weight([4], bytes(12))),
        "'w' [4] has 12 bytes of data and",
    ),
    "long data": (
        lambda: adding(weight([4], bytes(20))),
        "has 20 bytes of data and needs 16",
    ),
    "few numbers": (
        lambda: adding(TensorProto(name="w", data_type=FLOAT, dims=[4], float_data=[1, 2])),
        "'w' [4] has 2 numbers of data and needs 4",
    ),
    "unknown type of data": (lambda: adding(weight([4], bytes(16), 99)), "of the unknown type 99"),
    "type of an input": (lambda: of_type(99), "input 'x' is of the unknown type 99"),
    "no type of an input": (lambda: of_type(0), "input 'x' is of the unknown type 0"),
    "no opset": (of_opset, "the model names no opset"),
    "opset of the future": (lambda: of_opset(999), "the model is of opset 999, and the installed"),
    "opset 0": (lambda: of_opset(0), "the model is of opset 0, and"),
    "two opsets": (lambda: of_opset(13, 17), "the model is of several opsets, [13, 17]"),
}


@pytest.mark.parametrize("as_file", [True, False], ids=["file", "memory"])
@pytest.mark.parametrize("name", INVALID)
def test_invalid_models(name: str, as_file: bool, tmp_path: Path) -> None:
    build, message = INVALID[name]
    model = build()
    if name not in ("two opsets",):  # ONNX Runtime refuses it too
        with pytest.raises((Fail, InvalidArgument, InvalidGraph)):
            onnxruntime.InferenceSession(model.SerializeToString())
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    text = refusal(path if as_file else model)
    assert message in text and (not as_file or text.startswith(f"{path}: "))


def test_an_output_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    model = relus("xy")
    model.graph.output.append(model.graph.output[0])
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.offloaded == 1 and len(made.report.regions) == 1
    x = {"x": random(4) - 0.5}
    assert_agrees(byoc.load(tmp_path / "m.so").run(x), onnxruntime_outputs(model, x))


@pytest.mark.parametrize("dims", [[1 << 50], [1 << 31, 1 << 31], [1 << 62, 4]])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "memory"])
def test_promises_of_petabytes(dims: list[int], as_file: bool, tmp_path: Path) -> None:
    """Without data, with a few of them, and in a file of external data."""
    path = tmp_path / "m.onnx"
    for tensor in (
        TensorProto(name="w", data_type=FLOAT, dims=dims),
        weight(dims, bytes(16)),
        weight(dims, bytes(LARGE_WEIGHT)),
    ):
        model = adding(tensor)
        path.write_bytes(model.SerializeToString())
        assert f"tensor 'w' {dims} has" in refusal(path if as_file else model)
    tensor = external("w", 1, location="w")
    tensor.dims[:] = dims
    path.write_bytes(adding(tensor).SerializeToString())
    (tmp_path / "w").write_bytes(bytes(16))
    assert "external data file 'w' has 16 bytes and tensor 'w' needs" in refusal(path)


def test_weights_in_every_form_are_valid() -> None:
    """Data as bytes and as numbers, of every type that ONNX has."""
    model = relus("xy")
    for name, number in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING"):
            continue
        for raw in (True, False):
            dtype = helper.tensor_dtype_to_np_dtype(number)
            values = np.array([0, 1, 1]).astype(dtype)
            if raw:
                tensor = numpy_helper.from_array(values, f"{name} raw")
                tensor.data_type = number
            else:
                tensor = helper.make_tensor(f"{name} list", number, [3], values)
            model.graph.initializer.append(tensor)
    model.graph.initializer.append(helper.make_tensor("text", TensorProto.STRING, [2], ["a", "b"]))
    model.graph.initializer.append(TensorProto(name="empty", data_type=FLOAT, dims=[3, 0]))
    assert [node.op_type for node in prepare(model).graph.node] == ["Relu"]


def test_nodes_in_any_order_are_sorted() -> None:
    """As in ONNX Runtime; a branch's reads count."""
    result = [helper.make_tensor_value_info("r", FLOAT, None)]
    nodes = [
        helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=helper.make_graph(
                [helper.make_node("Add", ["a", "t"], ["r"]), helper.make_node("Exp", ["a"], ["t"])],
                "then",
                [],
                result,
            ),
            else_branch=helper.make_graph([helper.make_node("Neg", ["a"], ["r"])], "e", [], result),
        ),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0),
    ]
    model = onnx_model(nodes, {"x": [4]}, ["y"])
    before = model.SerializeToString()
    prepared = prepare(model)
    assert model.SerializeToString() == before
    assert [node.op_type for node in prepared.graph.node] == ["Sin", "ReduceMax", "Cast", "If"]
    x = random(4)
    assert np.sin(x).max() != 0
    expected = {"y": np.sin(x) + np.exp(np.sin(x))}
    assert_agrees(onnxruntime_outputs(prepared, {"x": x}), expected)


# ---------------------------------------------------------------------- where results go


@pytest.mark.parametrize("option", ["output", "dump_code", "dump_ir"])
def test_folders_that_take_no_files_are_noticed_first(option: str, tmp_path: Path) -> None:
    """/proc takes none, whoever asks; the model is not even looked for."""
    place = Path("/proc/m.so" if option == "output" else "/proc/dump")
    options = {"output": tmp_path / "m.so", option: place}
    with pytest.raises((CompileError, PartitionError), match=r"cannot write /proc/.*no files"):
        byoc.compile(tmp_path / "none.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_is_noticed_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for options in ({"dump_ir": tmp_path / "file" / "a"}, {"dump_code": tmp_path / "file"}):
        with pytest.raises(ByocError, match="file is no folder"):
            byoc.compile(tmp_path / "none.onnx", **options)


def test_folders_for_dumps_are_made_with_their_parents(tmp_path: Path) -> None:
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    byoc.compile(model, dump_ir=tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir())
