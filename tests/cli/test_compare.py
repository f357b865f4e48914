"""``byoc compare``: what it prints, its JSON, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.cli import main
from tests.layer_errors.networks import WRONG, perceptron


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(perceptron(), tmp_path / "perceptron.onnx")
    return tmp_path / "perceptron.onnx"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["compare", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_the_answer_comes_first_and_the_worst_node_next(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(capsys, model, "--library", "builtin", "--library", f"fc2={WRONG}").splitlines()
    assert lines[0].startswith("outputs are off by ") and "most by fc2: " in lines[0]
    rows = [line for line in lines if "ext.matmul" in line]
    assert "fc2" in rows[0] and "wrong" in rows[0] and len(rows) == 4
    assert any("softmax" in line for line in lines)
    (drawn,) = (i for i, line in enumerate(lines) if line.startswith("fc2: elements by their own"))
    assert "#" in lines[drawn + 1] and lines[drawn + 1].lstrip().startswith("up to 1e-")
    assert lines[-1].startswith("judge: ONNX Runtime ")


def test_json_has_the_documented_keys(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, model, "--json", "--skip-node", "fc1", "--seed", 3))
    assert set(found) == {"judge", "outputs", "layers", "histogram_bounds", "unknown", "keep"}
    numbers = {"greatest", "mean", "share", "snr_db"}
    assert set(found["outputs"]) == {"y"} and set(found["outputs"]["y"]) == numbers
    for layer in found["layers"]:
        assert set(layer["own"]) == set(layer["total"]) == numbers
        assert sum(layer["histogram"]) == np.prod(layer["shape"])
        assert len(layer["histogram"]) == len(found["histogram_bounds"]) + 1
        assert layer["name"] == " + ".join(layer["names"]) and layer["computes"] == "float32"
    shares = [layer["own"]["share"] for layer in found["layers"]]
    assert shares == sorted(shares, reverse=True)
    assert "TVM" in {layer["kernel"]["library"] for layer in found["layers"]}


def test_inputs_of_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((5, 32), np.float32))
    found = json.loads(run(capsys, model, "--json", "-i", tmp_path / "in.npz"))
    assert found["outputs"]["y"]["share"] < 1e-5


@pytest.mark.slow
def test_errors_are_one_line(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "no such file" in run(capsys, tmp_path / "none.onnx", code=2)
    assert "no node is called 'fc9'" in run(capsys, model, "--skip-node", "fc9", code=2)
    missed = run(capsys, model, "--skip-node", "fc0", "--require-full", code=1)
    assert missed.startswith("check failed: ")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert "pip install onnxruntime" in run(capsys, model, code=2)


@pytest.mark.slow
def test_what_to_keep(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ("--library", "builtin", "--library", f"fc2={WRONG}")
    text = run(capsys, model, *mixed, "--max-error", "1e-4")
    assert "keep 1 node, for outputs off by " in text and "--library 'fc2=builtin'" in text
    kept = json.loads(run(capsys, model, *mixed, "--max-error", "1e-4", "--json"))["keep"]
    assert set(kept) == {"max_error", "error", "holds", "nodes", "options", "trials"}
    assert kept["nodes"] == ["fc2"] and kept["holds"] and kept["error"] < 1e-5
    assert [trial["kept"] for trial in kept["trials"]] == [0, 1]
    assert main(["compare", str(model), "--max-error", "0"]) == 1
    assert "nothing to keep" in capsys.readouterr().out


def test_html(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    text = run(capsys, model, "--html", page)
    html = page.read_text(encoding="utf-8")
    assert text.startswith("outputs are off by") and "perceptron.onnx" in html
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])
    hot = {node["name"]: node["heat"] for node in data["nodes"] if node["heat"] is not None}
    assert len(hot) == 5 and all(0 <= heat < 0.4 for heat in hot.values())
    assert data["scale"][0][0] == 0 and data["scale"][-1][0] == 1
    assert "there is no folder" in run(capsys, model, "--html", "/no/such/page.html", code=2)
