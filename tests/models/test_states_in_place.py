"""States of fixed length that calls write rows of in place, beside ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import byoc
from byoc.cli import main
from byoc.compiler.standalone import Standalone, compile_standalone
from byoc.errors import CompileError, InputError, RunError
from tests.deploy.standalone_api import INDEX, OK, Allocate, Instance, Options, Release
from tests.deploy.test_standalone_states import addresses, call
from tests.reference import assert_agrees

HEADS, LENGTH, WIDTH = 2, 16, 12
CACHE = (1, HEADS, LENGTH, WIDTH)
STATES = {"cache": "next_cache"}
node = helper.make_node

#: How ONNX says that a row of each head is stored: nodes that make ``next_cache``.
FORMS = {
    "ScatterND": [
        node("Expand", ["place4", "points"], ["wide"]),
        node("Concat", ["heads", "wide"], ["at"], axis=3),
        node("ScatterND", ["cache", "at", "rows"], ["next_cache"]),
    ],
    "ScatterElements": [
        node("Expand", ["place4", "row"], ["at"]),
        node("ScatterElements", ["cache", "at", "rows"], ["next_cache"], axis=2),
    ],
    "TensorScatter": [
        node("TensorScatter", ["cache", "rows", "place"], ["next_cache"], axis=2),
    ],
}
#: What reads the cache.
ANSWER = [node("ReduceSum", ["next_cache", "length"], ["answer"], keepdims=0)]
SHAPES = {"answer": [1, HEADS, WIDTH], "next_cache": CACHE}


def network(
    form: str, then: list[onnx.NodeProto] = ANSWER, outputs: tuple[str, ...] = ("answer",)
) -> onnx.ModelProto:
    """A cache whose row ``place`` is a product of ``x``; ``then`` makes the outputs."""
    draw = np.random.default_rng(5)
    constants: dict[str, object] = {
        "weight": draw.standard_normal((8, HEADS * WIDTH)).astype(np.float32),
        "table": draw.standard_normal((LENGTH, 1, WIDTH)).astype(np.float32),
        "row": [1, HEADS, 1, WIDTH],
        "points": [1, HEADS, 1, 1],
        "ones": [1, 1, 1, 1],
        "heads": [[[[0, 0]], [[0, 1]]]],
        "length": [2],
    }
    nodes = [
        node("MatMul", ["x", "weight"], ["kv"]),
        node("Reshape", ["kv", "row"], ["rows"]),
        node("Reshape", ["place", "ones"], ["place4"]),
        *FORMS[form],
        *then,
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "cache",
        [
            info("x", TensorProto.FLOAT, [1, 1, 8]),
            info("place", TensorProto.INT64, [1]),
            info("other", TensorProto.INT64, [1]),
            info("cache", TensorProto.FLOAT, CACHE),
        ],
        [
            info(name, TensorProto.FLOAT, SHAPES.get(name, SHAPES["answer"]))
            for name in (*outputs, "next_cache")
        ],
        [
            numpy_helper.from_array(v if isinstance(v, np.ndarray) else np.array(v, np.int64), n)
            for n, v in constants.items()
        ],
    )
    opset = helper.make_opsetid("", 24 if form == "TensorScatter" else 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


class Reference:
    """The evaluator, whose cache is handed back by hand."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.evaluator = ReferenceEvaluator(model)
        self.cache = np.zeros(CACHE, np.float32)

    def step(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = self.evaluator.run(None, {**inputs, "cache": self.cache})
        results = dict(zip(self.evaluator.output_names, found, strict=True))
        self.cache = results["next_cache"]
        return {name: value for name, value in results.items() if name != "next_cache"}


def step(place: int, other: int = 0) -> dict[str, np.ndarray]:
    """The inputs of a call that stores a row."""
    x = np.random.default_rng(place).standard_normal((1, 1, 8)).astype(np.float32)
    return {"x": x, "place": np.array([place]), "other": np.array([other])}


def compiled(model: onnx.ModelProto, path: Path, kind: str = "is written in place") -> byoc.Model:
    made = byoc.compile(model, path, states=STATES, min_bytes=0)
    assert made.report.left == () and len(made.report.regions) == 1
    assert [state.kind for state in made.metadata.states] == [kind]
    return byoc.load(path)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_stored_where_the_cache_lies(form: str, tmp_path: Path, capsys) -> None:
    model = network(form)
    reference, places = Reference(model), [0, 1, 2, 9, 1, 15]
    with compiled(model, tmp_path / "m.so") as library:
        first = None
        for place in places:
            assert_agrees(library.run(step(place)), reference.step(step(place)))
            assert_agrees(library.states, {"cache": reference.cache})
            here = library.states["cache"].ctypes.data
            assert first in (None, here)
            first = here
        other, saved = library.clone(), library.states["cache"].copy()
        library.reset()
        assert_agrees(library.run(step(3)), Reference(model).step(step(3)))
        np.testing.assert_array_equal(other.states["cache"], saved)
        library.restore({"cache": saved})
        assert_agrees(library.run(step(3)), reference.step(step(3)))
        np.testing.assert_array_equal(other.states["cache"], saved)
    assert main(["inspect", str(tmp_path / "m.so")]) == 0
    said = "cache: float32[1, 2, 16, 12], then next_cache: is written in place"
    assert said in capsys.readouterr().out


#: Nodes behind the scatter, other outputs, and whether the cache can still be written in place.
READERS = {
    "what it was, later": (
        [node("Sub", ["next_cache", "cache"], ["d"]), node("ReduceSum", ["d", "length"], ["a"])],
        "is replaced",
    ),
    "as a view, later": (
        [
            node("Transpose", ["cache"], ["t"], perm=[0, 1, 3, 2]),
            node("MatMul", ["next_cache", "t"], ["d"]),
            node("ReduceSum", ["d", "length"], ["a"]),
        ],
        "is replaced",
    ),
    "in what is stored": (
        [node("ReduceSum", ["next_cache", "length"], ["a"])],
        "is written in place",
    ),
    "twice": (
        [
            node("ScatterElements", ["next_cache", "at2", "rows"], ["last_cache"], axis=2),
            node("ReduceSum", ["last_cache", "length"], ["a"]),
        ],
        "is replaced",
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_who_else_reads_it(reader: str, tmp_path: Path) -> None:
    """The old cache is read rightly, whatever that makes of the state."""
    then, kind = READERS[reader]
    model = network("ScatterElements", then, ("a",))
    nodes = {made.output[0]: made for made in model.graph.node}
    shape = model.graph.output[0].type.tensor_type.shape
    shape.CopyFrom(helper.make_tensor_type_proto(1, [1, HEADS, 1, None]).tensor_type.shape)
    if reader == "in what is stored":
        sums = node("ReduceSum", ["cache", "length"], ["before"])
        rows = node("Add", ["rows", "before"], ["changed"])
        nodes["next_cache"].input[2] = "changed"
        place = list(model.graph.node).index(nodes["next_cache"])
        model.graph.node.insert(place, rows)
        model.graph.node.insert(place, sums)
    if reader == "twice":
        place = list(model.graph.node).index(nodes["last_cache"])
        model.graph.node.insert(place, node("Expand", ["other4", "row"], ["at2"]))
        model.graph.node.insert(place, node("Reshape", ["other", "ones"], ["other4"]))
        model.graph.output[1].name = "last_cache"
    states = {"cache": model.graph.output[1].name}
    made = byoc.compile(model, tmp_path / "m.so", states=states, min_bytes=0)
    assert made.report.left == () and [s.kind for s in made.metadata.states] == [kind]
    evaluator, cache = ReferenceEvaluator(model), np.zeros(CACHE, np.float32)
    with byoc.load(tmp_path / "m.so") as library:
        for place in (0, 4, 4, 2):
            inputs = step(place, 7)
            given = {name: inputs[name] for name in ("x", "place", "other")}
            a, cache = evaluator.run(None, {**given, "cache": cache})
            assert_agrees(library.run(inputs), {"a": a})
            assert_agrees(library.states, {"cache": cache})


#: A row of a table by an index that may be none, once the cache has its row.
FAILS = [
    node("ReduceSum", ["next_cache", "length"], ["sum"], keepdims=0),
    node("Gather", ["table", "other"], ["factor"], axis=0),
    node("ReduceSum", ["factor", "first"], ["line"], keepdims=0),
    node("Mul", ["sum", "line"], ["answer"]),
]


def failing(form: str) -> onnx.ModelProto:
    model = network(form, FAILS)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
    # The index depends on the cache, so that it is looked up after the row has been stored.
    late = [
        node("ReduceMax", ["next_cache"], ["greatest"], keepdims=0),
        node("Mul", ["greatest", "zero"], ["nothing"]),
        node("Cast", ["nothing"], ["none"], to=TensorProto.INT64),
        node("Add", ["other", "none"], ["late"]),
    ]
    gather = next(n for n in model.graph.node if n.op_type == "Gather")
    gather.input[1] = "late"
    place = list(model.graph.node).index(gather)
    for made in reversed(late):
        model.graph.node.insert(place, made)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero"))
    return model


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_fails_changes_nothing(form: str, tmp_path: Path) -> None:
    model = failing(form)
    reference = Reference(model)
    with compiled(model, tmp_path / "m.so") as library:
        for place, other in ((3, 1), (3, LENGTH), (5, 2), (4, -99), (5, 0)):
            if abs(other) >= LENGTH:
                with pytest.raises(RunError, match="take failed"):
                    library.run(step(place, other))
            else:
                inputs = step(place, other)
                assert_agrees(library.run(inputs), reference.step(inputs))
            assert_agrees(library.states, {"cache": reference.cache})


@pytest.mark.parametrize("form", FORMS)
def test_a_place_beyond_the_cache_is_refused(form: str, tmp_path: Path) -> None:
    """Its nearest row would be lost; nothing is stored."""
    model = network(form)
    reference = Reference(model)
    done = standalone(model, tmp_path)
    with (
        compiled(model, tmp_path / "m.so") as library,
        Instance(done.folder / "lib" / "libcached.so", threads=1) as instance,
    ):
        for place in (LENGTH - 1, LENGTH, 99, 4):
            if place >= LENGTH:
                with pytest.raises(RunError, match="an index lies outside of the axis"):
                    library.run(step(place))
                assert instance.run(step(place))[0] == INDEX
            else:
                want = reference.step(step(place))
                assert_agrees(library.run(step(place)), want)
                assert_agrees(instance.answers(step(place)), want)
            assert_agrees(library.states, {"cache": reference.cache})


@pytest.mark.parametrize("form", FORMS)
def test_what_tvm_stores_stays_in_the_cache(form: str, tmp_path: Path) -> None:
    """Where TVM computes, a place beyond the end is the last row, as of all that it stores."""
    op = "scatter_nd" if form == "ScatterND" else "scatter_elements"
    model = network(form)
    made = byoc.compile(model, tmp_path / "m.so", states=STATES, min_bytes=0, skip_ops=[op])
    assert [left.op for left in made.report.left] == [f"relax.{op}"]
    assert [state.kind for state in made.metadata.states] == ["is replaced"]
    reference = Reference(model)
    with byoc.load(tmp_path / "m.so") as library:
        for place in (2, LENGTH, 10**9):
            given = step(place)
            want = reference.step(given | {"place": np.array([min(place, LENGTH - 1)])})
            assert_agrees(library.run(given), want)
            assert_agrees(library.states, {"cache": reference.cache})


def test_inputs_lie_elsewhere(tmp_path: Path) -> None:
    model = network("ScatterND")
    with compiled(model, tmp_path / "m.so") as library:
        library.run(step(0))
        inside = library.states["cache"].reshape(-1)[:8].reshape(1, 1, 8)
        with pytest.raises(InputError, match="'x' lies in a state, which the call writes in place"):
            library.run(step(1) | {"x": inside})
        room = library.states["cache"].reshape(-1)[: HEADS * WIDTH].reshape(1, HEADS, WIDTH)
        with pytest.raises(InputError, match="'answer' lies in a state"):
            library.run(step(1), {"answer": room})
        library.run(step(1) | {"x": inside.copy()})


# ---------------------------------------------------------------- without TVM


def standalone(model: onnx.ModelProto, folder: Path) -> Standalone:
    done = compile_standalone(model, folder / "c", name="cached", states=STATES, min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    return done


def test_a_library_in_c(tmp_path: Path) -> None:
    model = failing("ScatterND")
    done = standalone(model, tmp_path)
    assert [state.kind for state in done.metadata.states] == ["is written in place"]
    reference, kept = Reference(model), {"cache": np.zeros(CACHE, np.float32)}
    with Instance(done.folder / "lib" / "libcached.so", threads=2) as instance:
        for place, other in ((3, 1), (3, LENGTH), (5, 2), (4, -99), (5, 0)):
            status, found = instance.run(step(place, other))
            if abs(other) >= LENGTH:
                assert status == INDEX
            else:
                assert status == OK
                assert_agrees(found, reference.step(step(place, other)))
            assert call(instance, "save", addresses(kept)) == OK
            assert_agrees(kept, {"cache": reference.cache})
        assert call(instance, "reset") == OK
        again = Reference(model)
        assert_agrees(instance.answers(step(7)), again.step(step(7)))
        assert call(instance, "restore", addresses(kept)) == OK
        assert_agrees(instance.answers(step(7)), reference.step(step(7)))


def test_a_library_in_c_has_one_cache(tmp_path: Path) -> None:
    """What an instance allocates has room for one cache of a megabyte, not for two."""
    bytes_of: dict[bool, int] = {}
    for in_place in (True, False):
        model = network("ScatterElements")
        for value in (*model.graph.input, *model.graph.output):
            if "cache" in value.name:
                value.type.tensor_type.shape.dim[2].dim_value = 16384
        if not in_place:
            model.graph.node.append(node("ReduceMax", ["cache"], ["most"], keepdims=0))
            most = helper.make_tensor_value_info("most", TensorProto.FLOAT, [])
            model.graph.output.insert(1, most)
        (folder := tmp_path / str(in_place)).mkdir()
        done = standalone(model, folder)
        taken: list[np.ndarray] = []

        def allocate(heap: int, alignment: int, size: int, taken: list = taken) -> int:
            taken.append(np.zeros(size + alignment, np.uint8))
            return -(-taken[-1].ctypes.data // alignment) * alignment

        given = {"allocate": Allocate(allocate), "release": Release(lambda heap, memory: None)}
        options = Options(threads=1, **given)
        with Instance(done.folder / "lib" / "libcached.so", options):
            bytes_of[in_place] = sum(array.size for array in taken)
    cache = 16384 * HEADS * WIDTH * 4
    assert bytes_of[False] - bytes_of[True] >= 0.9 * cache


def test_a_state_that_is_an_output_as_well(tmp_path: Path) -> None:
    """The caller gets a copy of what the next call finds; the standalone form refuses it."""
    copy = node("Identity", ["next_cache"], ["shown"])
    model = network("ScatterND", [*ANSWER, copy], ("answer", "shown"))
    model.graph.output[1].type.CopyFrom(model.graph.output[2].type)
    reference, results = Reference(model), []
    with compiled(model, tmp_path / "m.so", "is replaced") as library:
        for place in (0, 5, 9):
            found, want = library.run(step(place)), reference.step(step(place))
            assert_agrees(found, want)
            results.append((found, want))
            assert_agrees(library.states, {"cache": reference.cache})
            found["answer"][:] = found["shown"][..., 0, :] = 7  # the caller's own
            want["answer"], want["shown"] = found["answer"].copy(), found["shown"].copy()
            assert_agrees(library.states, {"cache": reference.cache})
    for found, want in results:  # later calls have not written there
        assert_agrees(found, want)
    with pytest.raises(CompileError, match="gives a result of the region twice") as caught:
        standalone(model, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("op", ["Mul", "Transpose"])
def test_a_value_made_of_a_state_is_an_output(op: str, tmp_path: Path) -> None:
    """The state twice, or its axes turned: neither is the state's memory."""
    made = node("Mul", ["next_cache", "two"], ["shown"])
    if op == "Transpose":
        made = node("Transpose", ["next_cache"], ["shown"], perm=[0, 1, 3, 2])
    model = network("ScatterND", [*ANSWER, made], ("answer", "shown"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
    shown = [1, HEADS, WIDTH, LENGTH] if op == "Transpose" else CACHE
    model.graph.output[1].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, shown))
    done, reference = standalone(model, tmp_path), Reference(model)
    with (
        compiled(model, tmp_path / "m.so") as library,
        Instance(done.folder / "lib" / "libcached.so", threads=1) as instance,
    ):
        for place in (0, 5, 9):
            want = reference.step(step(place))
            assert_agrees(library.run(step(place)), want)
            assert_agrees(instance.answers(step(place)), want)
