"""``byoc libraries``: what there is, what each supports, and the page in ``docs``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import byoc
from byoc import libraries_page
from byoc.cli import main
from byoc.library import Kernel, Library, Link, Operator
from codegen_cc.errors import LibraryError
from codegen_cc.libraries import cblas, registry
from codegen_cc.libraries.survey import support_text, survey
from codegen_cc.operator import known_operators

ROOT = Path(byoc.__file__).parents[1]
PAGE = ROOT / "docs" / "libraries.md"


@pytest.fixture
def no_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without one."""

    def missing() -> None:
        raise LibraryError("kernel library cblas: no BLAS was found; pip install it")

    monkeypatch.setattr(cblas, "find_blas", missing)
    monkeypatch.delitem(cblas.__dict__, "LIBRARY", raising=False)
    monkeypatch.delitem(registry._loaded, "cblas", raising=False)


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict]:
    assert main(["libraries", "--json", *arguments]) == 0
    return {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}


def test_every_operator_has_a_sample_and_all_are_asked(capsys) -> None:
    known = known_operators()
    for name, operator in known.items():
        assert {sample.node.op for sample in operator.samples()} == {name}
    builtin = listed(capsys)["builtin"]
    assert builtin["linked"] == "static" and builtin["origin"] == "shipped"
    assert list(builtin["operators"]) == list(known)
    reasons = {
        (op, variant): reason
        for op, variants in builtin["operators"].items()
        for variant, reason in variants.items()
        if reason is not None
    }
    assert {variant for _, variant in reasons} == {"computed weight"}


def test_tables_for_people(capsys) -> None:
    assert main(["libraries"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("kernel libraries are usable")
    assert any(line.split()[:2] == ["conv3d", "not"] for line in lines)


def test_a_missing_library_is_listed_with_the_remedy(no_blas, capsys) -> None:
    entry = listed(capsys)["cblas"]
    assert entry == {
        "name": "cblas",
        "origin": "shipped",
        "missing": "kernel library cblas: no BLAS was found; pip install it",
    }
    assert main(["libraries"]) == 0
    assert "cblas: kernel library cblas: no BLAS was found" in capsys.readouterr().out


def test_files_can_be_named(capsys) -> None:
    """The archive of the example need not be built for that."""
    before, files = dict(registry._loaded), dict(registry._files)
    path = str(ROOT / "examples" / "my_library" / "my_library.py")
    try:
        found = listed(capsys, path)["my_library"]
    finally:
        for known, kept in ((registry._loaded, before), (registry._files, files)):
            known.clear()
            known.update(kept)
    assert (found["version"], found["origin"]) == ("1.0", path)
    assert found["operators"]["matmul"][""] is None
    assert found["operators"]["matmul"]["gelu"] == "epilogue 'gelu'; my_gemm has 'bias relu'"


@pytest.mark.usefixtures("forget_operators")
def test_operators_of_users_need_no_samples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = Operator("pairs", roles=("input",))
    kernels = [Kernel("pairs", "own_pairs", ("input", "output"))]
    link = Link()
    own = Library("own", version="1", abi=1, link=link, operators=[pairs], kernels=kernels)
    monkeypatch.setitem(registry._loaded, "own", own)
    found = listed(capsys, "own")
    assert found["own"]["operators"]["pairs"] == {}
    assert "pairs" not in found["builtin"]["operators"]
    assert main(["libraries", "own"]) == 0
    (line,) = (text for text in capsys.readouterr().out.splitlines() if text.startswith("pairs "))
    assert line.endswith("has a kernel; no samples to ask about")


def test_a_file_that_is_named_must_be_there(capsys) -> None:
    assert main(["libraries", "--json", "nothing.py"]) == 2
    assert "nothing.py does not exist" in capsys.readouterr().err


def test_one_output_at_a_time(capsys) -> None:
    assert main(["libraries", "--json", "--markdown"]) == 2


@pytest.mark.parametrize(
    ("variants", "text"),
    [
        ({"": None, "a": None}, "yes"),
        ({"": "why", "a": "why"}, "-"),
        ({"": None, "a": None, "b": "why"}, "not b"),
        ({"": None, "a": "why", "b": "why"}, "only the plain form"),
    ],
)
def test_support_in_words(variants: dict, text: str) -> None:
    assert support_text(variants) == text


@pytest.mark.skipif("CBLAS_ROOT" in os.environ, reason="CBLAS_ROOT may name a static BLAS")
def test_the_page_is_current() -> None:
    found = [entry for entry in survey() if entry.origin == "shipped"]
    if missing := [entry.name for entry in found if entry.missing]:
        pytest.skip(f"the page needs {', '.join(missing)}, which is not installed")
    assert PAGE.read_text() == libraries_page.markdown(found), "run 'make docs'"


def test_the_page_needs_every_library(no_blas) -> None:
    with pytest.raises(LibraryError, match=r"the page needs every shipped library: .*no BLAS"):
        libraries_page.markdown(survey())
