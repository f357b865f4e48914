"""``python -m benchmarks.gemm_bf16``: contestants compute the same, and the verdicts are right."""

from __future__ import annotations

import json

import pytest

from benchmarks import gemm_bf16
from benchmarks.gemm_bf16 import Row, Run, main
from benchmarks.gemm_shapes import CUBES, Product


@pytest.mark.slow
@pytest.mark.parametrize("only", ["17 x 33", "1 x 1000"])
def test_small_products_are_measured(only: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", only, "--rounds", "1", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["peak"] > 0 and run["fp32_peak"] > 0
    for row in run["rows"]:
        assert only in Product(**row["product"]).label
        names = {"bf16", "from fp32", "fp32", *["oneDNN"] * bool(run["onednn"])}
        assert set(row["gflops"]) == names and min(row["gflops"].values()) > 0


def test_verdicts() -> None:
    gflops = {"bf16": 95.0, "from fp32": 90.0, "fp32": 50.0, "oneDNN": 50.0}
    run = Run("avx512", 100.0, 50.0, "3.2", [Row(cube, gflops) for cube in CUBES[:2]])
    (line,) = gemm_bf16.checks(run)
    assert line == "1024 x 1024 x 1024: 95.0 % of the peak reaches 90 %; 1.90 times oneDNN's speed"
    slow = Run("avx512", 200.0, 50.0, "", run.rows)
    assert "MISSES 90 %" in gemm_bf16.checks(slow)[0] and "oneDNN" not in gemm_bf16.checks(slow)[0]
