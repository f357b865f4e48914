"""``byoc profile``: every kernel call of the region has a time, and the calls are the plan's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from byoc.bench.profile import _Run
from byoc.cli import main
from tests.ir.graphs import refused_model
from tests.test_tiny import tiny_model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


def test_every_call_has_a_time(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(tiny), "--runs", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 3 and found["threads"] == 1
    convolutions = [call for call in found["calls"] if "conv2d" in call["composite"]]
    assert convolutions and all(call["macs"] > 0 for call in convolutions)
    assert all(call["milliseconds"] > 0 for call in found["calls"])


def test_what_is_outside_of_kernels_is_told_by_each_run(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each run another call takes no time: medians of calls add up to more than any run."""
    calls = 0

    def runs(model: Any, inputs: Any, regions: Any, count: int) -> list[_Run]:
        nonlocal calls
        del model, inputs
        calls = sum(len(region.calls) for region in regions)
        return [
            _Run(0.0, calls - 1 + 0.25, np.where(np.arange(calls) == fast, 0.0, 1.0), [])
            for fast in range(count)
        ]

    monkeypatch.setattr("byoc.bench.profile._run", runs)
    assert main(["profile", str(tiny), "--runs", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert calls >= 3 and sum(call["milliseconds"] for call in found["calls"]) == 1e3 * calls
    assert found["whole_ms"] == pytest.approx(1e3 * (calls - 0.75))
    assert found["outside_ms"] == pytest.approx(250)


def test_the_table_names_kernels(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(tiny), "--runs", "2", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert "outside of kernels" in out and "median of 2 runs, 1 thread" in out


def test_a_missing_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "nothing.onnx"]) == 2
    assert "no model 'nothing.onnx'" in capsys.readouterr().err


def test_a_refused_form_is_timed_for_whoever_insists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "refused.onnx"
    onnx.save(refused_model(), path)
    call = ["profile", str(path), "--runs", "1", "--json"]
    assert main(call) != 0
    assert "byoc compile --allow-wrong RoiAlign" in capsys.readouterr().err
    assert main([*call, "--allow-wrong", "RoiAlign"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["calls"]
    assert "greatest weighted corner of each; taken all the same" in err
