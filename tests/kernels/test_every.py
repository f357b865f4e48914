"""``every`` runs all cases, and says which failed."""

from __future__ import annotations

import inspect

import pytest

from tests.kernels import every as module
from tests.kernels.every import every


def test_all_cases_are_run_and_those_that_fail_are_named() -> None:
    seen = []

    @every(("b", "c"), [(1, 2), (3, 4)])
    @every("a", ["x", "y"], ids=str.upper)
    def cases(lib: str, a: str, b: int, c: int) -> None:
        seen.append((lib, a, b, c))
        assert (a, b) not in (("x", 3), ("y", 1)), "told"

    assert list(inspect.signature(cases).parameters) == ["lib"]
    with pytest.raises(AssertionError, match=r"^2 of 4 cases failed: X-3-4, Y-1-2$") as raised:
        cases(lib="here")
    assert "told" in str(raised.value.__cause__)
    assert seen == [("here", a, b, b + 1) for a in "xy" for b in (1, 3)]


def test_cases_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @every("n", [1, 2, 12], ids=["one", "two", "twelve"])
    def cases(n: int) -> None:
        seen.append(n)

    monkeypatch.setattr(module, "only", "tw")
    cases()
    assert seen == [2, 12]
    monkeypatch.setattr(module, "only", "ten")
    with pytest.raises(pytest.skip.Exception, match="no case is called ten"):
        cases()


@pytest.mark.parametrize("first", [True, False])
def test_a_skip_is_one_of_the_whole_test(first: bool) -> None:
    @every("n", [1, 2])
    def cases(n: int) -> None:
        if first or n == 2:
            pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception if first else AssertionError) as raised:
        cases()
    assert first or str(raised.value) == "1 of 2 cases failed: 2"


def test_arguments_are_those_of_the_test() -> None:
    with pytest.raises(AssertionError, match="an argument that the test has not"):
        every("m", [1])(lambda n: None)
