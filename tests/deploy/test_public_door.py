"""The public functions: whatever kind of argument they are given, one clear error or an answer."""

from __future__ import annotations

import inspect
import os
import pickle
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import pytest
import tvm
from onnx import TensorProto

import byoc
import byoc.frontends.onnx.backend
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs

_INPUTS = inputs_of_two_by_two(4)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with two inputs and two outputs, compiled from its serialised bytes."""
    path = tmp_path_factory.mktemp("door") / "m.so"
    compiled = byoc.compile(two_by_two().SerializeToString(), path)
    assert compiled.report.offloaded == compiled.report.operators
    return path


def test_a_model_may_be_given_as_bytes(library: Path, tmp_path: Path) -> None:
    expected = onnxruntime_outputs(two_by_two(), _INPUTS)
    assert_agrees(byoc.load(library).run(_INPUTS), expected)
    made = byoc.compile_standalone(two_by_two().SerializeToString(), tmp_path / "c")
    assert made.name == "model"
    for bad in (b"model.onnx", b""):
        with pytest.raises(byoc.ModelError, match="bytes are no ONNX model"):
            byoc.compile(bad)


_STRANGE: dict[str, list[Any]] = {
    "model": [5, None, [1], two_by_two().graph],
    "output": [5, b"m.so", "a\0.so"],
    "input_shapes": ["image:[1]", 5, {"image": "12"}, {"image": 4}, {5: [1]}, {"image": [1.5]}],
    "fixed_inputs": [5, [("x", 1)], {5: 1}, {"x": "1"}, {"nobody": 1}],
    "target": [5, b"x86-64"],
    "threads": ["2", 2.5, 0, -1, True, 10**9],
    "dump_code": [5],
    "dump_ir": [5],
    "skip_ops": [5, [5], None],
    "skip_nodes": [5, [5], None],
    "only": [5, [5], None],
    "predicate": [5],
    "libraries": [5, [5], b"builtin"],
    "choose": [5],
    "tuning_db": [5],
    "tuning_machines": [5, [5], ["x"]],
    "min_coverage": ["all"],
    "progress": [5],
    "min_bytes": ["x", -1, 1.5],
    "precision": [5, "bf17", "auto", ["bf16", "fp32"]],
    "name": [5, ""],
    "db": [5],
    "rounds": ["x", 0],
}


def _cases(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    known = inspect.signature(function).parameters
    return [(name, bad) for name, values in _STRANGE.items() if name in known for bad in values]


@pytest.mark.parametrize(("name", "bad"), _cases(byoc.compile), ids=str)
def test_compile_refuses_strange_arguments(name: str, bad: Any, tmp_path: Path) -> None:
    given = {"model": two_by_two(), "output": tmp_path / "m.so", name: bad}
    with pytest.raises(byoc.ByocError) as caught:
        byoc.compile(**given)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "bad"), _cases(byoc.compile_standalone), ids=str)
def test_compile_standalone_refuses_strange_arguments(name: str, bad: Any, tmp_path: Path) -> None:
    with pytest.raises(byoc.ByocError):
        byoc.compile_standalone(**{"model": two_by_two(), "output": tmp_path / "c", name: bad})
    assert os.listdir(tmp_path) == []


#: What ``progress`` itself raises passes.
_OF_TUNE = [case for case in _cases(byoc.tune) if case[0] != "progress"]


@pytest.mark.parametrize(("name", "bad"), [*_OF_TUNE, ("threads", "12")], ids=str)
def test_tune_refuses_strange_arguments(name: str, bad: Any, tmp_path: Path) -> None:
    with pytest.raises(byoc.ByocError):
        byoc.tune(**{"model": two_by_two(), "db": tmp_path / "t.json", name: bad})


@pytest.mark.parametrize("bad", [5, None, "module", two_by_two()], ids=lambda b: type(b).__name__)
def test_partition_refuses_what_is_no_module(bad: Any) -> None:
    with pytest.raises(byoc.PartitionError, match=r"need a tvm\.IRModule"):
        byoc.partition_for_ext(bad)
    for name, value in _cases(byoc.partition_for_ext):
        with pytest.raises(byoc.ByocError):
            byoc.partition_for_ext(tvm.IRModule(), **{name: value})


_PARTITION = {
    "skip_ops": (),
    "skip_nodes": (),
    "only": (),
    "predicate": None,
    "libraries": None,
    "choose": None,
    "tuning_db": None,
    "tuning_machines": (),
    "exact": False,
    "min_bytes": 512,
    "precision": (),
    "dump_ir": None,
}
_ALL_FORMS = {**_PARTITION, "target": None, "threads": None, "allow_wrong": (), "progress": None}
_ALL_FORMS |= {"states": None, "fixed_inputs": None}
_OF_COMPILE = {"dump_code": None, "min_coverage": None, "require_full": False, "timers": False}
_OF_COMPILE |= {"example_inputs": None, "dynamic_shapes": None, "verify": None}


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (byoc.partition_for_ext, {**_PARTITION, "tuning_threads": 1}),
        (byoc.partition_with_report, {**_PARTITION, "tuning_threads": 1}),
        (byoc.compile, {**_ALL_FORMS, **_OF_COMPILE}),
        (byoc.compile_standalone, {**_ALL_FORMS, "name": None}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_keywords_are_named_typed_and_explained(
    function: Callable[..., Any], defaults: dict[str, Any]
) -> None:
    keywords = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert {name: parameter.default for name, parameter in keywords.items()} == defaults
    assert all(parameter.annotation is not parameter.empty for parameter in keywords.values())
    assert "keywords" in typing.get_type_hints(function)
    explained = f"{function.__doc__}{byoc.partition_for_ext.__doc__}"
    assert [name for name in defaults if f"``{name}" not in explained] == []


@pytest.mark.parametrize("name", ["skip_op", "tuning_threads", "keywords", "model_"])
def test_an_unknown_keyword_is_refused_as_python_does(name: str, tmp_path: Path) -> None:
    message = rf"^compile\(\) got an unexpected keyword argument '{name}'$"
    with pytest.raises(TypeError, match=message):
        byoc.compile(two_by_two(), tmp_path / "m.so", **{name: 1})
    message = r"^partition_for_ext\(\) got an unexpected keyword argument 'target'$"
    with pytest.raises(TypeError, match=message):
        byoc.partition_for_ext(tvm.IRModule(), target="x86-64")
    with pytest.raises(TypeError, match=r"^compile_standalone\(\) got an .* 'timers'$"):
        byoc.compile_standalone(two_by_two(), tmp_path / "c", timers=True)
    assert os.listdir(tmp_path) == []


def test_load_refuses_strange_arguments(library: Path) -> None:
    for bad in (5, None, b"m.so", two_by_two(), "a\0.so"):
        with pytest.raises(byoc.LoadError, match="need a path"):
            byoc.load(bad)
    for bad in _STRANGE["threads"]:
        with pytest.raises(byoc.LoadError, match="need a whole number from 1"):
            byoc.load(library, bad)


class _NeedsGradient:
    """What PyTorch does with a tensor that requires a gradient."""

    dtype = "torch.float32"

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


_SHAPE = _INPUTS["image"].shape
_STRANGE_ARRAYS = {
    "list": [[1.0]],
    "none": None,
    "objects": np.array([None, 1]),
    "text": np.array(["a"]),
    "type": np.ndarray,
    "gradient": _NeedsGradient(),
    "bfloat16": np.zeros(_SHAPE, ml_dtypes.bfloat16),
    "bfloat16 by DLPack": tvm.runtime.empty(_SHAPE, "bfloat16"),
    "other byte order": np.zeros(_SHAPE, ">f4"),
}


@pytest.mark.parametrize("value", _STRANGE_ARRAYS.values(), ids=_STRANGE_ARRAYS)
def test_a_model_refuses_strange_arrays(library: Path, value: Any) -> None:
    model = byoc.load(library)
    for call in (
        lambda: model.run(_INPUTS | {"image": value}),
        lambda: model(value, _INPUTS["scale"]),
        lambda: model.run(_INPUTS, {"mean": value}),
    ):
        with pytest.raises(byoc.InputError, match=r"image|mean"):
            call()


def test_a_tensor_that_needs_a_gradient_is_told_what_to_do(library: Path) -> None:
    with pytest.raises(byoc.InputError, match=r"'image'.*use tensor\.detach\(\)") as caught:
        byoc.load(library).run(_INPUTS | {"image": _NeedsGradient()})
    assert isinstance(caught.value.__cause__, BufferError)


@pytest.mark.parametrize("bad", [5, None, "image", [1], {5: 1}, list(_INPUTS.items())], ids=str)
def test_run_takes_dictionaries_alone(library: Path, bad: Any) -> None:
    model = byoc.load(library)
    with pytest.raises(byoc.InputError, match="need a dictionary of arrays"):
        model.run(bad)
    if bad is not None:
        with pytest.raises(byoc.InputError, match="need a dictionary of arrays"):
            model.run(_INPUTS, bad)


def test_a_closed_model_says_so_and_may_be_closed_again(library: Path) -> None:
    with byoc.load(library) as model:
        expected = model.run(_INPUTS)
    model.close()
    with pytest.raises(byoc.RunError, match="closed; load it again"):
        model.run(_INPUTS)
    with pytest.raises(byoc.RunError, match="closed"):
        model.function("byoc_metadata")
    assert "closed" in repr(model)
    with byoc.load(library) as again:
        assert_agrees(again.run(_INPUTS), expected)


def test_a_model_may_be_closed_while_threads_run_it(library: Path) -> None:
    expected = byoc.load(library).run(_INPUTS)

    def use(model: byoc.Model) -> int:
        done = 0
        try:
            for _ in range(200):
                assert_agrees(model.run(_INPUTS), expected)
                done += 1
        except byoc.RunError:
            pass
        return done

    model = byoc.load(library)
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(use, model) for _ in range(3)]
        model.close()
        assert all(0 <= job.result() <= 200 for job in running)


def test_a_model_is_pickled_by_its_path(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(library.parent)
    text = pickle.dumps(byoc.load(library.name))
    assert len(text) < 1000
    monkeypatch.chdir("/")
    assert_agrees(pickle.loads(text).run(_INPUTS), byoc.load(library).run(_INPUTS))


def test_a_model_has_a_short_repr(library: Path) -> None:
    model = byoc.load(library)
    assert repr(model).startswith("<byoc.Model m.so: (image: float32[1, 3, 16, 16]; scale:")
    many = model.metadata.inputs * 20
    object.__setattr__(model.metadata, "inputs", many)
    assert len(repr(model)) < 300 and "37 more" in repr(model)


def _model(nodes: list[onnx.NodeProto], output: str = "y") -> onnx.ModelProto:
    value = oh.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [2, 3]), value("c", TensorProto.BOOL, [])]
    graph = oh.make_graph(nodes, "g", inputs, [value(output, TensorProto.FLOAT, [2, 3])])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def _branch(read: str) -> onnx.GraphProto:
    node = oh.make_node("Relu", [read], ["r"], "inner")
    result = oh.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3])
    return oh.make_graph([node], "branch", [], [result])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_model([oh.make_node("Add", ["x", "lost"], ["y"], "sum")]), r"Add \(node 'sum'\).*'lost'"),
        (_model([oh.make_node("Relu", ["lost"], ["y"])]), r"Relu \(node with output 'y'\).*'lost'"),
        (
            _model(
                [
                    oh.make_node(
                        "If", ["c"], ["y"], then_branch=_branch("x"), else_branch=_branch("lost")
                    )
                ]
            ),
            r"Relu \(node 'inner'\).*'lost'",
        ),
        (_model([oh.make_node("Relu", ["x"], ["y"])], "z"), "output 'z' is given by no"),
    ],
)
def test_a_tensor_that_nothing_gives_is_named(model: onnx.ModelProto, said: str) -> None:
    with pytest.raises(byoc.ModelError, match=said) as caught:
        byoc.compile(model)
    assert "opset" not in str(caught.value)


def test_the_onnx_backend_raises_the_family_alone() -> None:
    for bad in (5, b"x", None):
        with pytest.raises(byoc.ByocError):
            byoc.frontends.onnx.backend.prepare(bad)
    prepared = byoc.frontends.onnx.backend.prepare(two_by_two())
    for inputs in ([], {}, 5, [np.zeros(1, np.float32)] * 2):
        with pytest.raises(byoc.ByocError):
            prepared.run(inputs)
