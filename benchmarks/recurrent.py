"""LSTM and GRU layers, each alone in a file, beside other engines.

``python -m benchmarks.recurrent [--threads 1 2] [--rounds N] [--only TEXT] [--markdown]``

100 steps of one layer with as many inputs as units, in float32, with one row and with eight.  What
is shown is our median by the best peer's, of ONNX Runtime and OpenVINO.  Engines take turns, each
in a process of its own, and their answers are compared with ONNX Runtime's, as ``byoc bench`` does.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import beside_engines, harness
from byoc.bench.comparison import compare_rows
from byoc.bench.measure import Row
from byoc.bench.tables import Sheet, in_words

_STEPS = 100
_UNITS = (64, 128, 256, 512)
#: Blocks of the weights of each operator.
_GATES = {"LSTM": 4, "GRU": 3}


class Layer(NamedTuple):
    """A row of the table."""

    operator: str
    directions: int
    batch: int

    @property
    def title(self) -> str:
        """Its name, without the batch."""
        return self.operator + (", both directions" if self.directions == 2 else "")


_LAYERS = (
    *(Layer(operator, directions, 1) for operator in _GATES for directions in (1, 2)),
    *(Layer(operator, 1, 8) for operator in _GATES),
)


def _write(layer: Layer, units: int, folder: Path) -> Path:
    """The file of a layer: ``x[steps, batch, units]`` to ``y[steps, directions, batch, units]``."""
    draw = np.random.default_rng(0)
    rows = _GATES[layer.operator] * units
    shapes = {
        "w": (layer.directions, rows, units),
        "r": (layer.directions, rows, units),
        "b": (layer.directions, 2 * rows),
    }
    node = helper.make_node(
        layer.operator,
        ["x", *shapes],
        ["y"],
        hidden_size=units,
        direction="bidirectional" if layer.directions == 2 else "forward",
    )
    x = (_STEPS, layer.batch, units)
    y = (_STEPS, layer.directions, layer.batch, units)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [
            numpy_helper.from_array((draw.standard_normal(shape) / 16).astype(np.float32), name)
            for name, shape in shapes.items()
        ],
    )
    name = re.sub(r"\W+", "_", f"{layer.title} {layer.batch} {units}")
    path = folder / f"{name}.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), path
    )
    return path


def sheet(names: Mapping[str, tuple[Layer, int]], rows: Sequence[Row], threads: int) -> Sheet:
    """Our median by the best peer's, a row for each layer and a column for each number of units."""
    ratios = {
        names[each.model]: f"{each.ratio:.2f}"
        for each in compare_rows(rows)
        if each.threads == threads
    }
    layers = dict.fromkeys(layer for layer, _ in names.values())
    lines = [
        (layer.title, str(layer.batch), *(ratios.get((layer, units), "") for units in _UNITS))
        for layer in layers
    ]
    headings = ("layer", "batch", *(f"{units} units" for units in _UNITS))
    title = f"byoc's time by the best peer's, {_STEPS} steps, fp32, {in_words(threads)}"
    return Sheet(title, headings, lines, left=1)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, one for each number of threads."""
    options = harness.parser(
        "recurrent", __doc__ or "", markdown=True, threads=[1], rounds=3, only=""
    ).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="byoc-recurrent-") as folder:
        names = {
            str(_write(layer, units, Path(folder))): (layer, units)
            for layer in _LAYERS
            for units in _UNITS
            if options.only in f"{layer.title}, batch {layer.batch}, {units} units"
        }
        return beside_engines.show(names, options, partial(sheet, names))


if __name__ == "__main__":
    sys.exit(main())
