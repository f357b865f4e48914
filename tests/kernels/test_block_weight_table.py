"""``python -m benchmarks.block_weight``: what it measures is right, and so are its verdicts."""

from __future__ import annotations

import json

import pytest

from benchmarks.block_weight import Row, Weight, checks, main, weights


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 16])
def test_small_weights_are_measured(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    only = f"4 bits {rows} x 896 x 4864 by 128"
    main(["--only", only, "--rows", str(rows), "--rounds", "1", "--json"])
    found = json.loads(capsys.readouterr().out)["rows"]
    assert len(found) == (2 if rows == 1 else 1)
    for row in found:
        assert only in Weight(**row["weight"]).label
        assert row["mbyte"] > 4864 * 896 / 2e6 and min(row["ours"], row["other"]) > 0


def test_verdicts() -> None:
    one, many = Weight(4, 896, 4864, 32), Weight(8, 896, 4864, 32, rows=16)
    assert checks([Row(one, 2.0, 1.0, 0.86), Row(many, 2.0, 1.0, 0.91)]) == [
        "all reach their targets"
    ]
    lines = checks([Row(one, 2.0, 1.0, 0.84), Row(many, 2.0, 1.0, 0.89)])
    assert [line.split(": ")[1] for line in lines] == ["0.84 MISSES 0.85", "0.89 MISSES 0.90"]


def test_every_weight_has_a_name_of_its_own() -> None:
    labels = [weight.label for weight in weights([1, 16])]
    assert len(labels) == len(set(labels)) > 90
