"""The scripts behind the tables of docs/deploying.md: they run, check answers, and tell the truth.

What they time is not asserted.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from benchmarks import callers, deployment, sharing
from tests.deploy.networks import two_by_two


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("measures") / "two_by_two.onnx"
    onnx.save(two_by_two(), path)
    return path


@pytest.mark.slow
def test_a_second_process_shares_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_REPEATS", 1)  # of processes that are timed
    (row,) = sharing.measure([8])
    assert row.weights_mb == pytest.approx(8.4, abs=0.1)
    # The first one has all of them in memory, and the second hardly anything more.
    assert row.first_mb > row.weights_mb
    assert row.added < 0.1
    assert row.load_ms > 0 and row.first_run_ms > 0


@pytest.mark.slow
def test_many_callers_are_counted_and_checked(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(source), "--callers", "1", "3", "--calls", "10", "--threads", "1", "2"]
    assert callers.main(arguments) in (0, 1)  # 1: three were slower than one, which may happen
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[:2] for row in rows] == [["1", "1"], ["1", "3"], ["2", "1"], ["2", "3"]]
    assert all(float(row[2]) > 0 for row in rows)


@pytest.mark.slow
def test_every_form_is_in_the_table(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert deployment.main([str(source), "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    forms = {form["title"]: form for form in found["forms"]}
    ours = ["from Python", "from C++ with TVM's runtime", "standalone C, static"]
    ours.append("standalone C, shared")
    assert [title for title in forms if title.startswith("byoc")] == [f"byoc, {o}" for o in ours]
    assert "ONNX Runtime, from Python" in forms
    cpp = forms["byoc, from C++ with TVM's runtime"]
    assert sorted(cpp["libraries"]) == ["libtvm_ffi.so", "libtvm_runtime.so"]
    assert forms["byoc, standalone C, static"]["libraries"] == {}
    for form in forms.values():
        for what in ("load_ms", "first_ms", "later_ms", "peak_mb"):
            assert len(form[what]) == 1 and form[what][0] > 0
    # The small program needs less memory than a Python process.
    assert max(forms["byoc, standalone C, static"]["peak_mb"]) < max(
        forms["ONNX Runtime, from Python"]["peak_mb"]
    )
