"""A database decides: in the report, in the generated C, and the answer stays right."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import byoc
from byoc.cli import main
from byoc.errors import TuningError
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.errors import CodegenError
from codegen_cc.libraries import Selection, library
from codegen_cc.libraries.measured_choice import Race, Time, TuningWarning, decide
from codegen_cc.link.weights import WeightBlob
from codegen_cc.lowering import plan_region
from tests.ir.regions import RegionBuilder
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.tuning.networks import convolutions, of_version, write_database

F2, F4, F6, GEMM = *(f"Winograd F({m}, 3)" for m in (2, 4, 6)), "implicit GEMM"
PACKED = "implicit GEMM, packed"
SHARED = "implicit GEMM, packed in tiles of more than 7 rows"


def nodes_of(compiled: byoc.Compiled) -> dict[str, tuple[str, str]]:
    """Algorithm and reason by the first name of each convolution."""
    nodes = compiled.report.to_json()["nodes"]
    return {
        node["name"].split(" + ")[0]: (node["algorithm"], node["chosen_by"])
        for node in nodes
        if "conv2d" in node["composite"]
    }


def calls(folder: Path) -> str:
    (file,) = folder.glob("*.c")
    return file.read_text()


@pytest.mark.parametrize(
    ("wanted", "function"),
    [(F6, "ext_conv2d_winograd"), (GEMM, "ext_conv2d"), (PACKED, "ext_conv2d")],
)
def test_the_database_overrules_the_algorithm(wanted: str, function: str, tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    write_database(path, model, {F2: 2.0, F4: 2.0, F6: 2.0, GEMM: 2.0, PACKED: 2.0} | {wanted: 1.0})
    code = tmp_path / "code"
    compiled = byoc.compile(model, tmp_path / "m.so", tuning_db=path, dump_code=code)
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    assert nodes_of(compiled) == {
        "first": (wanted, "measured, 100 % faster"),
        "second": (wanted, "measured, 100 % faster"),
        "last": ("GEMM", ""),
    }
    source = calls(code)
    assert source.count("ext_conv2d_winograd(") == (2 if "winograd" in function else 0)
    assert source.count("ext_conv2d(") == (1 if "winograd" in function else 3)
    if wanted == F6:
        assert source.count("}, 8, ") == 2 or source.count("8,\n") == 2  # the tile of F(6, 3)
    rows = {F6: [], GEMM: ["14", "14"], PACKED: ["0", "0"]}
    assert re.findall(r"\.in_place_rows = (\d+)", source) == rows[wanted]
    uses = {use.algorithm: (use.nodes, use.measured) for use in compiled.report.kernels}
    assert uses[wanted] == (2, 2) and uses["GEMM"] == (1, 0)
    inputs = draw_inputs(model)
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


def test_without_one_the_choice_is_the_librarys_own() -> None:
    found = nodes_of(byoc.compile(convolutions()))
    assert found == {"first": (F4, ""), "second": (F4, ""), "last": ("GEMM", "")}


def test_threads_are_part_of_the_key(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    write_database(path, model, {F2: 1.0, F4: 2.0, F6: 2.0, GEMM: 2.0}, threads=1)
    write_database(path, model, {F2: 2.0, F4: 2.0, F6: 1.0, GEMM: 2.0}, threads=2)
    for threads, wanted in ((None, F2), (1, F2), (2, F6)):
        compiled = byoc.compile(model, threads=threads, tuning_db=path)
        assert nodes_of(compiled)["first"][0] == wanted
    with pytest.warns(TuningWarning, match="no times of .*, 3 threads"):
        byoc.compile(model, threads=3, tuning_db=path)


def test_an_old_version_is_one_warning(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    times = {F2: 9.0, F4: 9.0, F6: 9.0, GEMM: 1.0}
    write_database(path, model, times, change=of_version("0 12345678"))
    with pytest.warns(TuningWarning, match="measured with builtin 0 12345678, and this is") as told:
        compiled = byoc.compile(model, tuning_db=path)
    assert len(told) == 1 and nodes_of(compiled) == nodes_of(byoc.compile(model))


def test_an_unknown_algorithm_is_ignored(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    write_database(path, model, {F2: 2.0, F4: 2.0, F6: 1.0, GEMM: 2.0, "magic": 0.1})
    with pytest.warns(
        TuningWarning, match="names an algorithm 'magic', which builtin does"
    ) as told:
        compiled = byoc.compile(model, tuning_db=path)
    assert len(told) == 1 and nodes_of(compiled)["first"][0] == F6


def test_a_broken_file_does_not_stop_a_build(tmp_path: Path, capsys) -> None:
    path, model = tmp_path / "db.json", tmp_path / "m.onnx"
    path.write_text("{")
    onnx.save(convolutions(), model)
    arguments = ["compile", str(model), "-o", str(tmp_path / "m.so"), "--tuning-db", str(path)]
    assert main([*arguments, "--json"]) == 0
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"warning: tuning database {path} is ignored")
    nodes = json.loads(told.out)["report"]["nodes"]
    assert {node["chosen_by"] for node in nodes} == {""}
    assert path.read_text() == "{"


def test_the_report_for_people(tmp_path: Path, capsys) -> None:
    path, model = tmp_path / "db.json", tmp_path / "m.onnx"
    onnx.save(convolutions(), model)
    write_database(path, convolutions(), {F2: 2.0, F4: 2.0, F6: 1.0, GEMM: 2.0})
    page = tmp_path / "page.html"
    arguments = ["partition", str(model), "--tuning-db", str(path), "--html", str(page)]
    assert main(arguments) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["library", "algorithm", "nodes", "MACs", "[M]", "measured"] in lines
    (row,) = [line for line in lines if line[:2] == ["builtin", "Winograd"]]
    assert (row[4], row[-1]) == ("2", "2")
    assert f"builtin: {F6} (measured, 100 % faster)" in page.read_text()


def test_other_verbs_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    path, model = tmp_path / "db.json", tmp_path / "m.onnx"
    onnx.save(convolutions(), model)
    write_database(path, convolutions(), {F2: 2.0, F4: 2.0, F6: 2.0, GEMM: 1.0})
    assert main(["profile", str(model), "--runs", "1", "--tuning-db", str(path), "--json"]) == 0
    found = [call["function"] for call in json.loads(capsys.readouterr().out)["calls"]]
    assert found.count("ext_conv2d") == 3
    asked: dict[str, Any] = {}

    def bench(models: object, **options: object) -> None:
        asked.update(options)
        raise OSError("enough")

    monkeypatch.setattr("byoc.bench.networks.bench", bench)
    assert main(["bench", str(model), "--tuning-db", str(path)]) == 2
    selection = asked["compiling"]["libraries"]
    assert isinstance(selection, Selection) and selection.tuning is not None
    assert len(selection.tuning.races) == 1


def test_only_libraries_that_may_be_asked(tmp_path: Path) -> None:
    model, path = convolutions(), tmp_path / "db.json"

    def with_another(race: Race) -> Race:
        times = {"elsewhere": {"fast": Time(0.1, 0.1)}}
        return Race({**race.stamps, "elsewhere": "1"}, {**race.times, **times})

    times = {F2: 1.0, F4: 2.0, F6: 2.0, GEMM: 2.0}
    write_database(path, model, times, change=with_another)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        assert nodes_of(byoc.compile(model, tuning_db=path))["first"][0] == F2


OWN, OTHER = ("builtin", "a"), ("mine", "b")


@pytest.mark.parametrize(
    ("own", "other", "winner", "why"),
    [
        (1.0, 0.5, OTHER, "measured, 100 % faster"),
        (1.0, 0.98, OWN, "measured"),  # not by enough
        (1.0, None, OWN, "measured"),
        (None, 2.0, OTHER, "measured"),  # the untuned choice answers wrong
    ],
)
def test_who_wins(own: float | None, other: float | None, winner, why: str) -> None:
    times = {
        name: {algorithm: ms and Time(ms, ms)}
        for (name, algorithm), ms in ((OWN, own), (OTHER, other))
    }
    decision = decide(Race({"builtin": "1", "mine": "1"}, times), OWN, ["builtin", "mine"])
    assert decision is not None and (decision.winner, decision.why) == (winner, why)
    assert decide(Race({}, {"mine": times["mine"]}), OWN, ["mine"]) is None


def test_a_lucky_run_does_not_win() -> None:
    times = {"builtin": {"a": Time(1.0, 1.1)}, "mine": {"b": Time(0.8, 1.2)}}
    decision = decide(Race({"builtin": "1", "mine": "1"}, times), OWN, ["builtin", "mine"])
    assert decision is not None and decision.winner == OWN


def test_a_node_that_names_no_algorithm_of_its_library() -> None:
    b = RegionBuilder()
    region = b.done(b.conv2d(b.input(1, 16, 8, 8), 16))
    object.__setattr__(region.nodes[0].node, "algorithm", "magic")
    with pytest.raises(CodegenError, match=r"builtin has no algorithm 'magic' for ext\.conv2d"):
        plan_region(region, WeightBlob("w"))


def test_the_default_reads_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "byoc").mkdir()
    (tmp_path / "byoc" / "tuning.json").write_text("{")
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        byoc.compile(convolutions())
    with pytest.raises(TuningError, match="cannot choose by 'dice'; need one of order, model"):
        byoc.compile(convolutions(), choose="dice")


def test_own_choice_comes_first() -> None:
    b = RegionBuilder()
    region = b.done(b.conv2d(b.input(1, 16, 8, 8), 16))
    node, builtin = region.nodes[0].node, library("builtin")
    names = builtin.algorithms(node)
    assert names[0] == builtin.algorithm(node) and set(names) == {F2, F4, F6, GEMM, PACKED}
    assert np.unique(names).size == len(names)


@pytest.mark.parametrize(
    ("channels", "stride", "wanted"),
    [
        (512, 1, [GEMM, PACKED]),
        (1024, 1, [SHARED, GEMM, PACKED]),
        (512, 2, [SHARED, GEMM, PACKED]),
        (1000, 1, [GEMM, PACKED]),
        (1008, 2, [GEMM, PACKED]),
    ],
)
def test_pixels_that_share_sets_of_the_cache_are_packed_by_tall_tiles(
    channels: int, stride: int, wanted: list[str]
) -> None:
    b = RegionBuilder()
    region = b.done(b.conv2d(b.input(1, channels, 8, 8), 16, kernel=5))
    node = region.nodes[0].node
    node.attrs["strides"] = [stride, stride]
    assert list(library("builtin").algorithms(node)) == wanted
    rows = {GEMM: 14, PACKED: 0, SHARED: 7}
    for name in ("", *wanted):
        object.__setattr__(node, "algorithm", name)
        calls = plan_region(region, WeightBlob("w")).calls
        (params,) = [c.arguments[0] for c in calls if c.function == "ext_conv2d"]
        assert params.fields["in_place_rows"] == rows[name or wanted[0]]
