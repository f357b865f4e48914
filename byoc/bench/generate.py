"""Prompts and single steps of decoders with caches, through engines that take turns.

A step reads every weight once, and the cache. The library keeps keys and values, as engines made
for decoders do; the others are given those of the step before, and write all of them again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from byoc.bench.decoder_engines import DECODER_ENGINES
from byoc.bench.decoders import Decoder
from byoc.bench.interleave import thread_environment
from byoc.bench.precision import FP32, PRECISIONS
from byoc.bench.tables import Sheet
from byoc.bench.worker_process import WorkerProcess
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.measured_model import save_model
from byoc.frontends.onnx.read_model import data_locations, load_model
from byoc.machine import choose_cores, usable_cores
from byoc.zoo import networks

#: Steps of a turn; one more goes before, which finds cold caches and sleeping threads.
_BURST = 4
_REST = 0.02  # seconds in which the waiting threads of the engine before fall asleep

_JUDGE = "onnxruntime"


@dataclass(frozen=True)
class Entrant:
    """Who takes part: what makes the engine, the file that it loads, and what it is told."""

    name: str
    title: str
    maker: str
    path: Path
    options: Mapping[str, object] = field(default_factory=dict)
    #: Whether it answers, and may be compared.
    answers: bool = True
    #: Whether it does prompts, and steps.
    does: tuple[bool, bool] = (True, True)


@dataclass(frozen=True)
class Row:
    """Milliseconds of one who computes a prompt or a step: least, median, nine tenths."""

    what: str
    past: int
    engine: str
    threads: int
    times: tuple[float, float, float]
    error: float | None = None

    @property
    def label(self) -> str:
        """What is computed."""
        return f"{self.what} of {self.past}" if self.what == "prompt" else f"step at {self.past}"


@dataclass(frozen=True)
class Plan:
    """What is measured: tokens of prompts, rows of the cache before a step, turns of each."""

    prompts: Sequence[int]
    pasts: Sequence[int]
    rounds: int
    prompt_rounds: int

    @property
    def capacity(self) -> int:
        """Rows that a state needs."""
        steps = max(self.pasts, default=0) + (_BURST + 1) * (self.rounds + 1)
        return max(steps, max(self.prompts, default=0))


class _Worker:
    def __init__(
        self, entrant: Entrant, decoder: Decoder, threads: int, plan: Plan, folder: Path
    ) -> None:
        self.entrant = entrant
        self.kept = folder / f"{entrant.name}.npy"
        self._messages = folder / f"{entrant.name}.txt"
        given = {
            "maker": entrant.maker, "path": str(entrant.path), "decoder": decoder.to_json(),
            "threads": threads, "cores": choose_cores(threads), "capacity": plan.capacity,
            "options": dict(entrant.options),
        }  # fmt: skip
        module, environment = "byoc.bench.decoder_worker", thread_environment(threads)
        self._process = WorkerProcess(module, [json.dumps(given)], self._messages, environment)

    def wait(self) -> None:
        """Wait until the decoder is loaded."""
        self._line()

    def ask(self, **request: object) -> list[float]:
        """What it answers. Raises ``BenchmarkError`` where it fails."""
        self._process.tell(json.dumps(request))
        return json.loads(self._line())

    def answer(self) -> np.ndarray | None:
        """The last logits that it kept."""
        return np.load(self.kept) if self.kept.is_file() else None

    def stop(self) -> None:
        """End the process."""
        self._process.end()

    def _line(self) -> str:
        line = self._process.line()
        if line and not line.startswith("error: "):
            return line
        said = self._messages.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((text for text in reversed(said) if text.strip()), "it stopped")
        raise BenchmarkError(line.removeprefix("error: ") or last)


def race(
    entrants: Sequence[Entrant],
    decoder: Decoder,
    plan: Plan,
    threads: int,
    failed: dict[str, str],
) -> list[Row]:
    """Time entrants on a number of threads, each in a process of its own.

    Those that cannot are left out and their reasons added to ``failed``.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="byoc-generate-")))
        workers = [_Worker(entrant, decoder, threads, plan, folder) for entrant in entrants]
        for worker in workers:
            stack.callback(worker.stop)
        for worker in list(workers):
            try:
                worker.wait()
                worker.ask(restore=0)
                worker.ask(call=1)
            except BenchmarkError as error:
                failed[worker.entrant.title] = str(error)
                workers.remove(worker)
        rows = []
        for length in plan.prompts:
            able = [worker for worker in workers if worker.entrant.does[0]]
            for worker in able:  # memory of results, and of what is between, is there from then on
                _prompt(worker, length)
            times = _turns(able, plan.prompt_rounds, lambda worker, n=length: _prompt(worker, n))
            rows += _rows("prompt", length, able, times, threads)
        for past in plan.pasts:
            able = [worker for worker in workers if worker.entrant.does[1]]
            for worker in able:
                worker.ask(restore=past)
                worker.ask(call=1, keep=str(worker.kept))
            times = _turns(able, plan.rounds, _steps)
            rows += _rows("step", past, able, times, threads)
        return rows


