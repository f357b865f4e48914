"""Check and time the layers of a network: all engines take turns on one layer, then on the next."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.layers.engines import Candidate, Engine
from benchmarks.layers.network import Layer, Network
from byoc.accuracy import TOLERANCES, relative_error
from byoc.bench.engines import ENGINES
from byoc.bench.interleave import Entrant, Timing, Turns, take_turns
from byoc.bench.machine import Machine, measure_peak
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.one_layer import onnx_model
from codegen_cc.dtypes import SINGLE

#: Greatest error, as a share of the result's range.
TOLERANCE = TOLERANCES[SINGLE]
#: A layer is short, and a slow engine would keep the others waiting.
TURNS = Turns(burst_ms=60.0, slow_ms=50.0, slow_rounds=3)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """What one engine did with one layer, or why it did nothing (``reason``).

    ``failed`` tells an engine that should have computed the layer and did not, or got it wrong,
    from one that refuses it. ``copies`` counts images that were copied into another layout.
    """

    reason: str = ""
    failed: bool = False
    algorithm: str = ""
    copies: int = 0
    runs: int = 0
    min_ms: float = 0.0
    p50_ms: float = 0.0
    relative_error: float = 0.0


@dataclass(frozen=True)
class Row:
    """One layer, and what became of it by the engines' names."""

    layer: Layer
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Run:
    """One run of the benchmark."""

    network: Network
    engines: tuple[Engine, ...]
    absent: dict[str, str]
    machine: Machine
    threads: int
    rounds: int
    rows: tuple[Row, ...]

    @property
    def peak(self) -> float:
        """GFLOP/s of the multiply-adds of all threads in use."""
        return self.machine.peak_gflops * self.threads

    @property
    def failures(self) -> list[str]:
        """Engine, layer and reason of every failure."""
        return [
            f"{name}: {row.layer.label}: {cell.reason}"
            for row in self.rows
            for name, cell in row.cells.items()
            if cell.failed
        ]


def measure(
    network: Network,
    engines: Sequence[Engine],
    absent: dict[str, str],
    threads: int,
    rounds: int,
    progress: Progress,
) -> Run:
    """Compile, check and time every layer with every engine that computes it."""
    from benchmarks import abi

    if reason := ENGINES["onnxruntime"].absent():
        raise BenchmarkError(f"ONNX Runtime, whose answers are the reference, is {reason}")
    machine = Machine.measure(["byoc", "tvm", "onnxruntime"])
    kernels, peak = abi.load(), machine.peak_gflops
    rows = []
    for index, layer in enumerate(network.layers):
        where = f"[{index + 1}/{len(network.layers)}] {layer.label}"
        with tempfile.TemporaryDirectory(prefix="byoc-layers-") as folder:
            race = _Race(layer, Path(folder))
            for engine in engines:
                progress(f"{where}: compiling, {engine.title}")
                race.build(engine)
            progress(f"{where}: timing")
            rows.append(Row(layer, race.run(threads, rounds)))
        peak = max(peak, measure_peak(kernels, 5))
    machine = replace(machine, peak_gflops=peak)
    return Run(network, tuple(engines), absent, machine, threads, rounds, tuple(rows))


class _Race:
    """One layer: its candidates, and what became of every engine so far."""

    def __init__(self, layer: Layer, folder: Path) -> None:
        self.layer, self.folder = layer, folder
        self.expected = _reference(layer)
        self.entrants: dict[str, tuple[Engine, Candidate]] = {}
        self.cells: dict[str, Cell] = {}

    def build(self, engine: Engine) -> None:
        """Compile the layer for an engine, or note why not."""
        reason = engine.refuses(self.layer.node)
        self.cells[engine.name] = Cell(reason or "")
        if reason is None:
            try:
                self.entrants[engine.name] = engine, engine.build(self.layer, self.folder)
            except Exception as error:  # compilers and users' libraries raise what they like
                text = str(error).strip() or type(error).__name__
                self.cells[engine.name] = Cell(text.splitlines()[0], failed=True)

    def run(self, threads: int, rounds: int) -> dict[str, Cell]:
        """Time the candidates in turns, and compare what they answered."""
        failed: dict[str, str] = {}
        entrants = []
        for name, (engine, candidate) in self.entrants.items():
            inputs = self.folder / f"{name}-inputs.npz"
            np.savez(inputs, **engine.inputs(self.layer))
            entrants.append(Entrant(name, engine.loader, candidate.file, inputs))
        for timing in take_turns(entrants, threads, rounds, self.folder, TURNS, failed):
            self.cells[timing.engine] = self.cell(timing)
        for name, reason in failed.items():
            self.cells[name] = Cell(reason, failed=True)
        return self.cells

    def cell(self, timing: Timing) -> Cell:
        """The times of an engine whose answer is right."""
        engine, candidate = self.entrants[timing.engine]
        expected = engine.laid_out(self.layer, "output", self.expected)
        error = relative_error(timing.outputs, [expected])
        if error > TOLERANCE:
            limit = f"the limit is {TOLERANCE:g}"
            reason = f"differs from ONNX Runtime by {error:.1e} of the range; {limit}"
            return Cell(reason, failed=True, relative_error=error)
        return Cell(
            algorithm=candidate.algorithm,
            copies=candidate.copies,
            runs=len(timing.milliseconds),
            min_ms=timing.percentile(0),
            p50_ms=timing.percentile(50),
            relative_error=error,
        )


def _reference(layer: Layer) -> np.ndarray:
    """ONNX Runtime's answer, images NCHW."""
    import onnxruntime

    model = onnx_model(layer).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, layer.draw_inputs())[0]
