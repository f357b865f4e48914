"""Branches and loops that values decide: their bodies are regions, and the numbers are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_unroll import BOOL, FLOAT, INT64, Nodes, node, value

Arrays = dict[str, np.ndarray]


def shaped(name: str, *shape: int, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def check(model: onnx.ModelProto, *feeds: Arrays, left: tuple[str, ...] = ()) -> None:
    """One compiled model for all inputs: regions alone, and ONNX Runtime's numbers."""
    compiled = backend.prepare(model, min_bytes=0)
    assert {entry.op for entry in compiled.report.left} == set(left)
    assert len(compiled.report.regions) > 1
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        found = dict(zip(names, compiled.run(feed), strict=True))
        assert_agrees(found, onnxruntime_outputs(model, feed))


# ---------------------------------------------------------------------- If


def if_model(then: Nodes, otherwise: Nodes, *more: onnx.NodeProto) -> onnx.ModelProto:
    """``c`` is whether the sum of ``x`` is positive; branches give ``a`` and ``b``."""
    branches = {
        "then_branch": helper.make_graph(then, "then", [], [value("a")]),
        "else_branch": helper.make_graph(otherwise, "else", [], [value("b")]),
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", "total zero", "c"),
        node("Relu", "x", "r"),
        helper.make_node("If", ["c"], ["y"], "choose", **branches),
        *more,
    ]
    weights = {"zero": np.float32(0), "w": random(8, 8), "v": random(8, 8, seed=1)}
    named = {name: np.asarray(array) for name, array in weights.items()}
    return onnx_model(nodes, {"x": [4, 8]}, ["z" if more else "y"], named)


POSITIVE, NEGATIVE = {"x": abs(random(4, 8))}, {"x": -abs(random(4, 8))}


def test_both_branches_are_regions() -> None:
    model = if_model(
        [node("MatMul", "r w", "p"), node("Tanh", "p", "a")],
        [node("MatMul", "x v", "q"), node("Add", "q r", "b")],
        node("Neg", "y", "z"),
    )
    check(model, POSITIVE, NEGATIVE)


def test_branches_of_other_shapes() -> None:
    """The rows that come out are as many as the branch gives."""
    model = if_model(
        [node("Concat", "x r", "p", axis=0), node("MatMul", "p w", "a")],
        [node("MatMul", "x v", "b")],
        node("Tanh", "y", "z"),
    )
    check(model, POSITIVE, NEGATIVE)


def test_a_branch_in_a_branch_and_one_that_is_never_taken() -> None:
    inner = {
        "then_branch": helper.make_graph([node("MatMul", "m v", "e")], "e", [], [value("e")]),
        "else_branch": helper.make_graph([node("MatMul", "m w", "f")], "f", [], [value("f")]),
    }
    first = [
        node("MatMul", "x w", "m"),
        helper.make_node("ReduceMax", ["m"], ["most"], keepdims=0),
        node("Less", "most zero", "d"),
        helper.make_node("If", ["d"], ["a"], **inner),
    ]
    check(if_model(first, [node("Identity", "r", "b")]), POSITIVE, NEGATIVE)


