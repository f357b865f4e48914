"""``byoc bench`` of a program of PyTorch, beside PyTorch and Inductor."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from byoc.bench.engines import ENGINES
from byoc.cli import main

torch = pytest.importorskip("torch")
QUICK = ("--rounds", "1", "--threads", "1", "--json")


class Two(torch.nn.Module):
    """Two results in a dictionary, of an input by name."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.dtype = dtype

    def forward(self, x, scale):
        y = self.linear(x * scale)
        return {"low": y.relu(), "whole": [y if self.dtype is None else y.to(self.dtype)]}


@pytest.fixture
def program(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Its file; processes of engines find PyTorch where this one does."""
    dtype = getattr(request, "param", None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    torch.manual_seed(3)
    file = tmp_path / "two.pt2"
    given = (torch.randn(2, 8),), {"scale": torch.randn(8)}
    torch.export.save(torch.export.export(Two(dtype).eval(), *given), file)
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "program"),
    [("fp32", None), ("fp32", torch.bfloat16), ("bf16", None)],
    indirect=["program"],
)
def test_a_program_beside_pytorch(
    precision: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = ("--engines", "byoc", "pytorch", "--precision", precision)
    assert main(["bench", str(program), *QUICK, *engines]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["engine"]: row for row in found["rows"]}
    assert list(rows) == ["byoc", "pytorch"] and not found["failures"]
    assert all(row["reference"] == "pytorch" and row["runs"] > 0 for row in rows.values())
    assert rows["byoc"]["error"] < (1e-2 if precision == "bf16" else 1e-5)
    (comparison,) = found["comparisons"]
    assert comparison["peer"] == "pytorch" and comparison["precision"] == precision


@pytest.mark.slow
def test_all_engines_are_those_that_run_it(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor compiles for seconds: here it is one that is not installed."""
    absent = replace(ENGINES["inductor"], packages={"nobody": "nobody"})
    monkeypatch.setitem(ENGINES, "inductor", absent)
    assert main(["bench", str(program), *QUICK]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["engine"] for row in found["rows"]] == ["byoc", "tvm", "pytorch"]
    assert list(found["absent"]) == ["inductor"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engines", "byoc", "onnxruntime"], "ONNX Runtime runs models of ONNX alone"),
        (["--batch", "2"], "input shapes, batches and fixed inputs are for ONNX files"),
        (["--input-shapes", "x:[1,8]"], "has example inputs of its own"),
    ],
)
def test_what_a_program_cannot_be_given(
    arguments: list[str], said: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(program), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_onnx_files_are_not_pytorchs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path / "m.onnx"), "--engines", "inductor"]) == 2
    assert "Inductor runs models of PyTorch alone" in capsys.readouterr().err
