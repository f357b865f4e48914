"""What a network costs before its second run: compiling, loading, the first run, and memory.

``python -m benchmarks.footprint resnet50 bert [--threads 1] [--repeats 3] [--json | --markdown]``

Every compilation and every loading is a process of its own; engines take turns.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import first_run, harness
from benchmarks.process_memory import Finished, run_watched
from byoc.bench.engines import ENGINES
from byoc.bench.machine import Machine
from byoc.bench.tables import Sheet, in_words
from byoc.machine import choose_cores

#: Stages of ``byoc.compile`` and their headings; ``start`` is what lies outside of them.
_STAGES = {
    "start": "start",
    "prepare the model": "prepare",
    "import into TVM": "import",
    "partition": "partition",
    "generate code": "generate",
    "compile what TVM keeps": "TVM",
    "link": "link",
}
#: Runs behind the first one, whose median is a later run.
_LATER_RUNS = 20
_ENGINES = ("byoc", "onnxruntime")

#: Seconds that ``byoc compile`` may take; and for all networks: memory in sizes of the model's
#: file, the first run in later runs; milliseconds that loading may take.
_COMPILE_SECONDS = {"resnet50": 6.0, "bert": 20.0}
_LOAD_MS = {"resnet50": 30.0}
_MEMORY, _FIRST = 4.0, 2.0


@dataclass(frozen=True)
class Compilation:
    """``byoc compile``, whole processes: seconds of each, of the stages of the fastest, memory.

    ``tools_mb`` is the most that one of the programs had that it starts, ``tool`` its name.
    """

    seconds: list[float]
    stages: dict[str, float]
    peak_mb: float
    tool: str
    tools_mb: float
    library_mb: float


@dataclass(frozen=True)
class Start:
    """An engine in fresh processes, a number for each: milliseconds, seconds, megabytes.

    ``runtime_ms`` loads the engine, ``load_ms`` the model; ``process_s`` is the process up to
    there; ``later_ms`` is the median of the runs behind the first.
    """

    engine: str
    runtime_ms: list[float]
    load_ms: list[float]
    process_s: list[float]
    first_ms: list[float]
    later_ms: list[float]
    peak_mb: list[float]

    @property
    def first_by_later(self) -> float:
        """The first run in later runs, of the fastest process for each."""
        return min(self.first_ms) / min(self.later_ms)


@dataclass(frozen=True)
class Footprint:
    """One network."""

    name: str
    title: str
    model_mb: float
    compilation: Compilation
    starts: list[Start]

    @property
    def memory_ratio(self) -> float:
        """The compiler's memory in sizes of the model's file."""
        return self.compilation.peak_mb / self.model_mb

    def checks(self) -> list[str]:
        """Whether targets are met, one line each."""
        starts = {start.engine: start for start in self.starts}
        ours, peer = starts["byoc"], starts.get("onnxruntime")
        found: list[tuple[str, float, float | None, str]] = [
            ("compiling", min(self.compilation.seconds), _COMPILE_SECONDS.get(self.name), "s"),
            ("compiler's memory", self.memory_ratio, _MEMORY, "model files"),
            ("loading", min(ours.load_ms), _LOAD_MS.get(self.name), "ms"),
            ("first run", ours.first_by_later, _FIRST, "later runs"),
        ]
        if peer is not None:
            found.append(("memory of a run", max(ours.peak_mb), max(peer.peak_mb), "MB"))
        return [
            f"{self.title}: {what} {value:.2f} {unit}, "
            f"{'within' if value <= most else 'MISSES'} {most:.2f}"
            for what, value, most, unit in found
            if most is not None
        ]


def measure(
    names: Sequence[str],
    threads: int = 1,
    repeats: int = 3,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Footprint]:
    """Measure networks of the zoo or ONNX files. Raises ``ByocError``."""
    cores = choose_cores(threads)
    engines = [name for name in _ENGINES if ENGINES[name].absent() is None]
    return [_footprint(name, engines, threads, cores, repeats, progress) for name in names]


def _footprint(
    name: str,
    engines: Sequence[str],
    threads: int,
    cores: Sequence[int],
    repeats: int,
    progress: Callable[[str], None],
) -> Footprint:
    with tempfile.TemporaryDirectory(prefix="byoc-footprint-") as temporary:
        folder = Path(temporary)
        title = _write(name, folder)
        source, library = folder / "model.onnx", folder / "model.so"
        progress(f"{title}: compiling")
        compilation = _compile(source, library, repeats)
        found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
        for engine in harness.in_turns(engines, repeats):
            progress(f"{title}: loading, {len(found[engine]) + 1} of {repeats}")
            file = library if engine == "byoc" else source
            found[engine].append(_start(engine, file, folder / "inputs.npz", threads, cores))
        starts = [_as_start(engine, answers) for engine, answers in found.items()]
        return Footprint(name, title, source.stat().st_size * 1e-6, compilation, starts)


def _write(name: str, folder: Path) -> str:
    """Write the model and its inputs; the title."""
    import onnx

    from byoc.bench.subjects import load_subject

    subject = load_subject(name)
    onnx.save(subject.model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **subject.inputs)
    return subject.title


def _compile(source: Path, library: Path, repeats: int) -> Compilation:
    command = [sys.executable, "-m", "byoc", "compile", source, "-o", library, "--json"]
    runs: list[tuple[Finished, dict[str, float]]] = []
    for _ in range(repeats):
        done = run_watched(command, harness.environment()).require("byoc compile")
        runs.append((done, json.loads(done.output)["seconds"]))
    fastest, stages = min(runs, key=lambda run: run[0].seconds)
    tools = {name: mb for done, _ in runs for name, mb in done.tools.items()}
    tool = max(tools, key=lambda name: tools[name], default="")
    return Compilation(
        seconds=[done.seconds for done, _ in runs],
        stages={"start": fastest.seconds - sum(stages.values()), **stages},
        peak_mb=max(done.peak_mb for done, _ in runs),
        tool=tool,
        tools_mb=tools.get(tool, 0.0),
        library_mb=library.stat().st_size * 1e-6,
    )


def _start(
    engine: str, file: Path, inputs: Path, threads: int, cores: Sequence[int]
) -> dict[str, Any]:
    """One process of an engine; its answer, with the seconds up to the loaded model."""
    command = first_run.command(engine, file, inputs, threads, _LATER_RUNS)
    begin = time.time()
    done = run_watched([*harness.on_cores(cores), *command], harness.environment(threads))
    answer = json.loads(done.require(ENGINES[engine].title).output)
    return answer | {"process_s": answer["loaded_at"] - begin}


def _as_start(engine: str, answers: Sequence[dict[str, Any]]) -> Start:
    def each(key: str) -> list[float]:
        return [float(np.median(answer[key])) for answer in answers]

    names = ("runtime_ms", "load_ms", "process_s", "first_ms", "later_ms", "peak_mb")
    return Start(engine, *(each(name) for name in names))


# ---------------------------------------------------------------------- tables


def sheets(footprints: Sequence[Footprint]) -> list[Sheet]:
    """Two tables: compiling, and starting."""
    compiling = ("network", "ONNX MB", ".so MB", "s min", "p50", *_STAGES.values())
    memory = ("peak MB", "/ ONNX", "tool MB")
    first = [
        [
            one.title,
            f"{one.model_mb:.1f}",
            f"{one.compilation.library_mb:.1f}",
            f"{min(one.compilation.seconds):.2f}",
            f"{np.median(one.compilation.seconds):.2f}",
            *(f"{one.compilation.stages.get(stage, 0.0):.2f}" for stage in _STAGES),
            f"{one.compilation.peak_mb:.0f}",
            f"{one.memory_ratio:.2f}",
            f"{one.compilation.tools_mb:.0f}",
        ]
        for one in footprints
    ]
    starting = ("network", "engine", "runtime ms", "load ms", "p50", "process s")
    running = ("first ms", "p50", "later ms", "first/later", "peak MB")
    second = [
        [
            one.title,
            ENGINES[start.engine].title,
            f"{min(start.runtime_ms):.1f}",
            f"{min(start.load_ms):.1f}",
            f"{np.median(start.load_ms):.1f}",
            f"{min(start.process_s):.2f}",
            f"{min(start.first_ms):.2f}",
            f"{np.median(start.first_ms):.2f}",
            f"{np.median(start.later_ms):.2f}",
            f"{start.first_by_later:.2f}",
            f"{max(start.peak_mb):.0f}",
        ]
        for one in footprints
        for start in one.starts
    ]
    return [
        Sheet("byoc compile; seconds of the fastest by stage", (*compiling, *memory), first),
        Sheet("a fresh process", (*starting, *running), second, left=2),
    ]


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("footprint", __doc__, markdown=True, threads=1, repeats=3)
    parser.add_argument("networks", nargs="+", help="names of the zoo, or ONNX files")
    options = parser.parse_args(arguments)
    machine = Machine.measure([e for e in _ENGINES if ENGINES[e].absent() is None])
    found = measure(options.networks, options.threads, options.repeats, harness.tell)
    checks = [line for footprint in found for line in footprint.checks()]
    load = os.getloadavg()[0]
    about = [
        *machine.lines(),
        f"{in_words(options.threads)}, {options.repeats} processes of each; "
        f"load average at the end {load:.1f}",
    ]
    if options.json:
        values = {"machine": machine.to_json(), "threads": options.threads, "load": load}
        harness.show_json({**values, "networks": list(map(asdict, found)), "checks": checks})
    else:
        harness.show_sheets([about, *sheets(found)], checks, options.markdown)
    return int(harness.misses(checks))


if __name__ == "__main__":
    sys.exit(main())
