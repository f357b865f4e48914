"""Timing: entries for layers with a choice, nothing for the others, and no wrong winner."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import helper

import byoc
from byoc.cli import main
from byoc.frontends.onnx.measured_model import draw_inputs
from byoc.frontends.onnx.one_layer import onnxruntime_answer
from byoc.library import Kernel, Library, Link
from byoc.tuning.build import build
from byoc.tuning.database import machine_key, races_of
from byoc.tuning.timing import time_layers
from codegen_cc.libraries import registry
from codegen_cc.libraries.measured_choice import TuningWarning
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.tuning.networks import convolutions, layers_of, model_of, write_database

HEADER = """\
#include <stdint.h>
int right(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
int wrong(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
int partial(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
int refuses(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
int crashes(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
int hangs(const float* a, const float* b, float* y, int64_t m, int64_t n, int64_t k);
"""
SOURCE = """\
#include "kernels.h"
#define PARAMETERS const float *a, const float *b, float *y, int64_t m, int64_t n, int64_t k
#define UNUSED (void)a, (void)b, (void)m, (void)n, (void)k
int right(PARAMETERS) {
  for (int64_t i = 0; i < m * n; ++i) {
    y[i] = 0;
    for (int64_t p = 0; p < k; ++p) y[i] += a[i / n * k + p] * b[p * n + i % n];
  }
  return 0;
}
int wrong(PARAMETERS) {
  UNUSED;
  for (int64_t i = 0; i < m * n; ++i) y[i] = 1;
  return 0;
}
int partial(PARAMETERS) {
  right(a, b, y, m - 1, n, k);
  return 0;
}
int refuses(PARAMETERS) {
  UNUSED, (void)y;
  return 1;
}
int crashes(PARAMETERS) {
  UNUSED, (void)y;
  __builtin_trap();
}
int hangs(PARAMETERS) {
  UNUSED, (void)y;
  for (volatile int i = 0; i < 1;) {
  }
  return 0;
}
"""
FUNCTIONS = ("right", "wrong", "crashes", "partial", "refuses", "hangs")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Library]:
    """A library with one right kernel and four others, all of them quicker."""
    (tmp_path / "kernels.h").write_text(HEADER)
    (tmp_path / "kernels.c").write_text(SOURCE)
    arguments = ("lhs", "rhs", "output", "m", "n", "k")
    before = dict(registry._loaded)
    yield Library(
        "fake",
        version="1",
        abi=1,
        link=Link(
            headers=("kernels.h",), include_dirs=(tmp_path,), sources=(tmp_path / "kernels.c",)
        ),
        kernels=[Kernel("matmul", function=name, arguments=arguments) for name in FUNCTIONS],
    )
    registry._loaded.clear()
    registry._loaded.update(before)


def product() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return model_of([node], {"x": [5, 32]}, {"w": (32, 16)})


@pytest.mark.slow
def test_a_wrong_candidate_never_wins(fake: Library, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("byoc.tuning.timing._FIRST_RUN_LIMIT", 2.0)
    model, path = product(), tmp_path / "db.json"
    tuned = byoc.tune(model, path, libraries=[fake, "builtin"], rounds=1)
    assert len(tuned.choices) == 1
    for choice in tuned.choices:
        assert choice.layer.untuned == ("fake", "right") and choice.checked_by == "ONNX Runtime"
        assert set(choice.times) == {("fake", "right"), ("builtin", "matmul")}
        reasons = {algorithm: reason for (_, algorithm), reason in choice.failed.items()}
        assert set(reasons) == set(FUNCTIONS) - {"right"}
        assert "of the range (limit 0.0001)" in reasons["wrong"]
        assert reasons["partial"].startswith("wrong by inf")  # what is not written is NaN
        assert "status 1" in reasons["refuses"]
        assert reasons["crashes"].startswith("its process ended with signal ")
        assert reasons["hangs"] == "its process ended with signal 9 (a run may take 2 s)"
        assert choice.decision is not None and choice.decision.winner in choice.times
    (race,) = races_of(path, machine_key(1)).values()
    assert race.times["fake"]["wrong"] is None and race.times["fake"]["right"] is not None
    compiled = byoc.compile(model, tmp_path / "m.so", libraries=[fake, "builtin"], tuning_db=path)
    products = [n for n in compiled.report.to_json()["nodes"] if n["composite"] == "ext.matmul"]
    assert len(products) == 1 and {n["algorithm"] for n in products} <= {"right", "matmul"}
    assert all(n["chosen_by"].startswith("measured") for n in products)
    inputs = draw_inputs(model)
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


def test_without_onnxruntime_the_built_in_kernels_are_the_reference(
    fake: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    fake.kernels = fake.kernels[:2]
    tuned = byoc.tune(product(), tmp_path / "db.json", libraries=[fake], rounds=1)
    (choice,) = tuned.choices
    assert choice.checked_by == "builtin (ONNX Runtime is not installed)"
    assert set(choice.times) == {("fake", "right")} and set(choice.failed) == {("fake", "wrong")}


@pytest.mark.slow
def test_layers_with_a_choice_are_stored_once(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    tuned = byoc.tune(model, path, libraries="builtin", rounds=1)
    (choice,) = tuned.choices
    assert (choice.layer.name, choice.layer.count, choice.known) == ("first", 2, False)
    assert len(choice.times) == 5 and not choice.failed
    assert [(layer.name, layer.skipped) for layer in tuned.skipped] == [
        ("last", "only builtin computes it, and in one way")
    ]
    (signature,) = races_of(path, machine_key(1))
    assert signature == (
        "conv2d input float32[1,32,20,20] weight float32[32,32,3,3] const"
        " bias float32[1,32,1,1] const dilation=[1,1] groups=1 padding=[1,1,1,1] strides=[1,1]"
        " bias relu -> float32[1,32,20,20]"
    )
    before = path.read_text()
    (known,) = byoc.tune(model, path, libraries="builtin", rounds=1).choices
    assert known.known and path.read_text() == before
    (timed,) = byoc.tune(model, path, libraries="builtin", rounds=1, again=True).choices
    assert not timed.known and path.read_text() != before


def test_layers_in_fewer_bits_offer_no_choice(tmp_path: Path) -> None:
    """What an operator's or a node's precision leaves in float32 is timed as ever."""
    model = convolutions()
    nothing = byoc.tune(model, tmp_path / "a.json", libraries="builtin", rounds=1, precision="bf16")
    kept = [layer.node.compute for layer in nothing.skipped]
    timed = [choice.layer.node.compute for choice in nothing.choices]
    assert "bfloat16" in kept and "bfloat16" not in timed
    exact = ["bf16", "first=fp32"]
    found = byoc.tune(model, tmp_path / "b.json", libraries="builtin", rounds=1, precision=exact)
    assert [choice.layer.name for choice in found.choices] == ["first"]
    assert [choice.layer.node.compute for choice in found.choices] == [""]


def test_symbolic_shapes_are_skipped_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    shapes = {"x": ["n", 32, 20, 20]}
    tuned = byoc.tune(convolutions("n"), path, shapes, libraries="builtin", rounds=1)
    assert tuned.choices == () and not path.exists()
    reasons = {layer.name: layer.skipped for layer in tuned.skipped}
    assert reasons["first"] == "input ['n', '32', '20', '20'] has no fixed shape"


@pytest.mark.slow
def test_compile_times_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    onnx.save(convolutions(), tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--json"]
    assert main([*arguments, "--choose", "measured"]) == 0
    told = capsys.readouterr()
    nodes = json.loads(told.out)["report"]["nodes"]
    assert told.err == ""
    assert [n["chosen_by"][:8] for n in nodes] == ["measured", "measured", ""]
    path = tmp_path / "byoc" / "tuning.json"
    before = path.read_text()
    assert main([*arguments, "--choose", "measured"]) == 0 and path.read_text() == before


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = tmp_path / "m.onnx", tmp_path / "db.json"
    onnx.save(convolutions(), model)
    path.write_text("{")
    arguments = ["tune", str(model), "--db", str(path), "--library", "builtin", "--rounds", "1"]
    assert main([*arguments, "--json"]) == 0
    told = capsys.readouterr()
    assert f"warning: tuning database {path} is replaced" in told.err
    found = json.loads(told.out)
    (layer,) = found["layers"]
    assert {c["algorithm"] for c in layer["candidates"]} >= {"implicit GEMM", "Winograd F(2, 3)"}
    assert all(0 < c["min_ms"] <= c["p50_ms"] for c in layer["candidates"])
    assert list(found["machines"]) == ["1"] and found["totals"]["1"]["tuned_ms"] > 0
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " of 1 kinds of layers are computed faster than untuned: " in lines[0]
    assert "(1 known already)" in lines[0]
    assert "not timed, 1 kinds of layers: only builtin computes it, and in one way" in lines
    assert lines[-1].endswith(f"byoc compile MODEL --tuning-db {path}")


def test_mistakes_on_the_command_line(tmp_path: Path, capsys) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(convolutions(), model)
    for arguments, reason in (
        ([str(model), "--db", str(model)], "the name must end in .json"),
        ([str(tmp_path / "none.onnx")], "none.onnx"),
        ([str(model), "--threads", "1024", "--db", str(tmp_path / "d.json")], "1024 threads"),
        ([str(model), "--library", "none", "--db", str(tmp_path / "d.json")], "'none'"),
    ):
        assert main(["tune", *arguments]) == 2
        told = capsys.readouterr().err.splitlines()
        assert told[-1].startswith("error: ") and reason in told[-1]
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def single(op: str, inputs: dict[str, list], weights: dict, **attributes) -> onnx.ModelProto:
    names = [*inputs, *weights][: 3 if "r" not in inputs else 4]
    nodes = [helper.make_node(op, [n for n in names if n != "r"], ["c"], "layer", **attributes)]
    if "r" in inputs:
        nodes.append(helper.make_node("Add", ["c", "r"], ["d"], "sum"))
    nodes.append(helper.make_node("Relu", ["d" if "r" in inputs else "c"], ["y"], "relu"))
    return model_of(nodes, inputs, weights)


IMAGE = {"x": [1, 8, 9, 10]}
SINGLES = {
    "conv2d": single("Conv", IMAGE, {"w": (12, 4, 3, 3), "b": (12,)}, group=2, strides=[2, 1]),
    "depthwise": single("Conv", IMAGE, {"w": (8, 1, 3, 3)}, group=8, pads=[1, 0, 1, 2]),
    "residual": single("Conv", {**IMAGE, "r": [1, 8, 9, 10]}, {"w": (8, 8, 1, 1)}),
    "conv2d_transpose": single(
        "ConvTranspose",
        IMAGE,
        {"w": (8, 6, 3, 3), "b": (6,)},
        strides=[2, 2],
        output_padding=[1, 1],
    ),
    "matmul": single("MatMul", {"x": [3, 5, 16]}, {"w": (16, 20)}),
    "computed": single("MatMul", {"x": [2, 5, 16], "z": [2, 16, 7]}, {}),
}


@pytest.mark.parametrize("name", SINGLES)
def test_every_kind_of_layer_is_checked_by_onnxruntime(name: str, tmp_path: Path) -> None:
    (layer,) = layers_of(SINGLES[name])
    library, built = build([layer], tmp_path, onnxruntime_answer)
    (timed,) = time_layers(library, built, 1, 1, lambda layer: None)
    assert timed.checked_by == "ONNX Runtime" and not timed.failed
    others = {"conv2d": ["implicit GEMM, packed"], "residual": ["dots"]}
    others["conv2d_transpose"] = ["GEMM, windows added up"]
    assert list(timed.times) == [
        layer.untuned,
        *(("builtin", other) for other in others.get(name, ())),
    ]


@pytest.mark.slow
def test_another_machine_is_left_alone(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    write_database(path, model, {"implicit GEMM": 1.0}, threads=7)
    with pytest.warns(TuningWarning, match="7 threads"):
        byoc.compile(model, tuning_db=path)
    byoc.tune(model, path, libraries="builtin", rounds=1)
    assert len(races_of(path, machine_key(7))) == len(races_of(path, machine_key(1))) == 1
