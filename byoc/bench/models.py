"""Time whole networks beside ONNX Runtime and plain TVM.

``python -m byoc.bench.models --model resnet50 --threads 1 2`` (``make bench``).  A model is a name
from the zoo, when started in the project's root, or an ONNX file.  Answers are compared before
times are shown: exit code 1 when they differ by more than 1e-4 of the output's range.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from byoc.bench.interleave import Timing, compare, machine, relative_error
from byoc.errors import ByocError

TOLERANCE = 1e-4
_DEFAULT_MODELS = ("resnet50", "mobilenet_v2", "squeezenet", "bert")


def build_engines(
    model: onnx.ModelProto, folder: Path, engines: list[str], console: Console
) -> dict[str, Path]:
    """Write the file that each engine loads: the ONNX model, our library, plain TVM's."""
    from byoc.compiler import compile, export
    from byoc.prepare import import_onnx, prepare

    source = folder / "model.onnx"
    onnx.save(model, source)
    files: dict[str, Path] = {}
    for engine in engines:
        console.print(f"  compiling for {engine}", style="dim")
        files[engine] = folder / f"{engine}.so"
        if engine == "onnxruntime":
            files[engine] = source
        elif engine == "byoc":
            compiled = compile(model, files[engine])
            console.print(f"  {compiled.report.summary()}", style="dim")
        else:
            import tvm

            export(tvm.compile(import_onnx(prepare(model)), "llvm"), files[engine])
    return files


def table(title: str, timings: list[Timing]) -> Table:
    """Minimum, median and 90th percentile per engine; medians relative to the first engine."""
    result = Table(title=title, title_justify="left")
    for heading in ("threads", "engine", "runs", "min ms", "p50 ms", "p90 ms", "vs byoc"):
        result.add_column(heading, justify="left" if heading == "engine" else "right")
    base = {t.threads: t.percentile(50) for t in timings if t.engine == "byoc"}
    for timing in timings:
        cells = [f"{timing.percentile(percent):.2f}" for percent in (0, 50, 90)]
        ratio = f"{timing.percentile(50) / base[timing.threads]:.2f}" if base else ""
        runs = str(len(timing.milliseconds))
        result.add_row(str(timing.threads), timing.title, runs, *cells, ratio)
    return result


def disagreement(timings: list[Timing]) -> float | None:
    """Our greatest error relative to ONNX Runtime's range; None unless both ran."""
    by_engine = {timing.engine: timing for timing in timings}
    if not {"byoc", "onnxruntime"} <= by_engine.keys():
        return None
    return relative_error(by_engine["byoc"].outputs, by_engine["onnxruntime"].outputs)


def benchmark(
    name: str,
    engines: list[str],
    threads: list[int],
    rounds: int,
    console: Console,
) -> tuple[list[Timing], float | None]:
    """Time one model at each number of threads; returns the timings and our error."""
    model, inputs = _model(name)
    timings: list[Timing] = []
    with tempfile.TemporaryDirectory(prefix="byoc-bench-") as temporary:
        folder = Path(temporary)
        files = build_engines(model, folder, engines, console)
        for count in threads:
            console.print(f"  timing with {count} threads", style="dim")
            timings += compare(files, inputs, count, rounds, folder)
    return timings, disagreement(timings)


def _model(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    try:
        from models.zoo import ZOO, draw_inputs
    except ModuleNotFoundError:
        raise ByocError("the model zoo is not here; start this in the project's root") from None
    if name not in ZOO and not Path(name).is_file():
        raise ByocError(f"no model {name!r}; need an ONNX file or one of {', '.join(ZOO)}")
    model = ZOO[name].build() if name in ZOO else onnx.load(name)
    return model, draw_inputs(model)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m byoc.bench.models",
        description="Time whole networks beside ONNX Runtime and plain TVM.",
    )
    parser.add_argument("--model", nargs="+", default=_DEFAULT_MODELS, metavar="NAME|FILE")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N")
    parser.add_argument(
        "--engines",
        nargs="+",
        default=["byoc", "onnxruntime"],
        choices=["byoc", "onnxruntime", "tvm"],
        help="plain TVM takes seconds per run (default: byoc onnxruntime)",
    )
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="turns of each engine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark; returns the exit code."""
    arguments = _arguments()
    console, progress = Console(), Console(stderr=True)
    if not arguments.json:
        console.print(machine())
    worst, rows = 0.0, []
    for name in arguments.model:
        progress.print(name)
        timings, error = benchmark(
            name, arguments.engines, arguments.threads, arguments.rounds, progress
        )
        worst = max(worst, error or 0.0)
        if arguments.json:
            rows += [_row(name, timing, error) for timing in timings]
        else:
            agreement = "" if error is None else f": differs from ONNX Runtime by {error:.1e}"
            console.print(table(f"{name}{agreement} of the range", timings))
    if arguments.json:
        print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    return int(worst > TOLERANCE)


def _row(name: str, timing: Timing, error: float | None) -> dict[str, object]:
    return {
        "model": name,
        "engine": timing.engine,
        "threads": timing.threads,
        "runs": len(timing.milliseconds),
        "milliseconds": {f"p{percent}": timing.percentile(percent) for percent in (0, 50, 90)},
        "relative_error": error,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ByocError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