def _turns(
    workers: Sequence[_Worker], rounds: int, turn: Callable[[_Worker], list[float]]
) -> list[list[float]]:
    """Milliseconds of each; every round begins with another one."""
    times: list[list[float]] = [[] for _ in workers]
    for number in range(rounds):
        for step in range(len(workers)):
            place = (step + number) % len(workers)
            time.sleep(_REST)
            times[place] += turn(workers[place])
    return times


def _prompt(worker: _Worker, length: int) -> list[float]:
    worker.ask(restore=0)
    return worker.ask(call=length, keep=str(worker.kept))


def _steps(worker: _Worker) -> list[float]:
    return worker.ask(call=1, times=_BURST + 1)[1:]


def _rows(
    what: str, past: int, workers: Sequence[_Worker], times: list[list[float]], threads: int
) -> list[Row]:
    answers = {worker.entrant.name: worker.answer() for worker in workers if worker.entrant.answers}
    right, rows = answers.get(_JUDGE), []
    for worker, found in zip(workers, times, strict=True):
        answer, error = answers.get(worker.entrant.name), None
        if right is not None and answer is not None:
            error = _error(answer, right)
        low, middle, high = (float(np.percentile(found, share)) for share in (0, 50, 90))
        title = worker.entrant.title
        rows.append(Row(what, past, title, threads, (low, middle, high), error))
    return rows


def _error(answer: np.ndarray, right: np.ndarray) -> float:
    """How far logits are off, as a share of their range.

    Of a chosen token: how far its logit is below the greatest.
    """
    off = np.abs(answer - right).max() if answer.ndim else right.max() - right[int(answer)]
    return float(off / np.ptp(right))


# ---------------------------------------------------------------------- what is asked for


