"""``byoc bench``: suites of networks, and the tables and plots of their times."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from byoc import zoo
from byoc.bench import subjects
from byoc.bench.comparison import compare_rows, means
from byoc.bench.measure import Bench, Failure, Results, Row
from byoc.bench.networks import bench
from byoc.bench.plot import plot
from byoc.bench.suite import SUITES
from byoc.bench.tables import batch_sheet, growth_lines, suite_sheet
from byoc.cli import main
from byoc.cli.bench import bench_verb
from byoc.errors import BenchmarkError
from tests.cli.test_bench import PAIR, QUICK


def row(model: str, engine: str, p50: float, threads: int = 1, batch: int | None = None) -> Row:
    times = (0.9 * p50, p50, 1.1 * p50, 1.2 * p50)
    return Row(model, model.title(), batch, threads, engine, 9, *times, 50.0, 0.5, 40.0, 1e-7)


def test_every_network_of_the_suite_is_there() -> None:
    assert SUITES["zoo"].networks.keys() <= zoo.networks().keys()
    assert len(SUITES["zoo"].networks) == 15
    assert {f"{name}_int8" for name in SUITES["zoo"].networks} <= zoo.networks().keys()


def test_a_suite_that_lacks_networks_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Failure("ppocr_det", "ppocr_det", None, "", "it is in a package that is not there")
    assert not Results(failures=[missing]).holds
    monkeypatch.setattr(subjects, "networks", dict)
    with pytest.raises(BenchmarkError, match=r"no network could be measured: no model"):
        bench(suite="zoo", engines=("byoc",), threads=(1,), rounds=1)


def test_answers_in_16_bits_may_be_further_off() -> None:
    off = replace(row("bert", "byoc", 1.0), error=1e-3)
    assert not Results([off]).holds and Results([replace(off, rounding=5e-3)]).holds


def test_suite_table_has_ratios_targets_and_means() -> None:
    rows = [
        *(row("resnet50", "byoc", 80.0), row("resnet50", "onnxruntime", 100.0)),
        *(row("resnet50", "ncnn", 120.0), row("resnet50", "tvm", 1.0)),
        *(row("bert", "byoc", 90.0), row("bert", "openvino", 45.0)),
        *(row("vgg19", "byoc", 90.0), row("vgg19", "tvm", 45.0)),
    ]
    comparisons = compare_rows(rows, SUITES["zoo"])
    (mean,) = means(comparisons, SUITES["zoo"])
    cells = suite_sheet("zoo", comparisons, [mean]).rows
    resnet, bert, last = cells
    assert resnet == ["Resnet50", "ONNX Runtime", "1", "80.00", "100.0", "0.800", "0.90", "yes"]
    assert bert[5:] == ["2.000", "0.97", "no"]
    assert mean.ratio == pytest.approx((0.8 * 2.0) ** 0.5)
    assert last[0] == "geometric mean of 2" and last[5:] == ["1.265", "0.90", "no"]


def test_a_suite_goes_on_without_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite of one network that is not there, and one that is measured."""

    def measure(self: Bench, subjects: list) -> Results:
        name = subjects[0].name
        return Results([row(name, "byoc", 4.0), row(name, "onnxruntime", 5.0)])

    suite = replace(SUITES["zoo"], networks={"absent_network": {1: 0.9}, "squeezenet": {1: 0.9}})
    monkeypatch.setitem(SUITES, "zoo", suite)
    monkeypatch.setattr(Bench, "measure", measure)
    assert main(["bench", "--suite", "zoo", *map(str, QUICK), *PAIR, "--markdown"]) == 1
    captured = capsys.readouterr()
    assert "check failed: absent_network was not measured" in captured.err
    assert "| Squeezenet | ONNX Runtime | 1 | 4.00 | 5.00 | 0.800 | 0.90 | yes |" in captured.out
    assert "not measured: absent_network: no model 'absent_network'" in captured.out
    assert captured.err.startswith("Squeezenet, fp32, 1 thread: byoc takes 0.80 x")


def test_batch_table_says_whether_the_time_per_image_grows() -> None:
    rows = [row("net", "byoc", t, batch=b) for b, t in ((1, 10.0), (2, 18.0), (4, 44.0))]
    rows += [row("net", "onnxruntime", 11.0, batch=1)]
    sheet = batch_sheet(rows)
    assert sheet.rows == [
        ["1", "1", "10.00", "11.00"],
        ["1", "2", "9.00", ""],
        ["1", "4", "11.00", ""],
    ]
    assert growth_lines(rows) == ["1 thread: byoc's time per image grows 1.22 x from batch 2 to 4"]
    assert growth_lines(rows[:2]) == ["1 thread: byoc's time per image never grows"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plot_is_written(tmp_path: Path, suffix: str) -> None:
    if find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed: the extra 'bench'")
    rows = [
        row(model, engine, p50, threads)
        for threads in (1, 2)
        for model in ("resnet50", "bert")
        for engine, p50 in (("byoc", 8.0), ("onnxruntime", 10.0), ("ncnn", 99.0), ("tvm", 400.0))
    ]
    path = tmp_path / f"plot.{suffix}"
    plot(path, rows, compare_rows(rows, SUITES["zoo"]), "a CPU; 1 < 2")
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("fp64",), "'fp64' is not one of 'fp32', 'bf16'"),
        (
            ("softmax=fp32",),
            "softmax=fp32 is an exception; need bf16 or bf16x3 besides",
        ),
    ],
)
def test_precisions_that_mean_nothing(given: tuple[str, ...], message: str, capsys) -> None:
    assert main(["bench", "squeezenet", "--precision", *given]) == 2
    assert message in capsys.readouterr().err


def test_several_precisions_stand_in_a_row() -> None:
    words = ["squeezenet", "--precision", "fp32", "bf16", "head/*=fp32", "--threads", "1"]
    given = bench_verb.make_context("bench", words).params
    assert given["models"] == ("squeezenet",)
    assert given["precisions"] == ("fp32", "bf16", "head/*=fp32")
