"""A few hundred of ONNX's backend tests give what the committed table says.

``make conformance`` runs all of them and writes the table.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.conformance.cases import all_cases, subset
from tests.conformance.run import run
from tests.conformance.table import FILE, IN_TVM, OFFLOADED, OURS, Entry, read, render, written_for

RERUN = "run `make conformance` if this is as it should be"


@pytest.fixture(scope="module")
def table() -> dict[str, Entry]:
    return dict(read(FILE.read_text()))


def test_nothing_that_tvm_passes_fails_through_us(table: dict[str, Entry]) -> None:
    assert [row.name for row in table.values() if row.outcome == OURS] == []


def test_table_has_every_test(table: dict[str, Entry]) -> None:
    if version("onnx") != written_for(FILE.read_text()):
        pytest.skip(f"the table is of onnx {written_for(FILE.read_text())}")
    assert {case.name for case in all_cases()} == set(table), RERUN
    assert render(list(table.values())) == FILE.read_text(), "edited by hand? " + RERUN


@pytest.mark.slow
def test_subset_agrees_with_the_table(table: dict[str, Entry]) -> None:
    """Outcomes and offloaded operators; messages of TVM's are no part of the comparison."""
    rows = run(subset(), both=False)
    assert [f"{row.name}: {row.detail}" for row in rows if row.outcome == OURS] == []
    if version("onnx") != written_for(FILE.read_text()):
        pytest.skip("tests of another version of onnx differ; none of them fails through us")
    found = {row.name: _essence(row) for row in rows}
    known = {name: _essence(table[name]) for name in found if name in table}
    changed = {
        name: (known.get(name), now) for name, now in found.items() if known.get(name) != now
    }
    assert not changed, RERUN


def _essence(row: Entry) -> str:
    if row.outcome == OFFLOADED:
        return f"{row.outcome}: {row.detail.partition(';')[0]}"
    passed = row.outcome == IN_TVM
    return row.outcome if passed else "fails in TVM"
