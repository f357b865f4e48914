"""How partitioning and code generation grow with a network's depth.

``python -m benchmarks.growth`` prints seconds of CPU time per stage for 100, 300 and 1000
layers, and the exponent of the growth between the last two (1 is linear). A layer is an operator
with weights: a convolution with BatchNorm and ReLU, every second one with a residual; one of the
six products with weights of a transformer block; or one of many convolutions side by side.
``--passes`` splits partitioning into its passes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.table import Table

from benchmarks import harness

LAYERS = (100, 300, 1000)
WIDTH = 8  # channels: what weights cost is not asked here
HEADS = 2
TOKENS = 4


class _Graph:
    """Collects nodes and weights; the models of the zoo are not part of the package."""

    def __init__(self, shape: list[int]) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(self, *shape: int) -> str:
        values = self._random.uniform(0.1, 1.0, shape).astype("float32")
        return self.constant(values)

    def constant(self, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values, f"weight_{len(self.weights)}"))
        return self.weights[-1].name

    def model(self, result: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "deep", [x], [y], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def convolutions(layers: int) -> onnx.ModelProto:
    """3x3 convolutions with BatchNorm and ReLU; every second one adds what came in before."""
    graph = _Graph([1, WIDTH, 6, 6])
    x = shortcut = "x"
    for layer in range(layers):
        y = graph.op("Conv", x, graph.weight(WIDTH, WIDTH, 3, 3), pads=[1] * 4)
        y = graph.op("BatchNormalization", y, *(graph.weight(WIDTH) for _ in range(4)))
        if layer % 2:
            y = graph.op("Add", y, shortcut)
        x = graph.op("Relu", y)
        if layer % 2:
            shortcut = x
    return graph.model(x)


def transformer(layers: int) -> onnx.ModelProto:
    """Pre-norm transformer blocks: attention of two heads and an MLP with GELU."""
    graph = _Graph([1, TOKENS, WIDTH])
    x = "x"
    for _ in range(max(1, layers // 6)):
        x = graph.op("Add", x, _attention(graph, _norm(graph, x)))
        y = _linear(graph, _norm(graph, x), WIDTH, 2 * WIDTH)
        half = graph.op("Mul", y, graph.constant(np.float32(0.5)))
        scaled = graph.op("Mul", y, graph.constant(np.float32(math.sqrt(0.5))))
        one = graph.op("Add", graph.op("Erf", scaled), graph.constant(np.float32(1)))
        y = _linear(graph, graph.op("Mul", half, one), 2 * WIDTH, WIDTH)
        x = graph.op("Add", x, y)
    return graph.model(x)


def _norm(graph: _Graph, x: str) -> str:
    return graph.op("LayerNormalization", x, graph.weight(WIDTH), graph.weight(WIDTH), axis=-1)


def _linear(graph: _Graph, x: str, inputs: int, outputs: int) -> str:
    return graph.op(
        "Add", graph.op("MatMul", x, graph.weight(inputs, outputs)), graph.weight(outputs)
    )


def _attention(graph: _Graph, x: str) -> str:
    size = WIDTH // HEADS
    apart = graph.constant(np.array([1, TOKENS, HEADS, size], "int64"))
    together = graph.constant(np.array([1, TOKENS, WIDTH], "int64"))
    query, key, value = (
        graph.op(
            "Transpose", graph.op("Reshape", _linear(graph, x, WIDTH, WIDTH), apart), perm=perm
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = graph.op("Div", graph.op("MatMul", query, key), graph.constant(np.float32(size**0.5)))
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    joined = graph.op("Reshape", graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), together)
    return _linear(graph, joined, WIDTH, WIDTH)


def branches(layers: int) -> onnx.ModelProto:
    """Convolutions side by side that read one image, all alive until they are multiplied."""
    graph = _Graph([1, WIDTH, 6, 6])
    parts = [
        graph.op("Relu", graph.op("Conv", "x", graph.weight(WIDTH, WIDTH, 1, 1)))
        for _ in range(layers)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = graph.op("Mul", total, part)
    return graph.model(total)


NETWORKS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "convolutions": convolutions,
    "transformer": transformer,
    "branches": branches,
}


def measure(model: onnx.ModelProto, passes: bool = False, code: bool = True) -> dict[str, float]:
    """Seconds per stage, those that make ``code`` included, and by name what came of it.

    The model is not simplified: it is written as it would be after that.
    """
    from byoc.compiler.partition import partition_with_report
    from byoc.frontends.onnx import import_onnx
    from codegen_cc.emit.source import emit_source
    from codegen_cc.module import plan_functions

    times: dict[str, float] = {}
    begin = time.process_time()
    module = import_onnx(model)
    times["import (TVM)"] = time.process_time() - begin
    begin = time.process_time()
    module, report = partition_with_report(module)
    times["partition"] = time.process_time() - begin
    counts = {"operators": report.operators, "regions": len(report.regions)}
    if not code:
        return {**counts, **times}
    regions = [f for f in module.functions.values() if (f.attrs or {}).get("Codegen") == "ext"]
    begin = time.process_time()
    plans = plan_functions(regions)
    times["plan"] = time.process_time() - begin
    begin = time.process_time()
    emit_source(plans)
    times["emit"] = time.process_time() - begin
    if passes:
        times |= _passes(model)
    calls = sum(len(plan.calls) for plan in plans)
    return {**counts, "kernel calls": calls, **times}


def _passes(model: onnx.ModelProto) -> dict[str, float]:
    """Seconds per pass of the partitioner, alone."""
    from byoc.canonicalise import canonicalise
    from byoc.frontends.onnx import import_onnx
    from byoc.partition.annotate import annotate
    from byoc.partition.detach_constants import detach_constants
    from byoc.partition.merge import merge
    from byoc.partition.prune import prune

    times: dict[str, float] = {}
    module = import_onnx(model)
    for run in (canonicalise, annotate, merge, prune, detach_constants):
        begin = time.process_time()
        module = run(module)
        times[f"  {run.__name__}"] = time.process_time() - begin
    return times


def growth(times: dict[int, dict[str, float]]) -> dict[str, float]:
    """The exponent e of seconds ~ layers^e, from the two greatest depths."""
    small, great = sorted(times)[-2:]
    return {
        stage: math.log(times[great][stage] / seconds) / math.log(great / small)
        for stage, seconds in times[small].items()
        if isinstance(seconds, float) and seconds > 0 and times[great][stage] > 0
    }


def _table(name: str, times: dict[int, dict[str, float]]) -> Table:
    exponents = growth(times) if len(times) > 1 else {}
    rows = []
    for stage in next(iter(times.values())):
        values = [row[stage] for row in times.values()]
        cells = [f"{v:.2f}" if isinstance(v, float) else str(v) for v in values]
        rows.append([stage, *cells, f"n^{exponents[stage]:.2f}" if stage in exponents else ""])
    headings = ("layers", *map(str, times), "growth")
    return harness.table(f"{name}: CPU seconds per stage", headings, rows)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure and print."""
    parser = harness.parser("growth", __doc__)
    parser.add_argument("--network", choices=list(NETWORKS), help="one of them only")
    parser.add_argument("--layers", type=int, nargs="+", default=list(LAYERS), metavar="N")
    parser.add_argument("--passes", action="store_true", help="times of single passes as well")
    options = parser.parse_args(arguments)
    found = {}
    for name in [options.network] if options.network else NETWORKS:
        measure(NETWORKS[name](10))  # what is imported at first use is not counted
        found[name] = {n: measure(NETWORKS[name](n), options.passes) for n in options.layers}
        if not options.json:
            harness.show([_table(name, found[name])])
    if options.json:
        harness.show_json(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
