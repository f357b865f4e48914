"""``python -m benchmarks.gemm``: contestants compute the same, and the verdicts are right."""

from __future__ import annotations

import json

import pytest

from benchmarks import gemm
from benchmarks.gemm import Row, Run, Times, main
from benchmarks.gemm_shapes import CUBES, SHAPES, Product
from byoc.errors import BenchmarkError
from codegen_cc.errors import LibraryError
from codegen_cc.libraries.blas import find_blas


def needs_blas() -> None:
    try:
        find_blas()
    except LibraryError as error:
        pytest.skip(str(error))


def made_up(peak: float, cube_ms: float, *ratios: float) -> Run:
    same = Times(1.0, 1.0, 1.0)
    rows = [Row(CUBES[0], Times(cube_ms, cube_ms, cube_ms), same, same)]
    rows += [
        Row(product, Times(ratio, 2 * ratio, 3 * ratio), same, same)
        for product, ratio in zip(SHAPES, ratios, strict=False)
    ]
    return Run(1, "avx512", peak, "OpenBLAS 0", rows)


def test_there_are_forty_shapes_of_every_kind() -> None:
    assert len(SHAPES) == 40 and len({(p.label, p.group) for p in SHAPES}) == 40
    rows = {p.m for p in SHAPES}
    assert {1, 2, 3, 4, 7, 8, 14, 16, 17, 101, 999} <= rows
    assert {p.n for p in SHAPES if p.m > 100} >= {1, 4, 8, 10} and {4, 8} <= {p.k for p in SHAPES}
    assert {p.batch for p in SHAPES} == {1, 4, 8, 12}
    assert CUBES[0].gflop == pytest.approx(0.268435456)


@pytest.mark.slow
@pytest.mark.parametrize("only", ["17 x 33", "8 x 197 x 64", "1024 x 1 x"])
def test_small_products_are_measured(only: str, capsys: pytest.CaptureFixture[str]) -> None:
    needs_blas()
    assert main(["--only", only, "--rounds", "1", "--json"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)
    (run,) = result["runs"]
    assert run["threads"] == 1 and run["peak"] > 0 and run["blas"]
    for row in run["rows"]:
        assert only in Product(**row["product"]).label
        for times in ("packed", "plain", "blas"):
            assert 0 < row[times]["min_ms"] <= row[times]["p50_ms"] <= row[times]["p90_ms"]


def test_verdicts() -> None:
    # 0.268 GFLOP in 2.6 ms are 103 GFLOP/s.
    fast = gemm.checks(made_up(105.0, 2.6, 0.5, 2.0))
    assert fast[0].startswith("512 x 512 x 512, 1 thread: 98.3 % of the peak reaches 95 %")
    assert "mean of ours / BLAS 1.000, within 1.000" in fast[1] and "1 of 2 shapes" in fast[1]
    slow = gemm.checks(made_up(120.0, 2.6, 2.0, 2.0))
    assert all("MISSES" in line for line in slow)


def test_tables() -> None:
    cubes, others = gemm.sheets(made_up(105.0, 2.6, 0.5, 2.0))
    cube = dict(zip(cubes.headings, cubes.rows[0], strict=True))
    assert (cube["m x n x k"], cube["peak %"], cube["ratio"]) == ("512 x 512 x 512", "98.3", "2.60")
    assert [row[1] for row in others.rows] == [product.label for product in SHAPES[:2]]
    assert others.markdown().splitlines()[-1].startswith(f"| few rows | {SHAPES[1].label} | 2 |")


@pytest.mark.slow
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    needs_blas()
    assert main(["--only", "nothing"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: no product has 'nothing' in its row"]
    assert main(["--threads", "4096"]) == 2
    assert capsys.readouterr().err.startswith("error: cannot time 4096 threads")


def test_a_wrong_answer_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_blas()
    monkeypatch.setattr(gemm, "_TOLERANCE", -1.0)
    monkeypatch.setattr(gemm.os, "sched_setaffinity", lambda *_: None)
    with pytest.raises(BenchmarkError, match=r"packed on 17 x 33 x 65: wrong by"):
        gemm.measure(1, [Product("odd", 17, 33, 65)], 1)
