"""Branches that sizes decide alike at every call become part of the graph around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import byoc
from byoc.errors import ImportFailure
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random
from .test_unroll import BOOL, Nodes, node, value

#: By name: nodes from the extents ``n`` of x and ``m`` of its transpose's last axis, to ``c``.
DECIDED: dict[str, tuple[Nodes, bool]] = {
    "equal": ([node("Equal", "n m", "c")], True),
    "not equal": (
        [node("Equal", "n m", "e"), node("Not", "e", "d"), node("Cast", "d", "c", to=BOOL)],
        False,
    ),
    "below": ([node("Less", "n more", "c")], True),
    "at most": ([node("LessOrEqual", "m n", "c")], True),
    "above": (
        [node("Greater", "more n", "g"), node("Equal", "n m", "e"), node("And", "g e", "c")],
        True,
    ),
    "not above": (
        [node("GreaterOrEqual", "n more", "g"), node("Less", "n m", "l"), node("Or", "g l", "c")],
        False,
    ),
    "any at all": ([node("Cast", "more", "c", to=BOOL)], True),
}


def branching(decided: Nodes, *after: str) -> list:
    """relu(x w) or tanh(x w), by ``c``; both branches call their values alike."""

    def branch(name: str, operator: str) -> object:
        nodes = [node("MatMul", "x w", "a"), node(operator, "a", "b")]
        return helper.make_graph(nodes, name, [], [value("b")])

    branches = {"then_branch": branch("yes", "Relu"), "else_branch": branch("no", "Tanh")}
    return [
        node("Transpose", "x", "turned", perm=[1, 0]),
        node("Shape", "x", "shape"),
        node("Shape", "turned", "other"),
        node("Gather", "shape first", "n"),
        node("Gather", "other second", "m"),
        node("Add", "m one", "more"),
        *decided,
        helper.make_node("If", ["c"], ["b"], "choose", **branches),
        node("Neg", "b", "y"),
    ]


WEIGHTS = {"w": random(8, 8), "first": np.array(0), "second": np.array(1), "one": np.array(1)}


@pytest.mark.parametrize("case", DECIDED)
def test_one_region(case: str, tmp_path: Path) -> None:
    decided, yes = DECIDED[case]
    model = onnx_model(branching(decided), {"x": ["rows", 8]}, ["y"], WEIGHTS)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    loaded = byoc.load(tmp_path / "m.so")
    for rows in (1, 5):
        feed = {"x": random(rows, 8)}
        found = loaded.run(feed)
        assert_agrees(found, onnxruntime_outputs(model, feed))
        assert (found["y"].max() <= 0) == yes


def test_sizes_that_decide_otherwise_from_call_to_call(tmp_path: Path) -> None:
    decided = [node("Greater", "n four", "c")]
    weights = {**WEIGHTS, "four": np.array(4)}
    model = onnx_model(branching(decided), {"x": ["rows", 8]}, ["y"], weights)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert sum(region.macs > 0 for region in report.regions) == 2
    loaded = byoc.load(tmp_path / "m.so")
    for rows in (4, 5, 1):
        feed = {"x": random(rows, 8)}
        assert_agrees(loaded.run(feed), onnxruntime_outputs(model, feed))


def test_two_branches_whose_values_have_one_name(tmp_path: Path) -> None:
    """A size in the first, a product in the second: what the first one gave is forgotten."""
    sizes = [node("Shape", "x", "a"), node("Gather", "a first", "s"), node("Cast", "s", "b", to=1)]
    products = [node("MatMul", "x w", "a"), node("ReduceMean", "a", "s"), node("Relu", "s", "b")]
    graphs = [helper.make_graph(nodes, "g", [], [value("b")]) for nodes in (sizes, products)]
    model = onnx_model(
        [
            node("Shape", "x", "shape"),
            node("Gather", "shape first", "n"),
            node("Equal", "n n", "c"),
            node("If", "c", "p", then_branch=graphs[0], else_branch=graphs[0]),
            node("If", "c", "q", then_branch=graphs[1], else_branch=graphs[1]),
            node("Add", "p q", "y"),
        ],
        {"x": ["rows", 8]},
        ["y"],
        WEIGHTS,
    )
    byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    feed = {"x": random(3, 8)}
    found = byoc.load(tmp_path / "m.so").run(feed)
    assert_agrees(found, onnxruntime_outputs(model, feed))


def test_the_shape_of_what_has_an_unknown_rank_is_refused_by_name() -> None:
    """The rank is that of a branch: no shape of the symbols at hand tells it."""
    branches = {
        "then_branch": helper.make_graph([node("Unsqueeze", "x zero", "a")], "t", [], [value("a")]),
        "else_branch": helper.make_graph([node("Relu", "x", "b")], "else", [], [value("b")]),
    }
    nodes = [helper.make_node("If", ["flag"], ["i"], **branches), node("Shape", "i", "y")]
    model = onnx_model(nodes, {"x": ["n", 8]}, ["y"], {"zero": np.array([0])})
    model.graph.input.append(helper.make_tensor_value_info("flag", BOOL, []))
    with pytest.raises(ImportFailure, match=r"operator Shape .* whose rank is not known; need one"):
        byoc.compile(model)
