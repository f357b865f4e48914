"""A profile as a page in a browser, and as a trace: calls with names and times, threads, roofs."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from byoc.bench.profile import Profile, profile
from byoc.bench.profile_page import profile_page, trace_text
from byoc.bench.roofs import Roofs, precision_of
from byoc.bench.subjects import Subject
from byoc.cli import main
from byoc.machine import usable_cores
from codegen_cc.emit.timers import ROOM, WHOLE
from tests.ir.test_unroll import WEIGHTS, loop_model, recurrence

from .browser import open_page, visible_text
from .networks import HOSTILE, model_of

THREADS = min(2, len(usable_cores()))
TITLE = f"net {HOSTILE[0]}"
#: A product has rows x 256 x 256 multiply-accumulates: enough that several workers take part.
ROWS = 512
#: No launch waits for a worker whose core another process has: so often is it given a chance.
TRIES = 10


@pytest.fixture(scope="module")
def found() -> Profile:
    """Products with hostile names, each with a Softmax behind it that stays with TVM.

    Between the last two are operators of other kernels.
    """
    weight = np.eye(256, dtype=np.single)
    nodes, value = [], "x"
    for index, name in enumerate(HOSTILE):
        nodes.append(helper.make_node("MatMul", [value, "w"], [f"a{index}"], name=name))
        value = f"b{index}"
        nodes.append(helper.make_node("Softmax", [f"a{index}"], [value], name=f"S {name}"))
    mean = helper.make_node("ReduceMean", [f"a{index}"], ["mean"], name="mean", axes=[1])
    nodes[-1:-1] = [mean, helper.make_node("Sub", [f"a{index}", "mean"], ["centred"], name="sub")]
    nodes[-1].input[0] = "centred"
    model = model_of(nodes, [ROWS, 256], value, {"w": weight})
    inputs = {"x": np.zeros((ROWS, 256), np.single)}
    compiling: Any = {"skip_ops": ["softmax"]}
    subject = Subject("net", TITLE, model, inputs)
    for _ in range(TRIES):
        found = profile(subject, THREADS, runs=3, compiling=compiling, with_roofs=True)
        if THREADS == 1 or {w for _, w, *_ in found.timeline.spans} > set(range(THREADS)):
            break
    return found


@pytest.fixture
def page(browser: Any, found: Profile, tmp_path: Path) -> Any:
    open_page(browser, profile_page(found), tmp_path / "profile.html")
    for script in ("ready", "profile"):
        assert browser.execute_script(f"return document.documentElement.dataset.{script}") == "true"
    yield browser
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_every_call_of_every_region_is_there(found: Profile) -> None:
    assert len(found.report.regions) == len(HOSTILE) == len(found.report.left)
    products = [call for call in found.calls if call.macs]
    assert [call.macs for call in products] == [ROWS * 256 * 256] * len(HOSTILE)
    assert {call.precision for call in products} == {"fp32"} == set(found.roofs.gflops)
    # Operands once: x, the weights, the result, four bytes each.
    assert products[0].intensity == 2 * ROWS * 256 * 256 / (4 * (2 * ROWS * 256 + 256 * 256))
    # Medians of calls may add up to more than the median of runs; what is left of a run is above 0.
    assert 0 < found.outside_ms < found.whole_ms


def test_spans_are_inside_of_what_launched_them(found: Profile) -> None:
    line = found.timeline
    assert line.dropped == 0
    whole = {call: (begin, end) for call, worker, begin, end in line.spans if worker == WHOLE}
    assert whole.keys() == set(range(len(found.calls)))
    ordered = sorted(whole.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ordered))
    assert ordered[0][0] > 0 and ordered[-1][1] < line.milliseconds
    parts = [span for span in line.spans if span[1] != WHOLE]
    assert {worker for _, worker, *_ in parts} == (set(range(THREADS)) if THREADS > 1 else set())
    for call, _, begin, end in parts:
        assert whole[call][0] <= begin <= end <= whole[call][1]


@pytest.mark.slow
def test_page_shows_every_call_with_its_name_and_time(page: Any, found: Profile) -> None:
    rows = page.find_elements("css selector", "#calls tbody tr")
    assert len(rows) == len(found.calls)
    texts = page.execute_script("return [...arguments[0]].map((row) => row.innerText)", rows)
    for text, call in zip(texts, found.calls, strict=True):
        assert call.name in text and f"{call.milliseconds:.4f}" in text
    heading = visible_text(page, "h1")
    assert f"{found.whole_ms:.3f} ms" in heading and f"{len(found.calls)} kernel calls" in heading
    assert "matmul_packed" in visible_text(page, "#by-kernel")


@pytest.mark.slow
def test_names_of_the_model_are_only_shown(page: Any, found: Profile) -> None:
    assert page.title.startswith(TITLE) and visible_text(page, ".model") == TITLE
    page.find_element("css selector", "#calls tbody tr").click()
    selected = visible_text(page, "#selected")
    assert HOSTILE[0] in selected
    first = sum(call.milliseconds for call in found.calls if call.region == "ext_main_0")
    assert f"time  {first:.4f} ms" in selected


def hover(page: Any, selector: str) -> str:
    """What the tip says while the mouse is on the first such shape."""
    page.execute_script(
        """const shape = document.querySelector(arguments[0]);
        shape.scrollIntoView({block: "center"});
        const {left, top} = shape.getBoundingClientRect();
        shape.dispatchEvent(new MouseEvent("mousemove", {clientX: left, clientY: top}));""",
        selector,
    )
    return visible_text(page, "#tip")


def test_timeline_has_a_bar_for_every_span(page: Any, found: Profile) -> None:
    read = """return [...document.querySelectorAll("#lanes .span")].map((shape) =>
        ["data-call", "data-worker", "x", "width", "y"].map((a) => +shape.getAttribute(a)))"""
    bars = page.execute_script(read)
    assert [tuple(bar[:2]) for bar in bars] == [span[:2] for span in found.timeline.spans]
    assert len({bar[4] for bar in bars}) == len({span[1] for span in found.timeline.spans})
    spans = found.timeline.spans
    slowest = max(range(len(spans)), key=lambda index: spans[index][3] - spans[index][2])
    per_ms = bars[slowest][3] / (spans[slowest][3] - spans[slowest][2])
    for bar, (_, _, begin, _) in zip(bars, spans, strict=True):
        assert bar[2] - bars[0][2] == pytest.approx(per_ms * (begin - spans[0][2]), abs=0.1)
    page.find_element("id", "wider").click()
    assert page.execute_script(read)[slowest][3] > 1.9 * bars[slowest][3]
    last = max(range(len(found.calls)), key=lambda index: found.calls[index].milliseconds)
    tip = hover(page, f'#lanes .span[data-call="{last}"][data-worker="{WHOLE}"]')
    call = found.calls[last]
    assert call.name in tip and f"{call.milliseconds:.4f} ms" in tip


def test_roofline_has_a_dot_for_every_call_that_multiplies(page: Any, found: Profile) -> None:
    products = [index for index, call in enumerate(found.calls) if call.macs]
    dots = page.find_elements("css selector", "#roofline circle.call")
    assert [int(dot.get_attribute("data-call")) for dot in dots] == products
    texts = visible_text(page, "#roofline")
    assert "flop per byte" in texts and "fp32 " in texts and "read " in texts
    tip = hover(page, f'#roofline circle[data-call="{products[0]}"]')
    assert found.calls[products[0]].name in tip and "GFLOP/s at" in tip
    # The slope ends where the peak begins.
    slope, peak = (
        page.execute_script(
            "const at = document.querySelector(arguments[0]);"
            "return ['x1', 'y1', 'x2', 'y2'].map((name) => +at.getAttribute(name))",
            f"#roofline .{name}",
        )
        for name in ("slope", "peak")
    )
    assert slope[2:] == pytest.approx(peak[:2])


def test_dots_and_spans_have_the_colours_of_their_kernels(page: Any, found: Profile) -> None:
    """As the table of kernels shows them."""
    key = page.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#by-kernel .swatch')].map("
        "(at) => [at.dataset.kernel, getComputedStyle(at).backgroundColor]))"
    )
    assert key.keys() == {call.kernel for call in found.calls}
    assert len(set(key.values())) == len(key) > 1
    for shapes in ("#roofline .call", "#lanes .span"):
        drawn = page.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map("
            "(at) => [+at.dataset.call, getComputedStyle(at).fill])",
            shapes,
        )
        assert drawn and all(key[found.calls[call].kernel] == colour for call, colour in drawn)


def test_boxes_have_the_colours_of_their_times(page: Any, found: Profile) -> None:
    colours = page.execute_script(
        "return Object.fromEntries(partition.cy.nodes().map("
        "(node) => [node.data('index'), node.data('colour')]))"
    )
    boxes = found.report.graph.nodes
    assert any(colours[str(i)].startswith("hsl(0,") for i in range(len(boxes)))  # the slowest: red
    for index, node in enumerate(boxes):
        assert colours[str(index)].startswith("hsl") == (node.kind == "offloaded")


def test_trace_is_in_chromes_format(found: Profile) -> None:
    trace = json.loads(trace_text(found))
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    workers = range(THREADS) if THREADS > 1 else ()
    assert names == {0: "network", **{worker + 1: f"worker {worker}" for worker in workers}}
    complete = [event for event in events if event["ph"] == "X"]
    assert {"name", "ph", "pid", "tid", "ts", "dur"} <= set.intersection(*map(set, complete))
    (run,) = [event for event in complete if event["cat"] == "run"]
    assert run["name"] == TITLE and run["dur"] == pytest.approx(1e3 * found.timeline.milliseconds)
    calls = [event for event in complete if event["cat"] == "kernel" and event["tid"] == 0]
    assert [event["args"]["region"] for event in calls] == [call.region for call in found.calls]
    assert all(0 <= event["ts"] <= run["dur"] - event["dur"] + 1e-3 for event in complete)


@pytest.mark.slow
def test_a_run_of_more_spans_than_there_is_room_for_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop calls its region once a round; later calls have their times, and no span."""
    rounds = ROOM + 100
    weights = WEIGHTS | {"rounds": np.array(rounds)}
    onnx.save(loop_model(recurrence()[:2], weights, scanned=False), tmp_path / "loop.onnx")
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    written = ["--html", str(page), "--trace", str(trace)]
    assert main(["profile", str(tmp_path / "loop.onnx"), "--runs", "1", *written]) == 0
    said = re.search(
        r"timeline is cut off: (\d+) later spans found no room", capsys.readouterr().err
    )
    assert said is not None
    dropped = int(said[1])
    found = json.loads(trace.read_text())
    kernels = [event for event in found["traceEvents"] if event.get("cat") == "kernel"]
    assert len(kernels) == ROOM and found["otherData"]["dropped"] == dropped
    # One span a call, on one thread: every round has as many calls.
    assert dropped >= 100 and (dropped + ROOM) % rounds == 0
    line = f"{dropped} later spans found no room: a region keeps {ROOM} of a run"
    (cut,) = [event for event in found["traceEvents"] if event["ph"] == "i"]
    (run,) = [event for event in found["traceEvents"] if event.get("cat") == "run" and event != cut]
    assert cut["name"] == line and cut["ts"] == run["dur"]
    assert line in page.read_text()


