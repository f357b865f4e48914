"""A decoder's prompts and steps beside peers, a plain read of memory and the plain products.

``python -m benchmarks.generate [--model NAME] [--forms NAME ...] [--threads N ...] [--past N ...]``

A step reads every weight of a product once, and the cache: it is measured beside a plain read of as
many bytes (``ext_bench_read``), and ``share`` is its speed in times of that.  A prompt is measured
beside the products alone, of each layer once for all layers, compiled as networks of their own:
those by weights, and those with the products of attention, of all tokens by all, as well.  All
sit in processes of their own and take turns (``byoc.bench.generate``).

``--folder`` keeps models and libraries; with ``--build`` they are made, and nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
import onnx

from benchmarks import harness
from byoc.bench.decoders import Decoder
from byoc.bench.engines import ENGINES
from byoc.bench.generate import Entrant, Plan, Row, compile_decoder, engine_entrant, race
from byoc.bench.precision import FP32, PRECISIONS
from byoc.bench.tables import Sheet
from byoc.errors import AxesNote, BenchmarkError
from byoc.machine import cpu_name
from models.builder import GraphBuilder
from models.decoder import Shape, llama
from models.weight_only import weight_only

#: Decoders by name: those of the builder, with the sizes of the originals. ``tiny`` is for tests.
MODELS: dict[str, dict[str, int]] = {
    "qwen2-0.5b": {
        **{"layers": 24, "hidden": 896, "heads": 14, "groups": 2, "inner": 4864},
        **{"vocabulary": 151936, "biased": True},
    },
    "qwen2-8-layers": {
        **{"layers": 8, "hidden": 896, "heads": 14, "groups": 2, "inner": 4864},
        **{"vocabulary": 32000, "biased": True},
    },
    "tiny": {
        **{"layers": 2, "hidden": 32, "heads": 4, "groups": 2, "inner": 64, "vocabulary": 64},
    },
}


@dataclass(frozen=True)
class Form:
    """How weights are stored: bits of a file's (0: as they are), and the precision of ours.

    ``tolerance`` is the greatest difference from ONNX Runtime on the same file.
    """

    bits: int = 0
    precision: str = "fp32"
    tolerance: float = PRECISIONS["fp32"].tolerance

    @property
    def file(self) -> str:
        """The name of the model."""
        return f"model{self.bits or ''}.onnx"


FORMS = {
    "fp32": Form(),
    "bf16": Form(precision="bf16", tolerance=PRECISIONS["bf16"].tolerance),
    # Peers round data, or sums, to fewer bits than ours where weights alone are quantised.
    "int8": Form(bits=8, tolerance=PRECISIONS["bf16"].tolerance),
    "4-bit": Form(bits=4, tolerance=PRECISIONS["bf16"].tolerance),
    # The same with data rounded to bytes, as OpenVINO's are where nobody tells it otherwise.
    "int8-data": Form(8, "int8-data", PRECISIONS["int8-data"].tolerance),
    "4-bit-data": Form(4, "int8-data", PRECISIONS["int8-data"].tolerance),
}
_FLOAT_PEER = "OpenVINO, float32 data"
_READ, _PRODUCTS = "plain read", "plain products"
_WEIGHTS = "plain products by weights"
_SHARE = 0.85
#: Where the engines of those are.
_LIMITS = "benchmarks.decoder_limits:"


# ---------------------------------------------------------------------- what limits a decoder


def product_bytes(model: onnx.ModelProto, precision: str) -> int:
    """Bytes of the weights that a step multiplies with: all but tables that rows are taken of."""
    tables = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    products = {
        name for node in model.graph.node if node.op_type != "Gather" for name in node.input
    }
    total = 0
    for tensor in model.graph.initializer:
        if tensor.name in products or tensor.name not in tables:
            elements = int(np.prod(tensor.dims))
            size = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            total += elements * (2 if precision == "bf16" and elements > 1 << 12 else size)
    return total


def products(shape: Shape) -> dict[str, onnx.ModelProto]:
    """Networks of the products of one layer, of the last one, and of a layer's attention.

    The first two are over [rows, columns], the others over [heads, rows, columns].
    """
    own = shape.groups * shape.width
    sizes = {
        "layer": [
            *((shape.hidden, n) for n in (shape.hidden, own, own, shape.hidden)),
            *((shape.hidden, shape.inner), (shape.hidden, shape.inner)),
            (shape.inner, shape.hidden),
        ],
        "last": [(shape.hidden, shape.vocabulary)],
    }
    made = {}
    for name, pairs in sizes.items():
        graph = GraphBuilder(name, 0)
        sources = {k: graph.input(f"x{k}", ("rows", k)) for k in dict.fromkeys(k for k, _ in pairs)}
        for place, (k, n) in enumerate(pairs):
            y = graph.op("MatMul", sources[k], graph.normal((k, n), k**-0.5))
            graph.output(y, f"y{place}", ("rows", n))
        made[name] = graph.build()
    graph, heads = GraphBuilder("attention", 0), shape.heads
    pairs = [
        (("rows", shape.width), (shape.width, "rows"), ("rows", "rows")),
        (("rows", "rows"), ("rows", shape.width), ("rows", shape.width)),
    ]
    for place, sides in enumerate(pairs):
        *operands, out = ((heads, *side) for side in sides)
        names = [graph.input(f"{name}{place}", s) for name, s in zip("ab", operands, strict=True)]
        graph.output(graph.op("MatMul", *names), f"y{place}", out)
    made["attention"] = graph.build()
    return made


# ---------------------------------------------------------------------- what is measured


def build(name: str, forms: Sequence[str], folder: Path) -> None:
    """Write and compile what is not in the folder yet. Raises ``ByocError``."""
    sizes = MODELS[name]
    shape = Shape(**{key: value for key, value in sizes.items() if key != "biased"})
    folder.mkdir(parents=True, exist_ok=True)
    for form in (FORMS[key] for key in forms):
        source, library = folder / form.file, folder / f"{form.file}-{form.precision}.so"
        if not source.is_file():
            model = llama(**sizes)
            onnx.save(weight_only(model, form.bits) if form.bits else model, source)
        if not library.is_file():
            compile_decoder(source, library, form.precision)
        parts = folder / f"products-{form.bits}-{form.precision}"
        if not parts.is_dir():
            _build_products(shape, form, parts)


def _build_products(shape: Shape, form: Form, folder: Path) -> None:
    from byoc.compiler.compile import compile

    folder.mkdir()
    for part, model in products(shape).items():
        model = weight_only(model, form.bits) if form.bits else model
        with warnings.catch_warnings():  # its keywords are of Python 3.11
            warnings.simplefilter("ignore", AxesNote)
            compile(model, folder / f"{part}.so", precision=form.precision)


def measure(
    name: str,
    form: str,
    folder: Path,
    plan: Plan,
    threads: int,
    failed: dict[str, str],
    large_pages: bool = False,
) -> list[Row]:
    """All rows of a form on a number of threads. Raises ``BenchmarkError`` for wrong answers."""
    how = FORMS[form]
    source = folder / how.file
    library = folder / f"{how.file}-{how.precision}.so"
    model = onnx.load(source)
    decoder, nbytes = Decoder.of(model, name), product_bytes(model, how.precision)
    del model
    entrants = [
        engine_entrant("byoc", library, how.precision, large_pages),
        engine_entrant("onnxruntime", source, how.precision),
        engine_entrant("openvino", source, how.precision),
        Entrant(
            "read", _READ, _LIMITS + "PlainRead", source, {"nbytes": nbytes},
            answers=False, does=(False, True),
        ),
    ]  # fmt: skip
    if how.bits and how.precision == FP32:  # as ours compute, whose data stay float32
        peer = engine_entrant("openvino", source, how.precision)
        told = {**peer.options, "rounds_data": False}
        entrants.insert(3, replace(peer, name="openvino-float", title=_FLOAT_PEER, options=told))
    if plan.prompts:
        parts = folder / f"products-{how.bits}-{how.precision}"
        entrants += _plain_products(parts, MODELS[name]["layers"], max(plan.prompts))
    rows = race(entrants, decoder, plan, threads, failed)
    for row in rows:
        if row.engine == ENGINES["byoc"].title and not (row.error or 0.0) <= how.tolerance:
            raise BenchmarkError(f"{form}: {row.label} is off by {row.error:.1e} of the range")
    return rows


def _plain_products(folder: Path, layers: int, length: int) -> Iterator[Entrant]:
    for name, title in (("weights", _WEIGHTS), ("products", _PRODUCTS)):
        options = {"layers": layers, "length": length, "attention": title == _PRODUCTS}
        yield Entrant(
            name, title, _LIMITS + "PlainProducts", folder, options,
            answers=False, does=(True, False),
        )  # fmt: skip


def checks(form: str, rows: Sequence[Row]) -> list[str]:
    """Shares of what limits us below the target, and what is slower than a peer."""
    lines = []
    for row in (row for row in rows if row.engine == ENGINES["byoc"].title):
        others = {r.engine: r.times[1] for r in rows if r.label == row.label and r is not row}
        about = f"{form}, threads: {row.threads}, {row.label}"
        for limit, least in ((_READ, _SHARE), (_PRODUCTS, 1.0)):
            bound = others.pop(limit, None)
            others.pop(_WEIGHTS, None)  # which leave out what attention multiplies
            if bound is not None and bound / row.times[1] < least:
                lines.append(f"{about}: {bound / row.times[1]:.2f} of {limit} MISSES {least:.2f}")
        lines += [
            f"{about}: {row.times[1] / peer:.2f} of {who} MISSES 1.00"
            for who, peer in others.items()
            if row.times[1] > peer
        ]
    return lines


def sheet(name: str, form: str, rows: Sequence[Row]) -> Sheet:
    """Every engine, and how many times of its time ours takes."""
    shown = []
    for row in rows:
        ours = next(
            (r for r in rows if r.label == row.label and r.engine == ENGINES["byoc"].title), None
        )
        ratio = f"{ours.times[1] / row.times[1]:.2f}" if ours else ""
        shown.append([row.label, row.engine, *(f"{t:.2f}" for t in row.times), ratio])
    headings = ("what", "engine", "min ms", "p50 ms", "p90 ms", "byoc / it")
    return Sheet(f"{name}, {form}, threads: {rows[0].threads}", headings, shown, left=2)


def _versioned(package: str) -> str:
    return f"{package} {version(package)}"


def _sheets(
    options: argparse.Namespace,
    folder: Path,
    found: list[tuple[str, list[Row]]],
    failed: dict[str, str],
) -> Iterator[Sheet]:
    """The table of each form as soon as it is measured, which goes to ``found`` as well."""
    plan = Plan(options.prompt, options.past, options.rounds, options.prompt_rounds)
    for threads in options.threads:
        for form in options.forms:
            rows = measure(options.model, form, folder, plan, threads, failed, options.large_pages)
            found.append((form, rows))
            yield sheet(options.model, form, rows)


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("generate", __doc__, markdown=True, threads=[1], rounds=10)
    parser.add_argument("--model", choices=MODELS, default="qwen2-8-layers")
    parser.add_argument("--forms", choices=FORMS, nargs="+", default=["fp32"])
    parser.add_argument("--past", type=int, nargs="+", default=[100, 500, 2000], metavar="N")
    parser.add_argument("--prompt", type=int, nargs="*", default=[512], metavar="N")
    parser.add_argument("--prompt-rounds", type=int, default=3, metavar="N")
    parser.add_argument("--folder", type=Path, help="where models and libraries stay")
    parser.add_argument(
        "--large-pages", action="store_true", help="move our weights to large pages"
    )
    parser.add_argument("--build", action="store_true", help="only write and compile them")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="byoc-generate-") as temporary:
        folder = options.folder or Path(temporary)
        build(options.model, options.forms, folder)
        if options.build:
            return 0
        found, failed = [], {}
        sheets = _sheets(options, folder, found, failed)
        if options.json:
            list(sheets)
        else:
            about = [cpu_name(), harness.versions(*map(_versioned, ("onnxruntime", "openvino")))]
            harness.show_sheets(chain([about], sheets), [], options.markdown)
    lines = [line for form, rows in found for line in checks(form, rows)]
    lines = lines or ["all reach their targets"]
    lines += [f"{who} took no part: {reason}" for who, reason in failed.items()]
    if options.json:
        raw = [{"form": form, "rows": [asdict(row) for row in rows]} for form, rows in found]
        harness.show_json({"cpu": cpu_name(), "measured": raw, "checks": lines})
    else:
        harness.show_sheets([], lines, options.markdown)
    return int(harness.misses(lines))


if __name__ == "__main__":
    sys.exit(main())
