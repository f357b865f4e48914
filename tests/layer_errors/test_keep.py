"""Which nodes to keep: as few of the worst as are enough, and what is reached was measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import byoc
from byoc.layer_errors.keep import Remedy, fewest, with_remedies
from codegen_cc.libraries import Selection
from tests.layer_errors.networks import WRONG, perceptron

MIXED = ["builtin", f"fc0={WRONG}", f"fc2={WRONG}"]


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


def test_where_nothing_is_enough() -> None:
    kept = byoc.compare(perceptron(), libraries=MIXED, max_error=0).kept
    assert not kept.holds and len(kept.remedies) == 2 and kept.error > 0
    kept = byoc.compare(perceptron(), max_error=0).kept
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
