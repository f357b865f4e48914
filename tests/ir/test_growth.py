"""How partitioning grows with a network's depth, in CPU time: the benchmark, and its limits."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.growth import NETWORKS, growth, main, measure

#: Seconds for 500 layers: 2 on an AMD EPYC (Zen 4), 5 on an Intel Xeon (Ice Lake, 2.8 GHz) whose
#: cores share what they have with others.
LIMIT = 10.0

#: Exponents of the growth: 1 is linear; timings of a busy machine scatter.
ABOUT_LINEAR = 1.4


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_hundreds_of_layers_in_seconds(name: str) -> None:
    measure(NETWORKS[name](10), code=False)  # what is imported at first use is not counted
    times = {layers: measure(NETWORKS[name](layers), code=False) for layers in (125, 500)}
    assert times[500]["operators"] > 1250
    assert times[500]["regions"] == 1
    assert times[500]["partition"] < LIMIT
    assert growth(times)["partition"] < ABOUT_LINEAR


def test_growth_is_an_exponent() -> None:
    times = {10: {"partition": 1.0}, 100: {"partition": 2.0}, 1000: {"partition": 200.0}}
    assert growth(times) == {"partition": pytest.approx(2.0)}


@pytest.mark.slow
def test_benchmark_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "--network", "transformer", "--layers", "6", "12"]
    monkeypatch.setattr(sys, "argv", command)
    assert main() == 0
    text = capsys.readouterr().out
    assert "transformer: CPU seconds per stage" in text
    assert "partition" in text and "n^" in text
    monkeypatch.setattr(sys, "argv", [*command, "--json", "--passes"])
    assert main() == 0
    found = json.loads(capsys.readouterr().out)["transformer"]
    assert set(found) == {"6", "12"}
    assert {"partition", "plan", "emit", "  canonicalise", "  merge"} <= set(found["6"])
