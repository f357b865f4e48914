"""The per-layer benchmark: which layers it finds, what it makes of them, what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from benchmarks.layers import tables
from benchmarks.layers.__main__ import main
from benchmarks.layers.engines import DEFAULT, Engine, find_engines
from benchmarks.layers.measure import Run, measure
from benchmarks.layers.network import Layer, layers_of, read_network
from byoc.accuracy import relative_error
from models.builder import GraphBuilder
from tests.reference import TOLERANCE, onnxruntime_outputs

ROOT = Path(__file__).parents[2]
ENGINES = tuple(name for name in DEFAULT if name not in ("builtin_f2", "builtin_f6"))
LABELS = ["3x3/2 12x12 8->16", "3x3/1 6x6 16->16", "1x16 * 16x4"]


def save(graph: GraphBuilder, path: Path) -> Path:
    onnx.save(graph.build(), path)
    return path


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strided convolutions, two alike with residuals, one product."""
    graph = GraphBuilder("network", seed=1)
    image = graph.input("x", (1, 8, 12, 12))
    x = graph.op("Relu", graph.conv(image, (8, 16), 3, stride=2))
    before = graph.op("Relu", graph.conv(image, (8, 16), 3, stride=2))
    for _ in range(2):
        before, x = x, graph.op("Relu", graph.op("Add", graph.conv(x, (16, 16), 3), before))
    x = graph.reshape(graph.op("GlobalAveragePool", x), (1, 16))
    product = graph.op("MatMul", x, graph.normal((16, 4), 0.1))
    graph.output(graph.op("Add", product, graph.normal((4,), 0.1)), "y", (1, 4))
    return save(graph, tmp_path_factory.mktemp("layers") / "network.onnx")


