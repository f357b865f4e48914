"""Operators that are no layers of the zoo's networks, each alone in a file, beside other engines.

``python -m benchmarks.operators [--threads 1 2] [--rounds N] [--only TEXT] [--markdown]``

Fourier transforms, pooled and sampled images, transposed convolutions, those of volumes and those
with a computed weight. An operator is followed by another, as inside a network, so that its result
need not have the order of axes that a file's output has. Engines take turns, each in a process of
its own, and their answers are compared with ONNX Runtime's, as ``byoc bench`` does.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, parser

from benchmarks import beside_engines, harness
from byoc.bench.comparison import compare_rows
from byoc.bench.engines import ENGINES
from byoc.bench.measure import Row
from byoc.bench.tables import Sheet, in_words, milliseconds_text

#: By name: inputs, initialisers, and nodes that make y.
_FORMS: dict[str, tuple[str, dict[str, np.ndarray], str]] = {}


def _form(name: str, inputs: str, nodes: str, **constants: np.ndarray) -> None:
    _FORMS[name] = (inputs, constants, nodes)


def _volumes(size: int, inputs: int, outputs: int, stride: int = 1, group: int = 1) -> None:
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((outputs, inputs // group, 3, 3, 3)) / 9
    of = f" in {group} groups" if group > 1 else ""
    _form(
        f"conv3d 3x3x3/{stride} 16x{size}x{size} {inputs}->{outputs}{of}",
        f"float[1, {inputs}, 16, {size}, {size}] x",
        f"c = Conv<pads = [1, 1, 1, 1, 1, 1], strides = [{stride}, {stride}, {stride}],"
        f" group = {group}>(x, w) r = Relu(c) y = ReduceMean<keepdims = 0>(r, axes)",
        w=weight.astype(np.float32),
        axes=np.array([2, 3, 4]),
    )


def _transposed(*sides: int) -> None:
    """Twice as large along each side, of 64 inputs and 32 outputs."""
    taps = [3] * len(sides)
    weight = np.random.default_rng(0).standard_normal((64, 32, *taps)) / 9
    size, kernel = "x".join(map(str, sides)), "x".join(map(str, taps))
    _form(
        f"ConvTranspose {kernel}/2 {size} 64->32",
        f"float[1, 64, {', '.join(map(str, sides))}] x",
        f"c = ConvTranspose<pads = {[1] * 2 * len(sides)}, strides = {[2] * len(sides)},"
        f" output_padding = {[1] * len(sides)}>(x, w)"
        f" r = Relu(c) y = ReduceMean<keepdims = 0>(r, axes)",
        w=weight.astype(np.float32),
        axes=np.arange(2, 2 + len(sides)),
    )


def _computed_weight() -> None:
    """A weight that is multiplied by a number for each input, as StyleGAN2 modulates it."""
    weight = np.random.default_rng(0).standard_normal((128, 128, 3, 3)) / 36
    _form(
        "conv 3x3 32x32 128->128, computed weight",
        "float[1, 128, 32, 32] x, float[1, 128, 1, 1] s",
        "m = Mul(w, s) c = Conv<pads = [1, 1, 1, 1]>(x, m) r = Relu(c)"
        " y = ReduceMean<keepdims = 0>(r, axes)",
        w=weight.astype(np.float32),
        axes=np.array([2, 3]),
    )


def _resized_volumes() -> None:
    for mode in ("linear", "nearest"):
        _form(
            f"Resize {mode} x2 64x16x28x28",
            "float[1, 64, 16, 28, 28] x",
            f'a = Relu(x) v = Resize<mode = "{mode}">(a, , scales) r = Sigmoid(v)'
            " y = ReduceMax<keepdims = 0>(r, axes)",
            scales=np.array([1, 1, 2, 2, 2], np.float32),
            axes=np.array([2, 3, 4]),
        )


def _transforms() -> None:
    for length, step in ((400, 160), (1024, 256)):
        _form(
            f"STFT of 160000, {length} by {step}",
            "float[1, 160000] x",
            "s = STFT(x, step, window) y = ReduceSumSquare<keepdims = 0>(s, axes)",
            step=np.array(step),
            window=np.hanning(length).astype(np.float32),
            axes=np.array([3]),
        )
    _form(
        "DFT 512 x 768, axis 1",
        "float[1, 512, 768, 2] x",
        "s = DFT(x, length, axis) y = ReduceSumSquare<keepdims = 0>(s, axes)",
        length=np.array(512),
        axis=np.array(1),
        axes=np.array([3]),
    )


def _images() -> None:
    _form(
        "RoiAlign 1000 x 7 x 7 of 256x50x68",
        "float[1, 256, 50, 68] x, float[1000, 2] at, float[1000, 2] size",
        "a = Abs(at) b = Mul(a, by) c = Abs(size) d = Mul(c, by) e = Add(b, d)"
        " r = Concat<axis = 1>(b, e)"
        " p = RoiAlign<output_height = 7, output_width = 7, sampling_ratio = 2,"
        " spatial_scale = 0.0625>(x, r, of) y = Relu(p)",
        by=np.array(200, np.float32),
        of=np.zeros(1000, np.int64),
    )
    _form(
        "GridSample 64x128x128",
        "float[1, 64, 128, 128] x, float[1, 128, 128, 2] grid",
        "s = GridSample(x, grid) y = Relu(s)",
    )


def _write(name: str, folder: Path) -> Path:
    """The file of an operator, which is called as it is."""
    inputs, constants, nodes = _FORMS[name]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 20]> g ({inputs}) => (float[] y) {{ {nodes} }}'
    )
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.output[0].type.tensor_type.ClearField("shape")
    path = folder / (re.sub(r"\W+", "_", name) + ".onnx")
    onnx.save(model, path)
    return path


def sheet(names: Mapping[str, str], rows: Sequence[Row], threads: int) -> Sheet:
    """Min, p50 and p90 of each engine, and ours by the best other one's p50."""
    headings = (
        "operator",
        *(f"{ENGINES[name].title} ms" for name in beside_engines.ENGINES),
        "byoc / best",
    )
    ratios = {
        each.model: f"{each.ratio:.2f}" for each in compare_rows(rows) if each.threads == threads
    }
    lines = []
    for file, name in names.items():
        found = {row.engine: row for row in rows if (row.model, row.threads) == (file, threads)}
        cells = [_times(found.get(engine)) for engine in beside_engines.ENGINES]
        lines.append((name, *cells, ratios.get(file, "")))
    return Sheet(f"Operators, fp32, {in_words(threads)}", headings, lines, left=1)


def _times(row: Row | None) -> str:
    if row is None:
        return ""
    return " ".join(milliseconds_text(ms) for ms in (row.min_ms, row.p50_ms, row.p90_ms))


for _arguments in ((32, 16, 16), (28, 32, 32), (28, 64, 64), (56, 3, 32, 2), (32, 1, 16)):
    _volumes(*_arguments)
_volumes(28, 64, 64, group=64)
_volumes(28, 64, 64, group=8)
_transposed(56, 56)
_transposed(16, 28, 28)
_computed_weight()
_resized_volumes()
_transforms()
_images()


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, one for each number of threads."""
    options = harness.parser(
        "operators", __doc__ or "", markdown=True, threads=[1], rounds=5, only=""
    ).parse_args(arguments)
    asked = [name for name in _FORMS if options.only in name]
    with tempfile.TemporaryDirectory(prefix="byoc-operators-") as folder:
        names = {str(_write(name, Path(folder))): name for name in asked}
        return beside_engines.show(names, options, partial(sheet, names))


if __name__ == "__main__":
    sys.exit(main())
