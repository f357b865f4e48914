"""The page of ``byoc bench`` in a browser: a bar for each engine, as long as its time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from byoc.bench.bench_page import bench_page
from byoc.bench.machine import Machine
from byoc.bench.measure import Failure, Results, Row
from byoc.bench.networks import Outcome

from .browser import open_page, visible_text
from .networks import HOSTILE

#: Engine, then shortest, median and 90th percentile in milliseconds.
TIMES = {
    "byoc": (9.0, 10.0, 11.0),
    "onnxruntime": (18.0, 20.0, 23.0),
    "openvino": (12.0, 12.5, 13.0),
    "tvm": (500.0, 510.0, 520.0),
}


def outcome() -> Outcome:
    rows = [
        Row("m", HOSTILE[0], None, 1, engine, 7, least, middle, high, high, None, None, None, 0.0)
        for engine, (least, middle, high) in TIMES.items()
    ]
    failures = [Failure("m", "m", None, "ncnn", HOSTILE[1])]
    about = Machine("CPU", 2, "avx2", 100.0, {"byoc": "0"})
    return Outcome(about, [1], 1, None, Results(rows, failures))


@pytest.mark.slow
def test_bars_are_as_long_as_medians_and_show_the_spread(browser: Any, tmp_path: Path) -> None:
    open_page(browser, bench_page(outcome()), tmp_path / "bench.html")
    assert "0.80 x the time of the best peer, OpenVINO" in visible_text(browser, "h1")
    assert HOSTILE[0] in visible_text(browser, ".bars") and HOSTILE[1] in visible_text(
        browser, "article ul"
    )
    shapes = browser.execute_script(
        """const places = {};
        for (const row of document.querySelectorAll("tr[data-engine]")) {
          const place = (name) => {
            const found = row.querySelector(name);
            if (!found) return null;
            const {left, width} = found.getBoundingClientRect();
            return [left - row.querySelector(".track").getBoundingClientRect().left, width];
          };
          places[row.dataset.engine] = [place(".track"), place(".bar"), place(".spread")];
        }
        return places;"""
    )
    per_ms = shapes["byoc"][1][1] / 10.0
    for engine in ("byoc", "onnxruntime", "openvino"):
        least, middle, high = TIMES[engine]
        _, bar, spread = shapes[engine]
        assert bar == pytest.approx([0, per_ms * middle], abs=1)
        assert spread == pytest.approx([per_ms * least, per_ms * (high - least)], abs=1)
    track, bar, spread = shapes["tvm"]  # cut off where the scale ends
    assert bar[1] == pytest.approx(track[1], abs=1) and spread is None
    assert "510.0" in visible_text(browser, 'tr[data-engine="tvm"]')
    row = browser.find_element("css selector", 'tr[data-engine="openvino"]')
    assert "OpenVINO: p50 12.50 ms, min 12.00, p90 13.00, 7 runs" in row.get_attribute("title")
    assert browser.get_log("browser") == []


def test_the_heading_has_the_answer_for_each_setting() -> None:
    found = outcome()
    more = [replace(row, threads=2, p50_ms=row.p50_ms / 2) for row in found.results.rows[:2]]
    two = replace(found, results=replace(found.results, rows=[*found.results.rows, *more]))
    first = bench_page(two).partition("<h1>")[2].partition("</h1>")[0]
    assert first.endswith(
        "byoc by the best peer: 0.80 in fp32 with 1 thread, 0.50 in fp32 with 2 threads"
    )
