"""States that a standalone library keeps, step by step beside ONNX Runtime."""

from __future__ import annotations

from ctypes import byref, c_int, c_void_p
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from byoc.cli import main
from byoc.compiler.standalone import Standalone, compile_standalone
from codegen_cc.target import HOST, Target
from tests.deploy.standalone_api import ARGUMENT, INDEX, OK, Instance
from tests.deploy.test_standalone import FUNCTIONS, symbols
from tests.deploy.test_standalone_example import ARM, EMULATED, STRICT, arm, said
from tests.reference import assert_agrees, onnxruntime_outputs

HERE = Path(__file__).parent
STATES = {"window": "next_window", "h": "next_h", "c": "next_c"}
SHAPES = {"window": (1, 8, 4), "h": (1, 1, 16), "c": (1, 1, 16)}
STEPS = 4


def stream() -> onnx.ModelProto:
    """A frame [1, 8, 1] at a time: a convolution over it and the four before, then an LSTM."""
    draw = np.random.default_rng(7)
    sizes = {"k": (12, 8, 5), "w": (1, 64, 12), "r": (1, 64, 16), "b": (1, 128)}
    constants = [
        numpy_helper.from_array(draw.uniform(-0.4, 0.4, size).astype(np.float32), name)
        for name, size in sizes.items()
    ]
    numbers = {"one": [1], "end": [5], "last": [2], "row": [1, 1, 12], "flat": [1, 16]}
    constants += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in numbers.items()]
    node = helper.make_node
    nodes = [
        node("Concat", ["window", "frame"], ["joined"], axis=2),
        node("Slice", ["joined", "one", "end", "last"], ["next_window"]),
        node("Conv", ["joined", "k"], ["seen"]),
        node("Relu", ["seen"], ["shown"]),
        node("Reshape", ["shown", "row"], ["x"]),
        node(
            "LSTM",
            ["x", "w", "r", "b", "", "h", "c"],
            ["y", "next_h", "next_c"],
            hidden_size=16,
        ),
        node("Reshape", ["y", "flat"], ["answer"]),
    ]
    shapes = {"frame": (1, 8, 1), "answer": (1, 16), **SHAPES}
    shapes |= {after: SHAPES[before] for before, after in STATES.items()}
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()}
    inputs, outputs = ["frame", *STATES], ["answer", *STATES.values()]
    graph = helper.make_graph(
        nodes, "stream", [infos[n] for n in inputs], [infos[n] for n in outputs], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(folder: Path, **options: object) -> Standalone:
    done = compile_standalone(stream(), folder / "model", name="stream", states=STATES, **options)
    assert len(done.report.regions) == 1 and not done.report.left
    return done


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Standalone:
    """The network as a library for this machine."""
    return compiled(tmp_path_factory.mktemp("stream"))


@pytest.fixture
def shared(done: Standalone) -> Path:
    """Its shared library."""
    return done.folder / "lib" / "libstream.so"


def frames(count: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((count, 1, 8, 1), np.float32)


def zeros() -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}


def expected(
    given: np.ndarray, states: dict[str, np.ndarray]
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """ONNX Runtime's answers to frames one after another, and the states that are left."""
    answers = []
    for frame in given:
        found = onnxruntime_outputs(stream(), {"frame": frame, **states})
        answers.append(found["answer"])
        states = {before: found[after] for before, after in STATES.items()}
    return answers, states


def call(model: Instance, what: str, *arguments: object) -> int:
    """The status of a function of states."""
    return model.function(what, c_int, c_void_p, *[c_void_p] * len(arguments))(
        model.handle, *arguments
    )


def addresses(arrays: dict[str, np.ndarray]) -> object:
    return (c_void_p * len(arrays))(*(array.ctypes.data for array in arrays.values()))


@pytest.mark.parametrize("target", [HOST, pytest.param(ARM, marks=arm)], ids=lambda t: t.name)
def test_sequences_in_c(target: Target, done: Standalone, tmp_path: Path) -> None:
    library = compiled(tmp_path, target=target.name) if target.is_foreign else done
    command = [*target.compiler(), "-std=c11", *STRICT.split(), "-DNAME=stream"]
    command += ["-include", "stream.h", f"-I{library.folder / 'include'}"]
    command += [HERE / "standalone_steps.c", library.folder / "lib" / "libstream.a"]
    said(*command, "-lm", "-pthread", "-ldl", "-o", tmp_path / "steps")
    given = frames(3 * STEPS)
    given.tofile(tmp_path / "x")
    first, states = expected(given[:STEPS], zeros())
    rest = [expected(part, states)[0] for part in np.split(given[STEPS:], 2)]
    want = {"answer": np.array([*first, *rest[0], *rest[1]])}
    for threads in (1, 3):
        run = [tmp_path / "steps", threads, STEPS, tmp_path / "x", tmp_path / "y"]
        said(*(EMULATED if target.is_foreign else ()), *run)
        found = np.fromfile(tmp_path / "y", np.float32).reshape(want["answer"].shape)
        assert_agrees({"answer": found}, want)


@pytest.mark.parametrize("language", ["-xc -std=c11", "-xc++ -std=c++17"])
def test_the_header_in_strict_languages(language: str, done: Standalone, tmp_path: Path) -> None:
    (tmp_path / "use").write_text('#include "stream.h"\nint x = stream_STATE_0_ELEMENTS;\n')
    flags = [*language.split(), *STRICT.split(), "-fsyntax-only"]
    said(*HOST.compiler(), f"-I{done.folder / 'include'}", *flags, tmp_path / "use")
    text = (done.folder / "include" / "stream.h").read_text()
    assert " * States:\n *   0  window: float32 [1, 8, 4]\n" in text
    assert "window" not in text.split("States:")[0]


def test_what_is_exported_and_described(done: Standalone, shared: Path, capsys) -> None:
    functions = {*FUNCTIONS, "states", "reset", "clone", "save", "restore"}
    wanted = {f"stream_{function}" for function in functions}
    assert symbols(shared, "-D", "--defined-only") == wanted
    with Instance(shared, threads=1) as model:
        assert [t.name.decode() for t in model.inputs] == ["frame"]
        assert [t.name.decode() for t in model.outputs] == ["answer"]
        kept = model._tensors("states")
        assert {t.name.decode(): t.zeros().shape for t in kept} == SHAPES
    assert main(["inspect", str(shared)]) == 0
    assert "states    window: float32[1, 8, 4], then next_window" in capsys.readouterr().out


def test_saved_states_are_those_of_onnx_runtime(shared: Path) -> None:
    given, found = frames(STEPS), zeros()
    _, want = expected(given, zeros())
    with Instance(shared, threads=2) as model, Instance(shared, threads=1) as other:
        for frame in given:
            model.answers({"frame": frame})
        assert call(model, "save", addresses(found)) == OK
        assert_agrees(found, want)
        assert call(other, "restore", addresses(found)) == OK
        frame = frames(STEPS + 1)[-1]
        again = onnxruntime_outputs(stream(), {"frame": frame, **want})["answer"]
        for instance in (model, other):
            assert_agrees(instance.answers({"frame": frame}), {"answer": again})


def test_wrong_calls_change_nothing(shared: Path) -> None:
    given = frames(2)
    answers, _ = expected(given, zeros())
    with Instance(shared, threads=1) as model:
        assert_agrees(model.answers({"frame": given[0]}), {"answer": answers[0]})
        assert call(model, "restore", None) == ARGUMENT
        assert model.error() == "stream: the buffer of state 0 (window) is NULL"
        missing = (c_void_p * 3)(given.ctypes.data, None, None)
        assert call(model, "restore", missing) == ARGUMENT
        assert model.error() == "stream: the buffer of state 1 (h) is NULL"
        assert call(model, "save", None) == ARGUMENT
        assert call(model, "clone", None) == ARGUMENT
        assert model.error() == "stream: no place for the clone: made is NULL"
        assert model.run_at([given.ctypes.data + 1], [given.ctypes.data]) != OK
        assert_agrees(model.answers({"frame": given[1]}), {"answer": answers[1]})
    handle = c_void_p()
    for what, *more in (("reset",), ("save", None), ("restore", None), ("clone", byref(handle))):
        assert call(model, what, *more) == ARGUMENT  # destroyed: NULL


def test_a_run_that_fails_leaves_the_states(tmp_path: Path) -> None:
    """The state is written before an index that is none ends the run."""
    node, info = helper.make_node, helper.make_tensor_value_info
    table = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32) / 8
    nodes = [
        node("MatMul", ["h", "weight"], ["turned"]),
        node("Add", ["turned", "one"], ["next_h"]),
        node("Gather", ["table", "place"], ["row"]),
        node("Mul", ["next_h", "row"], ["y"]),
    ]
    shape = [1, 64]
    constants = {"table": table, "weight": weight, "one": np.ones(1, np.float32)}
    graph = helper.make_graph(
        nodes,
        "indexed",
        [info("place", TensorProto.INT64, [1]), info("h", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, shape), info("next_h", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    done = compile_standalone(model, tmp_path / "c", name="indexed", states={"h": "next_h"})
    assert len(done.report.regions) == 1 and not done.report.left
    h = np.zeros(shape, np.float32)
    with Instance(done.folder / "lib" / "libindexed.so", threads=1) as instance:
        for place in (1, 9, 3, -9, 2):
            status, found = instance.run({"place": np.array([place], np.int64)})
            if abs(place) > 5:
                assert status == INDEX
                continue
            inputs = {"place": np.array([place], np.int64), "h": h}
            want = onnxruntime_outputs(model, inputs)
            h = want.pop("next_h")
            assert status == OK
            assert_agrees(found, want)
