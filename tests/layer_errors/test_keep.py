"""Which nodes to keep: as few of the worst as are enough, and what is reached was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.frontends.onnx.check_model import sort_nodes
from byoc.frontends.onnx.partly_quantised import PartlyQuantised
from byoc.layer_errors.keep import EXCLUDED, Remedy, fewest, with_remedies
from codegen_cc.libraries import Selection
from tests.layer_errors.networks import WRONG, perceptron, quantised
from tests.quantised.float_networks import resnet_like
from tests.quantised.networks import reference as onnxruntime

MIXED = ["builtin", f"fc0={WRONG}", f"fc2={WRONG}"]


@pytest.mark.slow
def test_the_nodes_to_keep_reach_what_was_measured() -> None:
    found = byoc.compare(perceptron(), libraries=MIXED, max_error=1e-4)
    kept = found.kept
    assert found.error > 1e-3 and kept.holds and kept.error < 1e-5
    assert {remedy.value for remedy in kept.remedies} == {"fc0=builtin", "fc2=builtin"}
    assert {trial.kept for trial in kept.trials} == {0, 1, 2}
    assert kept.trials[0].error == found.error
    again = byoc.compare(perceptron(), libraries=[*(r.value for r in kept.remedies), *MIXED])
    assert again.error == pytest.approx(kept.error) and again.report.libraries[0].name == "builtin"


def test_nothing_is_kept_where_the_error_is_small_enough() -> None:
    kept = byoc.compare(perceptron(), max_error=1e-4).kept
    assert kept.holds and kept.remedies == () and len(kept.trials) == 1


@pytest.mark.slow
def test_where_nothing_is_enough() -> None:
    kept = byoc.compare(perceptron(), libraries=MIXED, max_error=0).kept
    assert not kept.holds and len(kept.remedies) == 2 and kept.error > 0
    kept = byoc.compare(perceptron(), max_error=np.float32(0)).kept
    assert not kept.holds and kept.remedies == ()


@pytest.mark.parametrize("need", range(1, 12))
@pytest.mark.parametrize("count", [1, 2, 5, 11])
def test_as_few_as_are_enough(need: int, count: int) -> None:
    remedies = [Remedy(f"n{index}", "libraries") for index in range(count)]
    asked: list[int] = []

    def measure(kept: Sequence[Remedy]) -> float:
        asked.append(len(kept))
        return 1.0 if len(kept) < need else 0.1

    found = fewest(remedies, 1.0, 0.5, measure)
    assert found.holds == (need <= count)
    assert len(found.remedies) == min(need, count) and len(set(asked)) == len(asked) <= 8
    assert [trial.kept for trial in found.trials] == [0, *asked]


def test_what_keeps_nodes_comes_before_what_the_user_gave() -> None:
    remedies = [Remedy("a", "libraries")]
    assert with_remedies({"libraries": "x,y"}, remedies)["libraries"] == ["a=builtin", "x,y"]
    assert with_remedies({"libraries": ("x",)}, remedies)["libraries"] == ["a=builtin", "x"]
    assert with_remedies({"libraries": None}, remedies)["libraries"] == ["a=builtin"]
    with pytest.raises(byoc.VerifyError, match="libraries by name"):
        with_remedies({"libraries": Selection.of(None)}, remedies)


def test_options_are_quoted_for_a_shell() -> None:
    assert Remedy("it's/conv", "libraries").option == "--library 'it'\\''s/conv=builtin'"
    with pytest.raises(byoc.VerifyError, match="max_error is 'x'; need a number"):
        byoc.compare(perceptron(), max_error="x")


@pytest.mark.slow
@pytest.mark.parametrize(("network", "limit"), [(perceptron, 2e-2), (resnet_like, 5e-2)])
def test_what_a_quantiser_is_to_leave_as_it_is(network, limit: float, tmp_path: Path) -> None:
    found = byoc.compare(
        onnx.load(quantised(network(), tmp_path)),
        reference=network(),
        max_error=limit,
        min_bytes=0,
    )
    kept = found.kept
    assert found.error > limit and kept.holds and kept.error <= limit
    names = {remedy.name for remedy in kept.remedies}
    assert names <= {node.name for node in network().graph.node}
    assert {remedy.keyword for remedy in kept.remedies} == {EXCLUDED}


def test_a_network_with_nodes_left_as_they_were_is_right(tmp_path: Path) -> None:
    """By ONNX Runtime: without a quantised node nothing is lost; the Relu that bounds were is."""
    plain, model = resnet_like(), onnx.load(quantised(resnet_like(), tmp_path))
    partly = PartlyQuantised(model, plain)
    assert {"Conv_0", "Conv_3", "Add_6", "Gemm_21"} <= partly.nodes
    x = np.random.default_rng(5).normal(size=(1, 3, 32, 32)).astype(np.float32)
    (right,) = onnxruntime(plain, {"x": x})
    none, some, all_ = (
        onnxruntime(sorted_model(partly.with_float(names)), {"x": x})[0]
        for names in ((), ("Conv_3", "Gemm_21"), partly.nodes)
    )
    errors = [np.abs(found - right).max() / np.ptp(right) for found in (none, some, all_)]
    assert errors[2] < 1e-4 < errors[0] and errors[1] != errors[0]
    assert none == pytest.approx(onnxruntime(model, {"x": x})[0])


def sorted_model(model: onnx.ModelProto) -> onnx.ModelProto:
    sort_nodes(model.graph)
    return model