@pytest.fixture(scope="module")
def run(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The engines of the default table that are here, one round."""
    engines, absent = find_engines(ENGINES, tmp_path_factory.mktemp("engines"))
    return measure(read_network(str(network)), engines, absent, 1, 1, lambda text: None)


# ---------------------------------------------------------------- the layers


def test_layers_are_those_of_the_network(network: Path) -> None:
    found = read_network(str(network))
    assert [(layer.label, layer.epilogue, layer.count) for layer in found.layers] == [
        (LABELS[0], "bias, relu", 2),
        (LABELS[1], "bias, residual, relu", 2),
        (LABELS[2], "bias", 1),
    ]
    assert [layer.gflop for layer in found.layers] == pytest.approx(
        [2e-9 * 36 * 16 * 8 * 9, 2e-9 * 36 * 16 * 16 * 9, 2e-9 * 16 * 4]
    )
    assert [o.role for o in found.layers[1].operands] == ["input", "residual"]
    assert found.layers[0].name == "conv_0" and not found.others


def test_labels_tell_what_is_unusual() -> None:
    graph = GraphBuilder("unusual", seed=1)
    x = graph.conv(graph.input("x", (2, 8, 9, 9)), (8, 8), 5, groups=8)
    weight = graph.normal((6, 8, 3, 1), 0.1)
    y = graph.op("Conv", x, weight, pads=[2, 0, 1, 0], dilations=[2, 1], strides=[1, 2])
    y = graph.conv(y, (6, 6), 2, padding=0)
    graph.output(y, "y", (2, 6, 7, 4))
    labels = [layer.label for layer in layers_of(graph.build(), "unusual").layers]
    assert labels == [
        "5x5/1 2 x 9x9 8->8 groups 8",
        "3x1/(1,2) 2 x 9x9 8->6 dilation 2,1 pads 2,0,1,0",
        "2x2/1 2 x 8x5 6->6",
    ]


# ---------------------------------------------------------------- the engines


def odd_layers() -> list[Layer]:
    """Dilation, pads at one side, a batch, activations around a residual, groups, no bias.

    Widths have divisors that are tiles of every CPU.
    """
    graph = GraphBuilder("odd", seed=2)
    x = graph.input("x", (2, 6, 10, 10))
    x = graph.conv(x, (6, 20), 1, bias=False)
    weight = graph.normal((20, 20, 3, 3), 0.1)
    y = graph.op("Conv", x, weight, pads=[2, 1, 0, 3], dilations=[2, 1], strides=[1, 1])
    y = graph.op("Conv", y, graph.normal((20, 20, 3, 3), 0.1), pads=[2, 0, 2, 0])
    y = graph.op("Sigmoid", graph.op("Add", graph.op("Tanh", y), x))
    y = graph.op("HardSwish", graph.conv(y, (20, 20), 5, groups=20, stride=2))
    y = graph.conv(y, (20, 40), 3, groups=4)
    y = graph.op("Clip", y, graph.constant(np.float32(-0.5)), graph.constant(np.float32(0.5)))
    graph.output(y, "y", (2, 40, 5, 5))
    layers = layers_of(graph.build(), "odd").layers
    assert len(layers) == 5
    return list(layers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tvm", "te.extern", "tensorised", "builtin"])
def test_engines_compute_odd_layers(name: str, tmp_path: Path) -> None:
    from byoc.frontends.onnx.one_layer import onnx_model

    ((engine,), absent) = find_engines([name], tmp_path)
    assert not absent
    refused = []
    for index, layer in enumerate(odd_layers()):
        if reason := engine.refuses(layer.node):
            refused.append(reason)
            continue
        folder = tmp_path / str(index)
        folder.mkdir()
        candidate = engine.build(layer, folder)
        assert candidate.copies == 0
        model = byoc.load(candidate.file)
        found = list(model.run(engine.inputs(layer)).values())
        (expected,) = onnxruntime_outputs(onnx_model(layer), layer.draw_inputs()).values()
        expected = engine.laid_out(layer, "output", expected)
        assert relative_error(found, [expected]) < TOLERANCE["float32"], layer.label
    assert refused == (["groups=20; need 1", "groups=4; need 1"] if name == "tensorised" else [])


@pytest.mark.slow
def test_every_engine_agrees_with_onnxruntime(run: Run) -> None:
    assert run.failures == []
    for row in run.rows:
        for name, cell in row.cells.items():
            assert bool(cell.runs) != bool(cell.reason), (row.layer.label, name)
            assert cell.relative_error <= TOLERANCE["float32"] and cell.copies == 0
            assert not cell.runs or 0 < cell.min_ms <= cell.p50_ms
    convolution, product = run.rows[1].cells, run.rows[2].cells
    for name in {*ENGINES} - {*run.absent}:
        assert convolution[name].runs, name
    assert product["te.extern"].reason == "operator matmul; need conv2d"
    assert convolution["builtin_f4"].algorithm == "Winograd F(4, 3)"
    assert convolution["builtin_gemm"].algorithm == "implicit GEMM"
    assert run.rows[0].cells["builtin_f4"].reason.endswith("need a 3x3 convolution of stride 1")


LIBRARY = """\
from codegen_cc.libraries.builtin import BuiltinLibrary
from codegen_cc.operators import conv2d
from codegen_cc.operators.packing import FLOAT32_PANELS, pack_conv2d

class Bad(BuiltinLibrary):
    name = "layers_{name}"

    def supports(self, node):
        return super().supports(node) if node.op == "conv2d" else "need conv2d"

    def lower(self, node, builder):
        packed = pack_conv2d(node.role("weight").data, 1, FLOAT32_PANELS)
        {lower}

LIBRARY = Bad()
"""
BAD = {
    "wrong": """\
packed = builder.constant(1.01 * packed)
        conv2d.call_kernel(node, builder, "ext_conv2d", packed, [1, 1])""",
    # Winograd's algorithm has no tile of 5.
    "failing": """\
placed = conv2d.place_conv2d(node, builder, [1, 1])
        x, w, e = placed.inputs["input"], builder.constant(packed), placed.epilogue
        arguments = [placed.params, 5, x, w, e, placed.output]
        placed.call(node, builder, "ext_conv2d_winograd", arguments)""",
}


@pytest.mark.slow
def test_failures_are_told_and_the_rest_goes_on(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{name}.py" for name in BAD]
    for file in files:
        file.write_text(LIBRARY.format(name=file.stem, lower=BAD[file.stem]))
    names = ",".join(map(str, files))
    options = ["--only", LABELS[1], "--rounds", "1", "--json"]
    assert main(["--model", str(network), *options, "--engines", "builtin", names]) == 1
    captured = capsys.readouterr()
    (layer,) = json.loads(captured.out)["layers"]
    results = layer["results"]
    assert results["builtin"]["runs"] > 0 and layer["best"] == "builtin"
    assert results["layers_wrong"]["failed"] and results["layers_failing"]["failed"]
    assert "differs from ONNX Runtime by" in results["layers_wrong"]["reason"]
    assert "layers_failing" in results["layers_failing"]["reason"]
    errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == ["layers_wrong", "layers_failing"]


# ---------------------------------------------------------------- what is printed


def test_json_has_the_documented_keys(run: Run) -> None:
    found = json.loads(json.dumps(tables.to_json(run)))
    assert {"model", "threads", "machine", "engines", "absent", "layers", "totals"} <= set(found)
    assert found["engines"] == [name for name in ENGINES if name not in run.absent]
    assert found["machine"]["peak_gflops"] > 0 and "TVM" in found["machine"]["versions"]
    assert [layer["label"] for layer in found["layers"]] == LABELS
    result = found["layers"][0]["results"]["builtin"]
    assert {"min_ms", "p50_ms", "runs", "gflops", "share_of_peak", "algorithm"} <= set(result)
    gflops = found["layers"][0]["gflop"] / result["min_ms"] * 1e3
    assert result["gflops"] == pytest.approx(gflops)
    assert result["share_of_peak"] == pytest.approx(gflops / found["machine"]["peak_gflops"])
    convolutions, products = found["totals"]
    assert (convolutions["kind"], convolutions["count"]) == ("convolutions", 4)
    times = [layer["results"]["builtin"]["min_ms"] for layer in found["layers"]]
    assert convolutions["milliseconds"]["builtin"] == pytest.approx(2 * times[0] + 2 * times[1])
    assert "tensorised" not in products["milliseconds"]


def test_tables_mark_the_fastest(run: Run) -> None:
    main_table, algorithms = tables.tables(run)
    _, headings, rows = main_table
    titles = [engine.title for engine in run.engines if not engine.name.startswith("builtin_")]
    assert headings == ["layer", "with", "count", "GFLOP", *titles]
    assert [row[0] for row in rows[:3]] == LABELS and rows[3][0] == "all convolutions, with counts"
    for layer, row in zip(run.rows, rows, strict=False):
        times = {e.title: layer.cells[e.name].min_ms for e in run.engines if e.title in titles}
        best = min((t for t, ms in times.items() if ms), key=times.__getitem__)
        assert [title for title, cell in zip(titles, row[4:], strict=True) if "**" in cell] == [
            best
        ]
    assert algorithms[1][4:] == ["implicit GEMM", "Winograd F(4, 3)", "builtin chose"]
    assert [row[0] for row in algorithms[2]] == [LABELS[1]]


def test_the_page_names_its_command_and_what_is_absent(run: Run) -> None:
    lacking = replace(run, absent={"onednn": "no oneapi/dnnl/dnnl.h"})
    page = tables.markdown(lacking, "python -m benchmarks.layers --markdown")
    assert "`python -m benchmarks.layers --markdown` printed this page" in page
    assert "- onednn is absent: no oneapi/dnnl/dnnl.h" in page
    assert "- te.extern does not compute 1 of the layers: operator matmul; need conv2d" in page
    for engine in run.engines:
        assert f"- *{engine.title}*: {engine.meaning}" in page
    assert "always with one algorithm (Winograd F(4, 3))." in page
    rows = [line for line in page.splitlines() if line.startswith(f"| {LABELS[0]} |")]
    assert len(rows) == 1 and rows[0].count("|") == 5 + len(plain(run.engines))


def plain(engines: tuple[Engine, ...]) -> list[Engine]:
    return [engine for engine in engines if not engine.name.startswith("builtin_")]


@pytest.mark.slow
def test_absent_libraries_are_named(network: Path, tmp_path: Path) -> None:
    nowhere = {name: str(tmp_path / "nowhere") for name in ("CBLAS_ROOT", "ONEDNN_ROOT")}
    command = [sys.executable, "-m", "benchmarks.layers", "--model", str(network)]
    options = ["--engines", "builtin", "cblas", "onednn", "--only", LABELS[0], "--rounds", "1"]
    done = subprocess.run(
        [*command, *options],
        env=os.environ | nowhere,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "FMA peak of a core, measured: " in lines[0] and lines[1].startswith("fp32, 1 thread; ")
    for name in ("cblas", "onednn"):
        assert [line for line in lines if line.startswith(f"{name} is absent: kernel library")]
    (table,) = [line for line in lines if LABELS[0] in line]
    assert "%) *" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nothing"], "no model 'nothing'; need an ONNX file or one of resnet50,"),
        (["--engines", "nothing"], "no kernel library is called 'nothing'"),
        (["--only", "9x9"], "has '9x9' in its label"),
        (["--input-shapes", "x:[1,"], "--input-shapes: cannot read"),
    ],
)
def test_bad_arguments_are_one_line(
    network: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = [] if "--model" in arguments else ["--model", str(network)]
    assert main([*model, *arguments]) == 2
    (line,) = [text for text in capsys.readouterr().err.splitlines() if text.strip()]
    assert line.startswith("error: ") and message in line


def test_the_page_in_docs_is_of_the_default_run() -> None:
    page = (ROOT / "docs" / "layers.md").read_text(encoding="utf-8")
    assert page.startswith("# Every layer of ResNet-50 v1.5, each way to its kernel\n")
    assert "<!-- Written by `python -m benchmarks.layers" in page
    (headings,) = [line for line in page.splitlines() if "plain TVM |" in line]
    titles = ["plain TVM", "te.extern", "tensorised", "builtin", "cblas", "onednn"]
    assert headings == f"| layer | with | count | GFLOP | {' | '.join(titles)} |"
    assert "\n| 7x7/2 224x224 3->64 | bias, relu | 1 |" in page
    assert "\n| all convolutions, with counts |  | 53 |" in page and "failed" not in page