def test_roofs_bound_by_the_lower_of_the_two() -> None:
    roofs = Roofs(2, {"fp32": 100.0}, 10.0)
    assert [roofs.at("fp32", intensity) for intensity in (1.0, 10.0, 50.0)] == [10.0, 100.0, 100.0]
    assert roofs.at("int8", 1.0) is None
    assert precision_of("bfloat16", "ext_conv2d_bf16x3") == "bf16x3"
    assert precision_of("uint8", "ext_qconv2d") == "int8" and precision_of("float64", "f") == ""


def test_pages_are_written_whole_and_over_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, page = tmp_path / "m.onnx", tmp_path / "page.html"
    onnx.save(loop_model(recurrence()[:2], WEIGHTS | {"rounds": np.array(3)}, scanned=False), model)
    before = model.read_bytes()
    (tmp_path / "link.html").symlink_to(page)
    for verb, *files in (
        ("profile", "--html", model),
        ("profile", "--trace", model),
        ("profile", "--html", page, "--trace", tmp_path / "link.html"),
        ("partition", "--html", model),
        ("compare", "--html", model),
        ("bench", "--html", model),
    ):
        assert main([verb, str(model), *map(str, files)]) == 2
        assert "the command names it twice; give another file" in capsys.readouterr().err
    assert model.read_bytes() == before and not page.exists()
    assert main(["partition", str(model), "--html", str(tmp_path / "link.html")]) == 0
    assert "</html>" in page.read_text() and (tmp_path / "link.html").is_symlink()
    assert main(["partition", str(model), "--html", "/dev/full"]) == 2
    assert "cannot write /dev/full: No space left on device" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "page.html", "link.html"}


def test_a_file_that_cannot_be_written_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--html", "--trace"):
        assert main(["profile", "nothing.onnx", option, str(tmp_path / "none" / "file")]) == 2
        assert "there is no folder" in capsys.readouterr().err