@dataclass(frozen=True)
class Generated:
    """A finished benchmark of a decoder: its name and precision, all rows, and what failed."""

    name: str
    precision: str
    rows: Sequence[Row]
    failed: Mapping[str, str]

    @property
    def tolerance(self) -> float:
        """The greatest difference of a right answer, as a share of the range."""
        return PRECISIONS[self.precision].tolerance

    def checks(self) -> list[str]:
        """What did not hold: our answers that are wrong, or missing."""
        ours = DECODER_ENGINES["byoc"].title
        lines = [
            f"{row.engine}: {row.label} is off by {row.error:.1e} of the range"
            for row in self.rows
            if row.engine == ours and not (row.error or 0.0) <= self.tolerance
        ]
        return lines + [f"{ours}: {reason}" for who, reason in self.failed.items() if who == ours]

    def sheets(self) -> list[Sheet]:
        """A table for each number of threads: ``ratio`` is our median by the engine's."""
        ours = DECODER_ENGINES["byoc"].title
        made = []
        for threads in dict.fromkeys(row.threads for row in self.rows):
            rows = [row for row in self.rows if row.threads == threads]
            middle = {row.label: row.times[1] for row in rows if row.engine == ours}
            made.append(
                Sheet(
                    f"{self.name}, {self.precision}, threads: {threads}",
                    ("what", "engine", "min ms", "p50 ms", "p90 ms", "tokens/s", "ratio"),
                    [_cells(row, middle.get(row.label)) for row in rows],
                    left=2,
                )
            )
        return made

    def lines(self) -> list[str]:
        """Engines that took no part."""
        return [f"{who} took no part: {reason}" for who, reason in self.failed.items()]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts, for ``json.dumps``."""
        return {
            "name": self.name,
            "precision": self.precision,
            "rows": [asdict(row) for row in self.rows],
            "failed": dict(self.failed),
        }


def _cells(row: Row, ours: float | None) -> list[str]:
    tokens = row.past if row.what == "prompt" else 1
    ratio = f"{ours / row.times[1]:.2f}" if ours else ""
    rate = f"{1e3 * tokens / row.times[1]:.0f}"
    return [row.label, row.engine, *(f"{t:.2f}" for t in row.times), rate, ratio]


#: Precisions in which decoders are measured.
GENERATED = (FP32, "bf16", "int8-data")


def bench_generate(
    name: str,
    *,
    prompts: Sequence[int] = (128,),
    pasts: Sequence[int] = (128, 1024),
    threads: Sequence[int] = (),
    rounds: int = 8,
    precision: str = FP32,
    engines: Sequence[str] = (),
    large_pages: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Generated:
    """Time prompts and steps of a decoder, an ONNX file or a name of the zoo.

    ``prompts`` are numbers of tokens, ``pasts`` numbers of rows in the cache before a step;
    ``engines`` are keys of ``DECODER_ENGINES`` (default: those installed).  With ``large_pages``
    ours moves its weights to such (``Model.enlarge_weights``).  Raises ``ByocError``.
    """
    if precision not in GENERATED:
        raise BenchmarkError(
            f"--generate measures {', '.join(GENERATED)}, not {precision}; weights of 8 and 4 bits"
            " are the file's"
        )
    if unknown := [engine for engine in engines if engine not in DECODER_ENGINES]:
        raise BenchmarkError(f"{unknown[0]} keeps no cache; need {', '.join(DECODER_ENGINES)}")
    counts = sorted(set(threads)) or [n for n in (1, 2) if n <= len(usable_cores())]
    choose_cores(counts[-1])
    absent = {n: DECODER_ENGINES[n].absent() for n in engines or DECODER_ENGINES}
    failed = {DECODER_ENGINES[n].title: reason for n, reason in absent.items() if reason}
    with TemporaryDirectory(prefix="byoc-generate-") as folder:
        progress("compile")
        source, decoder = _source(name, Path(folder))
        library = Path(folder, "decoder.so")
        compile_decoder(source, library, precision)
        entrants = [
            engine_entrant(engine, library if engine == "byoc" else source, precision, large_pages)
            for engine, reason in absent.items()
            if not reason
        ]
        plan = Plan(prompts, pasts, rounds, rounds)
        rows = []
        for count in counts:
            progress(f"{name}, threads: {count}")
            rows += race(entrants, decoder, plan, count, failed)
    return Generated(name, precision, rows, failed)


def engine_entrant(engine: str, path: Path, precision: str, large_pages: bool = False) -> Entrant:
    """One of ``DECODER_ENGINES`` with a file, or for ours a library, in large pages or as it is."""
    known = DECODER_ENGINES[engine]
    told = PRECISIONS[precision].peers or precision
    options: dict[str, object] = {"precision": told} if known.told_precision else {}
    if known.told_data:
        options["data"] = sorted(data_locations(path))
    if engine == "byoc":
        options["large_pages"] = large_pages
    return Entrant(engine, known.title, known.maker, path, options)


def compile_decoder(source: Path, library: Path, precision: str) -> None:
    """Compile a decoder with states. Raises ``ByocError``."""
    import warnings

    from byoc.compiler.compile import compile
    from byoc.errors import AxesNote

    with warnings.catch_warnings():  # its keywords are of Python 3.11
        warnings.simplefilter("ignore", AxesNote)
        compile(source, library, states=True, precision=precision)


def _source(name: str, folder: Path) -> tuple[Path, Decoder]:
    known, path = networks(), Path(name)
    if path.is_file():
        return path, Decoder.of(load_model(path), name)
    if name not in known:
        raise BenchmarkError(f"no model {name!r}; need an ONNX file or one of {', '.join(known)}")
    model = known[name].build()
    decoder = Decoder.of(model, name)
    save_model(model, folder / "model.onnx")
    return folder / "model.onnx", decoder
