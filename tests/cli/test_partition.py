"""``byoc partition`` and the rules that ``byoc compile`` shares with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

import byoc
from byoc.cli import main
from models.builder import GraphBuilder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """conv and ReLU, then softmax."""
    graph = GraphBuilder("network", seed=1)
    x = graph.op("Relu", graph.conv(graph.input("x", (1, 3, 8, 8)), (3, 4), 3))
    graph.output(graph.op("Softmax", x), "y", (1, 4, 8, 8))
    proto = graph.build()
    for node, name in zip(proto.graph.node, ("stem/conv", "stem/relu", "head"), strict=False):
        node.name = name
    onnx.save(proto, tmp_path / "network.onnx")
    return tmp_path / "network.onnx"


def partition(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["partition", *map(str, arguments)]) == code
    return capsys.readouterr().out


def test_first_line_is_the_answer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = partition(capsys, model).splitlines()
    assert re.fullmatch(r"\d+ of \d+ operators, 100\.0 % of MACs, 1 region", lines[0])
    assert lines[1].startswith("Regions")
    text = partition(capsys, model, "--skip-op", "softmax")
    assert "skipped by operator" in text and "head" in text


def test_json_has_the_documented_keys(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(partition(capsys, model, "--json", "--skip-node", "head"))
    assert {"operators", "offloaded", "macs", "offloaded_macs"} <= set(report)
    (region,) = report["regions"]
    assert {"name", "operators", "macs", "bytes_in", "bytes_out", "weight_bytes"} <= set(region)
    plan = region["plan"]
    assert plan["calls"] >= plan["copies"] >= plan["copies_inside"] == 0 < plan["arena_bytes"]
    (left,) = report["left"]
    assert left["name"] == "head" and left["op"] == "relax.nn.softmax"
    assert left["shapes"] == "float32[1, 4, 8, 8] -> float32[1, 4, 8, 8]"
    assert left["reason"] == "skipped by node name 'head'"
    assert report["operators"] == report["offloaded"] + 1


def test_only(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(partition(capsys, model, "--json", "--only", "conv2d"))
    assert report["offloaded"] == 1
    assert {left["op"] for left in report["left"]} >= {"relax.nn.relu", "relax.nn.softmax"}


def test_dot(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = partition(capsys, model, "--dot", "--skip-op", "softmax")
    assert text.startswith("digraph partition {") and text.endswith("}\n")
    assert 'label="ext_main_0"' in text and "stem/conv" in text and "skipped by operator" in text
    assert text.count("->") >= 3
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text.encode(), check=True, capture_output=True)


def test_html(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    text = partition(capsys, model, "--html", page)
    assert "operators" in text.splitlines()[0]
    assert text.splitlines()[0] in page.read_text(encoding="utf-8")
    assert "stem/conv" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--skip-op", "Conv"], "did you mean"),
        (["--only", "convolve"], "is no Relax operator"),
        (["--skip-node", "steam/*"], "'stem/conv'"),
        (["--min-coverage", "1.5"], "0<=x<=1"),
        (["--json", "--dot"], "give one"),
        (["--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_use(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["partition", str(model), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ")
    assert message in captured.err and captured.err.count("\n") == 1


def test_demands_that_hold(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition(capsys, model, "--require-full", "--min-coverage", "1")


def test_demands_that_do_not_hold(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(model), "--skip-op", "softmax", "--require-full"]) == 1
    captured = capsys.readouterr()
    assert "operators" in captured.out.splitlines()[0], "the report is printed all the same"
    first, blocker = captured.err.splitlines()
    assert re.fullmatch(r"check failed: 1 of \d+ operators stay with TVM; need none", first)
    assert blocker == "  1 x relax.nn.softmax: skipped by operator relax.nn.softmax (head)"
    assert main(["partition", str(model), "--only", "softmax", "--min-coverage", "0.99"]) == 1
    assert "0.00 % of MACs are offloaded; need 99 %" in capsys.readouterr().err


def test_compile_checks_before_it_writes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = model.with_suffix(".so")
    rules = ["--skip-node", "stem/*", "--min-coverage", "0.5"]
    assert main(["compile", str(model), "-o", str(library), *rules]) == 1
    assert "stem/conv" in capsys.readouterr().err
    assert not library.exists()


def test_compile_honours_rules(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = model.with_suffix(".so")
    rules = ["--skip-op", "softmax", "--min-coverage", "0.99", "--json"]
    assert main(["compile", str(model), "-o", str(library), *rules]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert [left["op"] for left in report["left"]] == ["relax.nn.softmax"]
    assert byoc.load(library).outputs[0].shape == (1, 4, 8, 8)
