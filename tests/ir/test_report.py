"""The report: the answer first, then tables, then at most one hint."""

from __future__ import annotations

import io

from rich.console import Console
from tvm.relax import op

from byoc.compiler.partition import partition_with_report
from byoc.report import Left, RegionSummary, Report

from .graphs import constant, random, relax_module

REGIONS = (RegionSummary("ext_main_0", 9, 999, 4, 4, 0), RegionSummary("ext_main_1", 3, 0, 4, 4, 0))


def text_of(report: Report, width: int = 140) -> str:
    stream = io.StringIO()
    report.render(Console(file=stream, width=width))
    return stream.getvalue()


def test_summary() -> None:
    left = Left("lv", "relax.sin", "float32[2] -> float32[2]", "no pattern row")
    assert Report(REGIONS, (left,)).summary() == "12 of 13 operators, 100.0 % of MACs, 2 regions"
    assert Report(REGIONS[1:], ()).summary() == "3 of 3 operators, 1 region"
    assert Report((), ()).summary() == "0 of 0 operators, 0 regions"


def test_share_is_rounded_down() -> None:
    heavy = RegionSummary("ext_main_0", 9, 99999, 4, 4, 0)
    left = Left("lv", "relax.matmul", "", "rank", macs=1)
    assert "99.9 % of MACs" in Report((heavy,), (left,)).summary()


def test_render() -> None:
    def build(emit, x):
        y = emit(op.nn.relu(emit(op.matmul(x, constant(random(8, 8))))))
        return emit(op.matmul(emit(op.cosh(y)), constant(random(8, 8))))

    _, report = partition_with_report(relax_module(build, (4, 8)))
    lines = text_of(report).splitlines()
    assert lines[0] == "3 of 4 operators, 100.0 % of MACs, 2 regions"
    assert any("relax.cosh" in line and "float32[4, 8] -> float32[4, 8]" in line for line in lines)
    assert lines[-1].startswith("hint: 1 x relax.cosh (no pattern row for relax.cosh on float32;")


def test_hint_names_what_holds_the_work() -> None:
    def build(emit, x):
        return emit(op.matmul(x, constant(random(4, 8))))

    _, report = partition_with_report(relax_module(build, (2, 4)), skip_ops=["matmul"])
    assert report.offloaded == 0
    assert "hint: relax.matmul" in text_of(report)
    assert "holds 100.0 % of MACs: skipped by operator" in text_of(report)


def test_same_entries_are_grouped() -> None:
    left = tuple(Left(f"lv{i}", "relax.sin", "[2] -> [2]", "no pattern row") for i in range(7))
    assert "    7  relax.sin" in text_of(Report((), left))