def test_compiled_into_a_file(tmp_path: Path) -> None:
    """Symbolic rows, which the functions are told."""
    model = if_model(
        [
            node("MatMul", "x w", "p"),
            node("Shape", "x", "s"),
            node("Gather", "s first", "rows"),
            node("Cast", "rows", "count", to=FLOAT),
            node("Div", "p count", "a"),
        ],
        [node("MatMul", "x v", "b")],
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "first"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    byoc.compile(model, tmp_path / "m.so", {"x": ["rows", 8]}, min_bytes=0)
    loaded = byoc.load(tmp_path / "m.so")
    assert loaded.outputs[0].shape == ("rows", 8)
    for rows, sign in ((1, 1), (3, -1), (5, 1)):
        feed = {"x": sign * abs(random(rows, 8))}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


# ---------------------------------------------------------------------- Loop


def loop_model(body: Nodes, going: str, inputs: str = "count yes x") -> onnx.ModelProto:
    """``count`` is computed from ``n``; rounds make ``next`` of ``state``, and ``part``."""
    results = [value(going, BOOL), value("next"), shaped("part", 4, 8)]
    states = [value("round", INT64), value("go", BOOL), value("state")]
    graph = helper.make_graph(body, "body", states, results)
    names = [name if name != "-" else "" for name in inputs.split()]
    nodes = [
        helper.make_node("Cast", ["n"], ["counts"], to=INT64),
        node("Squeeze", "counts", "count"),
        helper.make_node("Loop", names, ["y", "parts"], "rounds", body=graph),
        node("Relu", "y", "z"),
    ]
    weights = {
        "yes": np.array(True),
        "w": random(8, 8, scale=0.4),
        "low": np.array(-2, np.float32),
        "last": np.array(6),
    }
    return onnx_model(nodes, {"x": [4, 8], "n": [1]}, ["z", "parts"], weights)


def feeds(*counts: int) -> list[Arrays]:
    return [{"x": random(4, 8), "n": np.array([count], np.float32)} for count in counts]


STEP = [
    node("MatMul", "state w", "product"),
    node("Tanh", "product", "next"),
    node("Mul", "next x", "part"),
]


def test_a_computed_count() -> None:
    model = loop_model([*STEP, node("Identity", "go", "again")], "again")
    check(model, *feeds(0, 1, 2, 5, 1024, 1025))


def test_a_computed_condition() -> None:
    stop = [
        helper.make_node("ReduceSum", ["next"], ["total"], keepdims=0),
        node("Greater", "total low", "again"),
    ]
    check(loop_model([*STEP, *stop], "again"), *feeds(0, 1, 40))


def test_no_count_at_all() -> None:
    stop = node("Less", "round last", "again")
    model = loop_model([*STEP, stop], "again", "- yes x")
    del model.graph.node[:2]
    check(model, *feeds(0))


def test_a_state_that_grows() -> None:
    body = [
        node("Concat", "state x", "next", axis=0),
        node("MatMul", "x w", "product"),
        node("Tanh", "product", "part"),
    ]
    model = loop_model([*body, node("Identity", "go", "again")], "again")
    check(model, *feeds(0, 1, 2, 7))


def test_a_long_loop_in_a_loop() -> None:
    """Both too long to be written out; the inner one ends by a value."""
    inner = helper.make_graph(
        [
            node("MatMul", "s w", "p"),
            node("Tanh", "p", "t"),
            helper.make_node("ReduceMax", ["t"], ["most"], keepdims=0),
            node("Greater", "most tenth", "on"),
        ],
        "inner",
        [value("i", INT64), value("c", BOOL), value("s")],
        [value("on", BOOL), value("t")],
    )
    body = [
        helper.make_node("Loop", ["many", "yes", "state"], ["deep"], body=inner),
        node("Add", "deep x", "next"),
        node("Mul", "next x", "part"),
        node("Identity", "go", "again"),
    ]
    model = loop_model(body, "again")
    for name, number in (("many", np.array(300)), ("tenth", np.array(0.1, np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(number, name))
    check(model, *feeds(0, 1, 3))


def test_unknown_shapes_of_parts_are_refused_by_name() -> None:
    body = [
        node("Concat", "state x", "next", axis=0),
        node("Tanh", "state", "part"),
        node("Identity", "go", "again"),
    ]
    model = loop_model(body, "again")
    model.graph.node[2].attribute[0].g.output[2].type.tensor_type.ClearField("shape")
    with pytest.raises(
        ImportFailure, match=r"operator Loop \(node 'rounds'\).*: results of rounds whose"
    ):
        import_onnx(prepare(model))


# ---------------------------------------------------------------------- Scan


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize(("axis", "output_axis"), [(0, 0), (1, -1)])
def test_a_scan_of_any_length(back: int, axis: int, output_axis: int, tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            node("MatMul", "s w", "product"),
            node("Add", "product p", "sum"),
            node("Tanh", "sum", "t"),
            node("Neg", "t", "minus"),
        ],
        "body",
        [value("s"), value("p")],
        [value("t"), value("minus")],
    )
    scan = helper.make_node(
        "Scan",
        ["x", "a"],
        ["y", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[back],
        scan_output_axes=[output_axis],
        scan_output_directions=[back],
    )
    shape: list[int | str] = [4, 8]
    shape.insert(axis, "n")
    model = onnx_model(
        [scan], {"x": [4, 8], "a": shape}, ["y", "all"], {"w": random(8, 8, scale=0.2)}
    )
    report = byoc.compile(model, tmp_path / "m.so", {"a": shape}, min_bytes=0).report
    assert report.left == ()
    loaded = byoc.load(tmp_path / "m.so")
    for length in (1, 2, 7, 130):
        sizes = [length if extent == "n" else extent for extent in shape]
        feed = {"x": random(4, 8), "a": random(*sizes, seed=2)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


# ---------------------------------------------------------------------- sizes by values


def test_rows_that_values_choose() -> None:
    """NonZero tells how many rows come out; what follows is computed for as many."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        node("Greater", "most zero", "chosen"),
        node("NonZero", "chosen", "places"),
        node("Squeeze", "places axis", "rows"),
        node("Gather", "x rows", "found", axis=0),
        node("MatMul", "found w", "product"),
        node("Relu", "product", "y"),
    ]
    weights = {"zero": np.array(0, np.float32), "axis": np.array([0]), "w": random(8, 8)}
    model = onnx_model(nodes, {"x": [6, 8]}, ["y"], weights)
    compiled = backend.prepare(model, min_bytes=0)
    assert {entry.op for entry in compiled.report.left} <= {"relax.nonzero"}
    for feed in ({"x": random(6, 8)}, {"x": -abs(random(6, 8))}):
        assert_agrees({"y": compiled.run(feed)[0]}, onnxruntime_outputs(model, feed))


def test_a_squeeze_of_what_should_be_one(tmp_path: Path) -> None:
    """A length that convolutions reduce to one; others are refused when the library runs."""
    branches = {
        "then_branch": helper.make_graph(
            [node("Squeeze", "c last", "a")], "then", [], [value("a")]
        ),
        "else_branch": helper.make_graph([node("Identity", "c", "b")], "else", [], [value("b")]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], strides=[4]),
        node("Shape", "c", "shape"),
        node("Gather", "shape last", "extent"),
        node("Equal", "extent one", "single"),
        helper.make_node("If", ["single"], ["s"], **branches),
        node("MatMul", "s w", "y"),
    ]
    weights = {"k": random(8, 3, 4), "w": random(8, 5), "last": np.array([2]), "one": np.array([1])}
    model = onnx_model(nodes, {"x": ["n", 3, "length"]}, ["y"], weights)
    with pytest.warns(byoc.errors.AxesNote):
        byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    loaded = byoc.load(tmp_path / "m.so")
    for length in (4, 7):
        feed = {"x": random(2, 3, length)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))
    with pytest.raises(byoc.ByocError):
        loaded.run({"x": random(2, 3, 8)})


def test_branches_bring_their_loop_nests() -> None:
    """TVM writes a reflecting pad as a loop nest, a function that the branch calls."""
    pads = {"pads": np.array([0, 2, 0, 1], np.int64), "more": np.array([1, 0, 0, 3], np.int64)}
    then = [helper.make_node("Pad", ["r", "pads"], ["p"], mode="reflect"), node("Neg", "p", "a")]
    otherwise = [
        helper.make_node("Pad", ["r", "more"], ["q"], mode="reflect"),
        node("Exp", "q", "b"),
    ]
    model = if_model(then, otherwise)
    for name, array in pads.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    compiled = backend.prepare(model, min_bytes=0)
    for feed in (POSITIVE, NEGATIVE):
        expected = onnxruntime_outputs(model, feed)
        assert_agrees(dict(zip(["y"], compiled.run(feed), strict=True)), expected)


def test_weights_are_cut_while_compiling() -> None:
    bounds = {"begin": [2, -5], "end": [2**40, 8], "axes": [1, 0], "steps": [2, 1]}
    then = [node("Slice", "w begin end axes steps", "p"), node("MatMul", "x5 p", "a")]
    otherwise = [node("Slice", "v begin end axes steps", "q"), node("MatMul", "x5 q", "b")]
    model = if_model(then, otherwise)
    for name, numbers in {**bounds, "from": [0], "to": [5], "second": [1]}.items():
        array = np.array(numbers, np.int64)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model.graph.node.insert(0, node("Slice", "x from to second", "x5"))
    check(model, POSITIVE, NEGATIVE)


@pytest.mark.slow
def test_branches_and_loops_inside_of_a_loop(tmp_path: Path) -> None:
    """What a round calls knows the symbols of the caller; a count of rounds that values tell."""
    branches = {
        "then_branch": helper.make_graph([node("Neg", "s", "a")], "then", [], [value("a")]),
        "else_branch": helper.make_graph([node("Exp", "s", "b")], "else", [], [value("b")]),
    }
    inner = helper.make_graph(
        [node("MatMul", "u w", "u2"), node("Identity", "d", "d2")],
        "inner",
        [shaped("j", dtype=INT64), shaped("d", dtype=BOOL), value("u")],
        [shaped("d2", dtype=BOOL), value("u2")],
    )
    body = helper.make_graph(
        [
            node("Mod", "i two", "rest"),
            helper.make_node("Cast", ["rest"], ["odd"], to=BOOL),
            helper.make_node("If", ["odd"], ["chosen"], **branches),
            helper.make_node("Loop", ["k", "", "chosen"], ["run"], body=inner),
            node("Tanh", "run", "t"),
            node("Identity", "c", "on"),
        ],
        "body",
        [shaped("i", dtype=INT64), shaped("c", dtype=BOOL), value("s")],
        [shaped("on", dtype=BOOL), value("t"), value("run")],
    )
    loop = helper.make_node("Loop", ["k", "", "x"], ["y", "all"], body=body)
    weights = {"two": np.array(2), "w": random(8, 8, scale=0.3)}
    model = onnx_model([loop], {"x": ["n", 8]}, ["y", "all"], weights)
    model.graph.input.append(shaped("k", dtype=INT64))
    report = byoc.compile(model, tmp_path / "m.so", {"x": ["n", 8]}, min_bytes=0).report
    assert report.offloaded_macs == report.macs > 0
    loaded = byoc.load(tmp_path / "m.so")
    for rows, rounds in ((1, 1), (3, 2), (2, 5)):
        feed = {"x": random(rows, 8), "k": np.array(rounds)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))
    none = loaded.run({"x": random(2, 8), "k": np.array(0)})
    np.testing.assert_array_equal(none["y"], random(2, 8))
    assert none["all"].shape == (0, 2, 8)


@pytest.mark.slow
def test_what_counts_rounds_is_in_the_region_of_the_body(tmp_path: Path) -> None:
    """A round is one call of a region; what TVM has is around the loop, or joins the parts."""
    body = helper.make_graph(
        [
            node("Gather", "x i", "row"),
            node("MatMul", "s w", "product"),
            node("Add", "product row", "sum"),
            node("Tanh", "sum", "t"),
            node("Identity", "c", "on"),
        ],
        "body",
        [shaped("i", dtype=INT64), shaped("c", dtype=BOOL), value("s")],
        [shaped("on", dtype=BOOL), value("t"), value("sum")],
    )
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "count"),
        helper.make_node("Loop", ["count", "", "s0"], ["y", "all"], body=body),
    ]
    weights = {"zero": np.array(0), "w": random(8, 8, scale=0.3), "s0": random(4, 8)}
    model = onnx_model(nodes, {"x": ["n", 4, 8]}, ["y", "all"], weights)
    report = byoc.compile(model, tmp_path / "m.so").report
    of_rounds = {f"relax.{name}" for name in ("take", "add", "logical_and", "expand_dims")}
    assert not of_rounds & {entry.op for entry in report.left}
    assert sum("rounds_0" in region.name for region in report.regions) == 1
    loaded = byoc.load(tmp_path / "m.so")
    for rows in (1, 2, 70, 1500):
        feed = {"x": random(rows, 4, 8)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


def test_branches_of_other_ranks_are_refused_by_name() -> None:
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("ReduceSum", ["x"], ["a"], keepdims=0)], "then", [], [value("a")]
        ),
        "else_branch": helper.make_graph([node("Relu", "x", "b")], "else", [], [value("b")]),
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", "total zero", "c"),
        helper.make_node("If", ["c"], ["i"], "choose", **branches),
        node("Exp", "i", "y"),
    ]
    model = onnx_model(nodes, {"x": [4, 8]}, ["y"], {"zero": np.array(0, np.float32)})
    with pytest.raises(byoc.CompileError, match=r"operator If \(node 'choose'\).*other ranks"):
        byoc.compile(model)


def test_a_computed_place_in_a_sequence_is_refused_in_words() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0),
        node("SequenceAt", "s i", "y"),
    ]
    model = onnx_model(nodes, {"x": [3, 8]}, ["y"], {})
    model.graph.input.append(shaped("i", dtype=INT64))
    with pytest.raises(ImportFailure, match="a place in a sequence that is computed; need a const"):
        import_onnx(prepare(model))
