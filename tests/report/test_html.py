"""The HTML report: safe with any name, and as a browser shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.frontends.onnx import import_onnx, prepare
from byoc.report import Report
from byoc.report.html import embedded_json
from tests.layer_errors.networks import WRONG, perceptron

from .browser import open_page, visible_text
from .networks import HOSTILE, hostile_model, residual_model


def report_of(model: Any, **rules: Any) -> Report:
    return partition_with_report(import_onnx(prepare(model)), **rules)[1]


@pytest.fixture(scope="module")
def hostile() -> Report:
    return report_of(hostile_model(), skip_ops=["sigmoid"])


def test_hostile_names_arrive_as_they_are(hostile: Report) -> None:
    names = [left.name for left in hostile.left]
    assert names == [f"Sigmoid {name}" for name in HOSTILE]
    offloaded = [node.name for node in hostile.graph.nodes if node.kind == "offloaded"]
    assert offloaded == [f"MatMul {name}" for name in HOSTILE]


def test_page_holds_no_raw_name(hostile: Report) -> None:
    page = hostile.to_html('title </title><script>"')
    assert "injected" in page
    assert "<script>throw" not in page and "<img" not in page and "</title><script>" not in page
    assert "http://" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    names = {node["name"] for node in json.loads(data[1])["nodes"]}
    assert {f"MatMul {name}" for name in HOSTILE} <= names


def test_embedded_json_cannot_end_its_element() -> None:
    text = "</script><!-- \u2028 & \\"
    written = embedded_json({text: text})
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == {text: text}


# ---------------------------------------------------------------------- in a browser


def show(browser: Any, report: Report, folder: Path, name: str = "report") -> None:
    """Open a report; its script must have run to its end, and nothing may be on the console."""
    open_page(browser, report.to_html(name), folder / f"{name}.html")
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"


def colours_in(browser: Any, selector: str) -> int:
    """How many colours the canvases in an element show: one if nothing is drawn."""
    script = """
        const seen = new Set();
        for (const canvas of document.querySelectorAll(arguments[0] + " canvas")) {
          const {width, height} = canvas;
          const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          for (let i = 0; i < pixels.length; i += 4 * 7)
            seen.add(pixels[i] + "," + pixels[i + 1] + "," + pixels[i + 2]);
        }
        return seen.size;"""
    browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 200))")
    return browser.execute_script(script, selector)


def colours_in_screenshot(browser: Any, selector: str) -> int:
    """How many colours a picture of the window has where an element is, all of it in view."""
    script = """
        const [picture, selector, done] = arguments;
        const {left, top, right, bottom} = document.querySelector(selector).getBoundingClientRect();
        if (left < 0 || top < 0 || right > innerWidth + 1 || bottom > innerHeight + 1)
          return done(`not in view: ${[left, top, right, bottom, innerWidth, innerHeight]}`);
        const image = new Image();
        image.onload = () => {
          const canvas = document.createElement("canvas");
          const scale = image.width / innerWidth;
          canvas.width = (right - left) * scale;
          canvas.height = (bottom - top) * scale;
          const context = canvas.getContext("2d");
          context.drawImage(image, -left * scale, -top * scale);
          const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let i = 0; i < pixels.length; i += 4)
            seen.add(pixels[i] + "," + pixels[i + 1] + "," + pixels[i + 2]);
          done(seen.size);
        };
        image.src = "data:image/png;base64," + picture;"""
    found = browser.execute_async_script(script, browser.get_screenshot_as_base64(), selector)
    assert isinstance(found, int), f"{selector} is {found}"
    return found


@pytest.mark.slow
def test_network_of_300_operators(browser: Any, tmp_path: Path) -> None:
    report = report_of(residual_model(50), skip_ops=["softmax"])
    assert report.operators == 300 and len(report.left) == 5
    show(browser, report, tmp_path)
    assert visible_text(browser, "h1") == report.summary()
    assert "skipped by operator relax.nn.softmax" in visible_text(browser, "#left")
    assert "/block9/Softmax" in visible_text(browser, "#left")
    for region in report.regions:
        assert region.name in visible_text(browser, "#regions")
    assert colours_in(browser, "#graph") > 5
    # Letters have smooth edges: a table in view has many colours, an empty one its lines' alone.
    for part in ("#graph", "#regions", "#left", "#left td:last-child"):
        assert colours_in_screenshot(browser, part) > 10, part
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_search_and_selection(browser: Any, tmp_path: Path) -> None:
    show(browser, report_of(residual_model(20), skip_ops=["softmax"]), tmp_path)
    field = browser.find_element("id", "search")
    field.send_keys("skipped by")
    assert visible_text(browser, "#found") == "1 of 2"
    assert "/block9/Softmax" in visible_text(browser, "#selected")
    browser.find_element("id", "next").click()
    assert visible_text(browser, "#found") == "2 of 2"
    assert "/block19/Softmax" in visible_text(browser, "#selected")
    field.clear()
    field.send_keys("ext.matmul_relu")
    selected = visible_text(browser, "#selected")
    for text in ("/block0/MatMul + /block0/Relu", "float32[4, 16]", "builtin", "ext_main_0"):
        assert text in selected
    browser.find_element("css selector", "#left tbody tr").click()
    assert "skipped by operator" in visible_text(browser, "#selected")
    assert browser.get_log("browser") == []


def test_tooltip_tells_shapes_composite_kernel_and_reason(browser: Any, tmp_path: Path) -> None:
    show(browser, report_of(residual_model(10), skip_ops=["softmax"]), tmp_path)

    def hover(kind: str) -> str:
        browser.execute_script(
            """const node = partition.cy.nodes(arguments[0])[0];
            partition.cy.zoom(1); partition.cy.center(node);
            node.emit({type: "mouseover", originalEvent: {clientX: 200, clientY: 200}});""",
            kind,
        )
        return visible_text(browser, "#tip")

    offloaded = hover(".offloaded")
    for text in ("ext.matmul", "float32[4, 16]", "builtin: matmul", "ext_main_0", "/block0/MatMul"):
        assert text in offloaded
    left = hover(".left")
    for text in ("relax.nn.softmax", "skipped by operator", "/block9/Softmax", "TVM"):
        assert text in left


@pytest.mark.slow
def test_errors_colour_the_drawing(browser: Any, tmp_path: Path) -> None:
    found = byoc.compare(perceptron(), libraries=["builtin", f"fc1={WRONG}"])
    show(browser, found, tmp_path)
    assert visible_text(browser, "h1") == found.summary() and "most by fc1" in found.summary()
    colours = browser.execute_script(
        "return Object.fromEntries(partition.cy.nodes().map("
        "(node) => [node.data('label'), node.data('colour')]))"
    )
    assert colours["matmul\nfc1"].startswith("hsl(0,")  # red
    others = [colour for label, colour in colours.items() if "fc" in label and "fc1" not in label]
    assert len(others) == 3 and all(colour.startswith("hsl(1") for colour in others)  # green
    assert "own error 1e-07" in visible_text(browser, "#legend")
    browser.find_element("css selector", "#errors tbody tr").click()
    selected = visible_text(browser, "#selected")
    assert "fc1" in selected and f"own {found.worst[0].own.share:.1e}" in selected
    assert browser.get_log("browser") == []


def test_hostile_names_do_nothing_but_show(browser: Any, tmp_path: Path, hostile: Report) -> None:
    show(browser, hostile, tmp_path)
    text = visible_text(browser, "#left")
    assert "<img src=x onerror=alert(1)>" in text and "{{ 7*7 }}" in text
    browser.find_element("id", "search").send_keys("</script>")
    assert visible_text(browser, "#found") == "1 of 2"
    assert HOSTILE[0] in visible_text(browser, "#selected")
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_thousand_nodes_open_in_seconds(browser: Any, tmp_path: Path) -> None:
    report = report_of(residual_model(330), skip_ops=["softmax"])
    assert len(report.graph.nodes) > 1000
    show(browser, report, tmp_path)
    milliseconds = browser.execute_script("return partition.milliseconds")
    # No measurement: the limit is a minute's fraction that a broken layout would pass by far.
    assert milliseconds < 30_000
    assert colours_in(browser, "#graph") > 5
