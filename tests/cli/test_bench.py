"""``byoc bench``: tables, JSON, plot, and what it says where an engine is missing or wrong."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from byoc import machine
from byoc.accuracy import relative_error
from byoc.bench.engines import ENGINES, ONNX
from byoc.bench.interleave import _Worker
from byoc.bench.networks import bench
from byoc.bench.subjects import load_subject
from byoc.cli import main
from byoc.errors import AxesNote
from byoc.frontends.onnx.measured_model import draw_inputs, separate_weights
from codegen_cc.instruction_sets import COMPILE_ISA
from models.builder import GraphBuilder
from tests.ir.graphs import refused_model
from tests.test_tiny import tiny_model

PAIR = ("--engines", "byoc", "onnxruntime")
QUICK = ("--threads", 1, "--rounds", 1)


def dynamic_model() -> onnx.ModelProto:
    """Images [n, 3, h, 8] through a convolution, pooled, to [n, 4]."""
    graph = GraphBuilder("dynamic", seed=3)
    x = graph.op("Relu", graph.conv(graph.input("x", ("n", 3, "h", 8)), (3, 4), 3))
    graph.output(graph.op("Flatten", graph.op("GlobalAveragePool", x)), "y", ("n", 4))
    return graph.build()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


@pytest.fixture(scope="module")
def affinities() -> dict[str, set[frozenset[int]]]:
    """By engine, the cores that the threads of its process might use in ``run``."""
    return {}


@pytest.fixture(scope="module")
def run(tiny: Path, affinities: dict[str, set[frozenset[int]]]) -> dict:
    """One run of all engines that are here, as JSON."""

    stop = _Worker.stop

    def watched(self: _Worker) -> None:
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        cores = {frozenset(os.sched_getaffinity(int(task.name))) for task in tasks}
        affinities[self.timing.engine] = cores
        stop(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Worker, "stop", watched)
        return json.loads(json.dumps(bench([str(tiny)], threads=[1], rounds=1).to_json()))


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run ``byoc bench``, which must fail with one line; returns it."""
    assert main(["bench", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err


# ---------------------------------------------------------------- a run


@pytest.mark.slow
def test_json_has_machine_rows_and_ratios(run: dict) -> None:
    about = run["machine"]
    assert run["precisions"] == ["fp32"] and about["peak_gflops"] > 1 and about["cores"] >= 1
    assert {"byoc", "plain TVM", "ONNX Runtime"} <= about["versions"].keys()
    assert (run["threads"], run["rounds"], run["suite"]) == ([1], 1, None)
    rows = {row["engine"]: row for row in run["rows"]}
    engines = {name for name, engine in ENGINES.items() if ONNX in engine.models}
    assert rows.keys() == engines - run["absent"].keys() >= {"byoc", "tvm", "onnxruntime"}
    for name, found in rows.items():
        times = [found[key] for key in ("min_ms", "p50_ms", "p90_ms", "p99_ms")]
        assert times == sorted(times) and times[0] > 0, name
        assert found["runs"] >= 1 and found["peak_mb"] > 10
        assert found["error"] <= 1e-4, name
    # conv 3 -> 20 with 3 x 3 on 12 x 10 pixels, then 240 rows of 10 times 10 x 5.
    macs = 20 * 3 * 9 * 120 + 240 * 10 * 5
    ours = rows["byoc"]
    assert ours["gflops"] == pytest.approx(2e-6 * macs / ours["p50_ms"])
    assert ours["share_of_peak"] == pytest.approx(ours["gflops"] / about["peak_gflops"])
    (comparison,) = run["comparisons"]
    peers = [found["p50_ms"] for name, found in rows.items() if ENGINES[name].peer]
    assert comparison["ratio"] == pytest.approx(ours["p50_ms"] / min(peers))
    assert run["failures"] == []


def test_no_engine_can_use_more_cores(
    run: dict, affinities: dict[str, set[frozenset[int]]]
) -> None:
    assert affinities.keys() == {row["engine"] for row in run["rows"]}
    assert set.union(*affinities.values()) == {frozenset(machine.usable_cores()[:1])}


@pytest.mark.parametrize("engine", ["openvino", "ncnn"])
def test_an_optional_engine_answers_in_the_order_of_outputs(tmp_path: Path, engine: str) -> None:

    if (why := ENGINES[engine].absent()) is not None:
        pytest.skip(f"{ENGINES[engine].title} is {why}")
    graph = GraphBuilder("two", seed=1)
    early = graph.op("Relu", graph.conv(graph.input("x", (1, 3, 8, 8)), (3, 4), 3))
    graph.output(graph.op("Sigmoid", graph.conv(early, (4, 4), 3)), "late", (1, 4, 8, 8))
    graph.output(early, "early", (1, 4, 8, 8))
    onnx.save(graph.build(), tmp_path / "two.onnx")
    outcome = bench([str(tmp_path / "two.onnx")], engines=[engine], threads=[1], rounds=1)
    (found,) = outcome.results.rows
    assert found.error is not None and found.error <= 1e-4


@pytest.mark.slow
def test_table_names_the_machine_and_an_absent_engine(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "byoc.bench.engines.find_spec", lambda name: name not in ("ncnn", "pnnx") or None
    )
    monkeypatch.setitem(ENGINES, "openvino", replace(ENGINES["openvino"], packages={"ncnn": "ov"}))
    engines = ("--engines", "byoc", "onnxruntime", "openvino", "ncnn")
    assert main(["bench", *map(str, (tiny, *QUICK, *engines))]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert re.search(r"\d+ cores?, .*FMA peak of a core, measured: \d+\.\d GFLOP/s", lines[0])
    assert lines[1].startswith("byoc ") and "ONNX Runtime" in lines[1]
    for heading in ("min ms", "p50 ms", "p90 ms", "p99 ms", "GFLOP/s", "peak %", "ratio"):
        assert heading in captured.out
    assert re.search(r"^ +byoc +\d+ +\d", captured.out, re.MULTILINE)
    assert (
        "tiny.onnx, fp32, 1 thread: byoc takes " in captured.out
        and "the best peer, ONNX Runtime" in captured.out
    )
    assert "not compared: OpenVINO: not installed; pip install ov" in lines
    assert (
        "not compared: ncnn: not installed; pip install ncnn and pip install --no-deps pnnx"
        in lines
    )
    assert captured.err == ""


@pytest.mark.slow
def test_a_wrong_answer_of_ours_fails_the_check(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = relative_error

    def shifted(ours: list[np.ndarray], expected: list[np.ndarray]) -> float:
        return right([array + 2e-4 * np.ptp(array) for array in ours], expected)

    monkeypatch.setattr("byoc.bench.measure.relative_error", shifted)
    assert main(["bench", *map(str, (tiny, *QUICK, *PAIR))]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        "check failed: byoc on tiny.onnx in fp32 with 1 thread differs from ONNX Runtime by 2.0e-04"
        " of the range; the limit is 1e-04\n"
    )
    assert "note: ONNX Runtime on tiny.onnx in fp32 with 1 thread differs" in captured.out


@pytest.mark.slow
def test_an_engine_that_fails_is_named_and_the_rest_goes_on(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime is given our library, which its process refuses."""
    from byoc.bench import measure

    real = measure.build
    monkeypatch.setattr(
        "byoc.bench.measure.build",
        lambda engine, *rest: real("byoc" if engine == "onnxruntime" else engine, *rest),
    )
    assert main(["bench", *map(str, (tiny, *QUICK, *PAIR))]) == 0
    captured = capsys.readouterr()
    assert "not measured: ONNX Runtime on tiny.onnx: " in captured.out
    assert re.search(r"^ +byoc +\d+ +\d", captured.out, re.MULTILINE)
    assert not re.search(r"^ +ONNX Runtime +\d+ +\d", captured.out, re.MULTILINE)


@pytest.mark.slow
def test_our_failure_is_a_failed_check(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setattr("byoc.bench.builds._byoc", broken)
    assert main(["bench", *map(str, (tiny, *QUICK, *PAIR))]) == 1
    assert "not measured: byoc on tiny.onnx: no such kernel\n" in capsys.readouterr().out


@pytest.mark.slow
def test_batches_of_a_model_of_batch_1(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *map(str, (tiny, *QUICK, *PAIR, "--batch", 1, 3, "--json"))]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["batch"], row["engine"]) for row in found["rows"]] == [
        (batch, engine) for batch in (1, 3) for engine in ("byoc", "onnxruntime")
    ]
    assert all(row["error"] <= 1e-4 for row in found["rows"])
    small, _, large, _ = (row["gflops"] * row["p50_ms"] for row in found["rows"])
    assert large == pytest.approx(3 * small)


def test_shapes_and_batches_are_written_into_the_model(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    onnx.save(dynamic_model(), path)
    for shapes, batch, want in (
        ({"x": [1, 3, 6, 8]}, None, [1, 3, 6, 8]),
        ({"x": [1, 3, 6, 8]}, 5, [5, 3, 6, 8]),
    ):
        subject = load_subject(str(path), shapes, batch)
        assert list(subject.inputs["x"].shape) == want
        assert [
            d.dim_value for d in subject.model.graph.input[0].type.tensor_type.shape.dim
        ] == want
    with pytest.warns(AxesNote, match=r'"x:\[5,3,224,8\]"'):
        assert load_subject(str(path), None, 5).inputs["x"].shape == (5, 3, 224, 8)
    assert load_subject(str(tiny), None, 2).inputs["x"].shape == (2, 3, 12, 10)
    named = load_subject(str(path), {"x": ["rows", 3, 6, 8]})
    assert named.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert named.inputs["x"].shape == (1, 3, 6, 8)


def test_weights_are_no_inputs() -> None:
    """Engines take weights among the inputs for values that may change."""
    model = tiny_model()
    weights = [
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
        for t in model.graph.initializer
    ]
    model.graph.input.extend(weights)
    model.ir_version = 3
    separate_weights(model)
    assert [value.name for value in model.graph.input] == ["x"]
    assert model.ir_version >= 4


def test_a_batch_that_the_model_cannot_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder("fixed", seed=1)
    graph.output(graph.reshape(graph.op("Relu", graph.input("x", (1, 6))), [1, -1]), "y", (1, 6))
    onnx.save(graph.build(), tmp_path / "fixed.onnx")
    said = error_of(capsys, tmp_path / "fixed.onnx", *QUICK, *PAIR, "--batch", 2)
    assert "batch 2 gives outputs of shape [1, 12]" in said


# ---------------------------------------------------------------- usage


def test_help_names_the_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Usage: byoc bench")
    assert ", ".join(ENGINES) in text


def test_usage_errors_are_one_line(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "need a MODEL or --suite" in error_of(capsys)
    assert "not both" in error_of(capsys, tiny, "--suite", "zoo")
    assert "'zou' is not" in error_of(capsys, "--suite", "zou")
    assert "'tvn' is not one of 'byoc'" in error_of(capsys, tiny, "--engines", "byoc", "tvn")
    said = error_of(capsys, "no_such_model", *QUICK, *PAIR)
    assert "no model 'no_such_model'; need an ONNX file or one of resnet50" in said
    assert "for one model" in error_of(capsys, "--suite", "zoo", "--batch", 1, 2)
    assert "a run needs numbers" in error_of(capsys, tiny, "--input-shapes", "x:[n,3,12,10]")
    too_many = len(machine.usable_cores()) + 1
    assert f"cannot time {too_many} threads" in error_of(capsys, tiny, "--threads", 1, too_many)
    assert "must end in .svg or .png" in error_of(capsys, tiny, "--plot", tmp_path / "plot.pdf")
    assert "no folder" in error_of(capsys, tiny, "--plot", tmp_path / "none" / "plot.svg")
    assert "no folder" in error_of(capsys, tiny, "--html", tmp_path / "none" / "page.html")


def test_numbers_in_a_row_end_before_a_model(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def bench(models: object, **options: object) -> None:
        asked.update(options, models=models)
        raise OSError("enough")

    monkeypatch.setattr("byoc.bench.networks.bench", bench)
    error_of(capsys, "--batch", 1, 2, 4, tiny, "--engines", "byoc", "tvm", "--threads", 2)
    assert asked["models"] == (str(tiny),)
    assert asked["compiling"]["libraries"] is None
    assert asked["batches"] == (1, 2, 4)
    assert asked["engines"] == ("byoc", "tvm")
    assert asked["threads"] == (2,)
    error_of(capsys, "--library", "onednn,builtin", tiny, "--threads=1", "--threads", 2)
    assert asked["models"] == (str(tiny),)
    assert asked["compiling"]["libraries"] == ("onednn,builtin",)
    assert asked["threads"] == (1, 2)


def test_more_threads_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 7})
    monkeypatch.setattr(machine, "_TOPOLOGY", "/nowhere/{}")
    assert machine.choose_cores(2) == [5, 7]
    with pytest.raises(machine.BenchmarkError, match="may use 2 cores"):
        machine.choose_cores(3)


# ---------------------------------------------------------------- parts


@pytest.mark.slow
def test_plot_and_page_are_written(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed: the extra 'bench'")
    path, page = tmp_path / "plot.svg", tmp_path / "bench.html"
    files = ("--plot", path, "--html", page)
    assert main(["bench", *map(str, (tiny, *QUICK, *PAIR, *files))]) == 0
    out = capsys.readouterr().out
    assert "ONNX Runtime" in path.read_text(encoding="utf-8")
    (said,) = [line for line in out.splitlines() if "x the time of the best peer" in line]
    assert f"<h1>{said}</h1>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("ours", "theirs", "error"),
    [
        ([0.0, 2.0], [0.0, 1.0], 1.0),
        ([0.0, np.nan], [0.0, 1.0], np.inf),
        ([0.0, np.nan, 4.0], [0.0, np.nan, 4.0], 0.0),
        ([0.0, np.inf], [0.0, -np.inf], np.inf),
        ([5.0, 5.5], [5.0, 5.0], 0.1),
        ([True, False], [True, True], 1.0),
        ([], [], 0.0),
    ],
)
def test_relative_error(ours: list, theirs: list, error: float) -> None:
    assert relative_error([np.array(ours)], [np.array(theirs)]) == pytest.approx(error)


def test_other_shapes_and_numbers_of_outputs_differ() -> None:
    assert relative_error([np.zeros((1, 2))], [np.zeros(2)]) == np.inf
    assert relative_error([np.zeros(2)], [np.zeros(2), np.zeros(2)]) == np.inf


@pytest.mark.parametrize("name", ["attention_mask", "ids"])
def test_inputs_are_of_the_models_dtypes(name: str) -> None:
    graph = GraphBuilder("ids", seed=1)
    ids = graph.input(name, (2, 8), "int64")
    graph.output(graph.op("Cast", ids, to=onnx.TensorProto.FLOAT), "y", (2, 8))
    (values,) = draw_inputs(graph.build(), below=2).values()
    assert values.shape == (2, 8) and values.dtype == np.int64
    assert set(values.ravel()) == {0, 1}
    if name == "attention_mask":
        np.testing.assert_array_equal(values[0], [1] * 6 + [0] * 2)


@pytest.mark.slow
def test_a_refused_form_is_measured_for_whoever_insists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By ours and by plain TVM, which share the importer."""
    path = tmp_path / "refused.onnx"
    onnx.save(refused_model(), path)
    call = ["bench", str(path), "--json", "--threads", "1", "--rounds", "1", "--engines"]
    call += ["byoc", "tvm", "onnxruntime"]
    assert main(call) == 1
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert {failure["engine"] for failure in failures} == {"byoc", "tvm"}
    assert all("--allow-wrong RoiAlign" in failure["reason"] for failure in failures)
    assert main([*call, "--allow-wrong", "RoiAlign"]) == 1  # as it is wrong
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not found["failures"]
    assert "greatest weighted corner of each; taken all the same" in err
    assert {row["engine"] for row in found["rows"]} == {"byoc", "tvm", "onnxruntime"}


@pytest.mark.slow
@pytest.mark.parametrize(("row", "in_parts"), [("amx_bf16", True), ("avx512_bf16", False)])
def test_two_parts_of_bf16_beside_float32(
    tiny: Path, row: str, in_parts: bool, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """What is compiled for a CPU without AMX says that its products are in float32."""
    monkeypatch.setenv(COMPILE_ISA, row)
    given = ["bench", str(tiny), "--precision", "bf16x3", *map(str, (*PAIR, *QUICK))]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(one["engine"], one["precision"]) for one in found["rows"]} == {
        ("byoc", "bf16x3"),
        ("onnxruntime", "bf16x3"),
    }
    assert all(one["error"] < 1e-4 for one in found["rows"])
    (comparison,) = found["comparisons"]
    assert comparison["precision"] == "bf16x3"
    reasons = "".join(found["kept"].values())
    assert bool(reasons) != in_parts and ("as AMX has" in reasons) != in_parts
    assert main(given) == 0
    said = capsys.readouterr().out
    assert ("note: no product of " in said) != in_parts
