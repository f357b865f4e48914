"""Random graphs against ONNX Runtime: what single operators' tests cannot combine.

``make fuzz`` runs twenty times as many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.fuzz import on_purpose, regressions
from tests.fuzz.draft import Drawn
from tests.fuzz.evaluate import expected
from tests.fuzz.minimise import all_values, minimise
from tests.fuzz.run import Found, fuzz, try_each
from tests.fuzz.trial import EQUAL, FAILURES, REFUSED, SPECIAL, WRONG, Outcome, judge

OWN, NNSMITH = 75, 25
JOBS = 2


def _failures(found: Found) -> list[str]:
    return [f"{key}: {o.kind}: {o.text}" for key, o in found.failures().items()]


def test_no_graph_of_ours_fails() -> None:
    found = fuzz("own", 0, OWN, JOBS)
    assert not _failures(found)
    equal = [o for o in found.outcomes.values() if o.kind == EQUAL]
    assert len(equal) > 0.6 * OWN
    assert sum(o.offloaded for o in equal) > 0.5 * sum(o.operators for o in equal)


def test_no_graph_of_nnsmith_fails() -> None:
    pytest.importorskip("nnsmith", reason="NNSmith is not installed (make fuzz installs it)")
    found = fuzz("nnsmith", 0, NNSMITH, JOBS)
    assert not _failures(found)
    assert sum(o.kind == EQUAL for o in found.outcomes.values()) > 0.6 * NNSMITH


def test_what_once_failed_does_not() -> None:
    known = regressions.read()
    outcomes = try_each([graph for _, graph in known], JOBS)
    pairs = zip(known, outcomes, strict=True)
    failed = [f"{title}: {o.text}" for (title, _), o in pairs if o.kind in FAILURES]
    assert not failed
    assert {o.kind for o in outcomes} <= {EQUAL, REFUSED}


def test_no_graph_of_ours_fails_in_fewer_bits() -> None:
    found = fuzz("own", 190_000, 10, JOBS, precision="bf16")
    assert not _failures(found)
    equal = [o for o in found.outcomes.values() if o.kind == EQUAL]
    assert len(equal) > 6 and any(o.offloaded for o in equal)


def test_results_in_fewer_bits_are_judged_by_their_range() -> None:
    text = "g (float[3,4] x) => (float[3,4] y) { b = Constant<value_float = 4.0>() y = Add(x, b) }"
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    graph = Drawn(model, [{"x": x}])

    def verdict(y: np.ndarray) -> str:
        return judge(graph, {"x": x}, {"y": y.astype(np.float32)}, "bf16", 0.04).kind

    assert verdict((x + 4) * (1 + 2**-9)) == EQUAL
    assert verdict(x) == WRONG  # without its bias
    assert verdict((x + 4).T.reshape(3, 4)) == WRONG  # in another layout
    assert verdict(np.where(x > 0, np.nan, x + 4)) == WRONG


def first_cells() -> list[str]:
    """What the rows of the table of special values are about."""
    docs = Path(__file__).parents[2] / "docs" / "reliability.md"
    _, _, section = docs.read_text().partition("## NaN, infinity and huge values")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]]


def test_what_may_differ_is_what_the_docs_say() -> None:
    cells = first_cells()
    assert set(cells) == set(on_purpose.ROWS)
    for cell in cells:
        named = [name for name in cell.split(", ") if onnx.defs.has(name)]
        assert not on_purpose.ROWS[cell] or set(named) <= set(on_purpose.ROWS[cell]), cell
    operators = [name for names in on_purpose.ROWS.values() for name in names]
    assert all(map(onnx.defs.has, set(operators) - set(on_purpose.MICROSOFT_SUMS)))


def special_graph(text: str) -> Drawn:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    return Drawn(model, [{"x": np.array([np.nan, np.inf, 1.0], np.float32)}], special=True)


def test_only_listed_operators_may_differ() -> None:
    """By the nodes that compute the output which differs, in their listed form."""

    def verdict(text: str, name: str) -> str:
        graph = special_graph(text)
        want = expected(graph.model, graph.feeds[0])
        got = want | {name: want[name] + np.ones_like(want[name])}
        got = {n: np.where(np.isnan(x), 3, x).astype(x.dtype) for n, x in got.items() if n == name}
        return judge(graph, graph.feeds[0], want | got).kind

    clip = (
        "g (float[3] x) => (float[3] y) <float low = {0}, float high = {1}> { y = Clip(x, low%s) }"
    )
    two = "g (float[3] x) => (float[3] y, int32[3] z) { y = Abs(x) z = Cast<to = 6>(x) }"
    branch = """g (float[3] x) => (float[3] y) <bool flag = {1}> { y = If(flag) <
        then_branch = t () => (float[3] a) { a = Elu(x) },
        else_branch = e () => (float[3] b) { b = Abs(x) }> }"""
    assert verdict(clip % "", "y") == SPECIAL
    assert verdict(clip % ", high", "y") == WRONG
    assert (verdict(two, "z"), verdict(two, "y")) == (SPECIAL, WRONG)
    assert verdict(branch, "y") == SPECIAL


def planted(graph: Drawn) -> Outcome:
    """Wrong where a matrix product has an inner axis of 2 or more; the symbol may be anything."""
    values = all_values(graph)[0] | {
        tensor.name: numpy_helper.to_array(tensor) for tensor in graph.model.graph.initializer
    }
    products = [node for node in graph.model.graph.node if node.op_type == "MatMul"]
    wrong = any(values[node.input[1]].shape[0] > 1 for node in products)
    return Outcome(WRONG if wrong else EQUAL, str(len(graph.model.graph.node)))


def test_failures_are_minimised() -> None:
    """Operators first, then the axes: shared ones together, numbers in shapes as well."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[n, 8, 6] x) => (float[n, 48] y) {
        a = Relu(x) b = MatMul(a, w) c = Reshape(b, shape) y = Tanh(c) }"""
    )
    constants = {"w": np.ones((6, 6), np.float32), "shape": np.array([-1, 48])}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in constants.items())
    graph = Drawn(model, [{"x": np.ones((5, 8, 6), np.float32)}], {"x": ["n", 8, 6]})
    small, outcome = minimise(graph, planted(graph), planted)
    assert outcome == Outcome(WRONG, "1")
    (name,) = small.feeds[0]
    assert (small.feeds[0][name].shape, small.shapes) == ((1, 1, 2), {name: ["n", 1, 2]})
    dims = small.model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["n", 1, 2]
    (weight,) = small.model.graph.initializer
    assert list(weight.dims) == [2, 1]


def test_numbers_in_shapes_shrink_with_the_axis() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]> g (float[7, 5] x) => (float[5, 7] y)
        <int64[2] shape = {5, 7}> { y = Reshape(x, shape) }"""
    )
    graph = Drawn(model, [{"x": np.ones((7, 5), np.float32)}])
    small, _ = minimise(graph, Outcome(WRONG), lambda _: Outcome(WRONG))
    assert small.feeds[0]["x"].shape == (1, 1)
    assert set(numpy_helper.to_array(small.model.graph.initializer[0]).tolist()) == {1}
