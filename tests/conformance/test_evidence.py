"""The table of wrong forms is as ONNX's backend tests say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from byoc.errors import UnsupportedForm
from byoc.frontends.onnx import checked_import, import_onnx, prepare
from byoc.frontends.onnx.wrong_forms import FILE as FORMS
from byoc.frontends.onnx.wrong_forms import WrongForm, wrong_forms
from tests.conformance import run as runner
from tests.conformance.cases import named
from tests.conformance.engines import REFUSED_FORM, run_case
from tests.conformance.evidence import (
    evidence_of,
    proposals,
    stated_entries,
    table_text,
    unshown,
    with_evidence,
)
from tests.conformance.table import FILE, IF_ALLOWED, REFUSED_BY_NAME, WRONG, Entry, entry, read

ROOT = Path(__file__).resolve().parents[2]
TRAINING = "test_batchnorm_example_training_mode"


@pytest.fixture(scope="module")
def rows() -> list[Entry]:
    return list(read(FILE.read_text()).values())


def test_evidence_is_what_the_conformance_table_says(rows: list[Entry]) -> None:
    assert FORMS.read_text() == table_text(with_evidence(rows)), "run `make conformance`"
    assert sum(entry["evidence"]["refused"] for entry in stated_entries()) == sum(
        IF_ALLOWED in row.detail for row in rows
    )


def test_every_entry_is_shown_wrong(rows: list[Entry]) -> None:
    assert unshown(with_evidence(rows)) == []
    own = [entry["shown_by"] for entry in stated_entries() if "shown_by" in entry]
    for name in own:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), name


def test_entry_that_refuses_what_is_right() -> None:
    """Its tests pass without it, or there are none."""
    reason = stated_entries()[1]["reason"]
    operator = stated_entries()[1]["operator"]
    detail = f"{operator}: {reason}{IF_ALLOWED}"
    right = Entry("node", "a", REFUSED_BY_NAME, f"{detail}passed")
    wrong = Entry("node", "b", REFUSED_BY_NAME, f"{detail}wrong: other values")
    for rows in ([], [right]):
        assert operator in {entry["operator"] for entry in unshown(with_evidence(rows))}
    assert operator not in {entry["operator"] for entry in unshown(with_evidence([right, wrong]))}
    (found,) = (found for stated, found in evidence_of([right, wrong]) if found["refused"])
    assert found == {"refused": 2, "wrong": 1, "failed": 0}


@pytest.fixture
def without_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(checked_import, "wrong_forms", lambda: {})
    yield


@pytest.mark.slow
def test_refused_case_runs_once_more_with_its_operator_allowed() -> None:
    case = named()[TRAINING]
    ours, allowed = run_case(case, "ours"), run_case(case, "allowed")
    assert (ours.status, ours.listed, allowed.status) == (REFUSED_FORM, True, WRONG)
    row = entry(case.kind, case.name, {"ours": ours, "allowed": allowed})
    assert row.outcome == REFUSED_BY_NAME and row.detail.endswith(
        f"{IF_ALLOWED}wrong: other values"
    )


def test_wrong_result_makes_the_run_propose_an_entry(
    without_table: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "run", lambda cases, *_, **__: [in_process(c.name) for c in cases])
    monkeypatch.setattr("sys.argv", ["run", "--only", TRAINING])
    assert runner.main() == 1
    out = capsys.readouterr().out
    assert f"{TRAINING}: wrong: other values; wrong without a word" in out
    assert '"operator": "BatchNormalization"' in out and '"training_mode": [1]' in out


def in_process(name: str) -> Entry:
    case = named()[name]
    return entry(case.kind, name, {engine: run_case(case, engine) for engine in ("ours", "tvm")})


def test_proposed_entry_refuses_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = named()[TRAINING].model()
    (proposal,) = proposals(model, "other values")
    assert proposal["dtypes"]["0"] == ["float32"] and proposal["attributes"]["training_mode"] == [1]
    form = WrongForm(**{**proposal, "opsets": tuple(proposal["opsets"])})
    assert form != wrong_forms()["BatchNormalization"][0]
    monkeypatch.setattr(checked_import, "wrong_forms", lambda: {form.operator: [form]})
    with pytest.raises(UnsupportedForm, match="gives a wrong result: other values"):
        import_onnx(prepare(model))
