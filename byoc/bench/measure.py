"""Measure networks: build, compare the answers, take turns, and put the times into rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.accuracy import TOLERANCES, relative_error
from byoc.bench.builds import build
from byoc.bench.engines import ENGINES, ONNX, REFERENCES, TORCH
from byoc.bench.interleave import Entrant, Timing, take_turns
from byoc.bench.precision import FP32, PRECISIONS
from byoc.bench.subjects import Subject, kind_of
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.measured_model import save_model
from byoc.frontends.onnx.rounded_values import halves_inside

if TYPE_CHECKING:
    from byoc.compiler.keywords import CompileKeywords
    from byoc.report.shortfall import Shortfall

OURS = "byoc"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """What one engine did with one network: milliseconds of a run, and what follows from them.

    ``gflops`` counts two operations for each multiply-accumulate of the network, whatever the
    engine saves of them; ``share_of_peak`` is of the peak of all threads; ``peak_mb`` is the most
    memory that the process had; ``error`` is the difference from the answer of the engine that is
    the ``reference`` as a share of the range.  None where something is not known.  ``precision`` is
    a key of ``PRECISIONS``.
    ``device`` is the address of the machine that measured, empty for this one.  ``rounding`` is
    what outputs may be off by of a network that computes in 16 bits, 0 for others.
    """

    model: str
    title: str
    batch: int | None
    threads: int
    engine: str
    runs: int
    min_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    gflops: float | None
    share_of_peak: float | None
    peak_mb: float | None
    error: float | None
    precision: str = FP32
    device: str = ""
    rounding: float = 0.0
    reference: str = REFERENCES[ONNX]

    @property
    def limit(self) -> float:
        """What the error may be."""
        return max(PRECISIONS[self.precision].tolerance, self.rounding)

    @property
    def right(self) -> bool:
        """Whether the answer is within the tolerance, as far as it was compared."""
        return self.error is None or self.error <= self.limit


@dataclass(frozen=True)
class Failure:
    """An engine that could not take a network, and why; ``engine`` is empty where none could."""

    model: str
    title: str
    batch: int | None
    engine: str
    reason: str
    device: str = ""

    def __str__(self) -> str:
        batch = "" if self.batch is None else f", batch {self.batch}"
        who = f"{ENGINES[self.engine].title} on " if self.engine else ""
        where = f", on {self.device}" if self.device else ""
        return f"{who}{self.title}{batch}{where}: {self.reason}"


@dataclass
class Results:
    """All rows of a run, and what there is to say about them."""

    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    #: Engines that are not installed: what would install them.
    absent: dict[str, str] = field(default_factory=dict)
    #: Networks of which ours offloads less than half: what stays with TVM, by title.
    shortfalls: dict[str, Shortfall] = field(default_factory=dict)
    #: Networks in a precision that none of our products is in: why, by title.
    kept: dict[str, str] = field(default_factory=dict)

    def wrong(self, ours: bool) -> list[Row]:
        """Rows of ours, or of others, whose answers differ by more than the tolerance."""
        return [row for row in self.rows if not row.right and (row.engine == OURS) == ours]

    def add(self, more: Results) -> None:
        """Append the rows and failures of another network."""
        self.rows += more.rows
        self.failures += more.failures
        self.shortfalls |= more.shortfalls
        self.kept |= more.kept

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "failures": [asdict(failure) for failure in self.failures],
            "absent": self.absent,
            "shortfalls": {name: asdict(found) for name, found in self.shortfalls.items()},
            "kept": self.kept,
        }

    @property
    def holds(self) -> bool:
        """Whether ours ran wherever it was asked to, and answered right."""
        mine = (OURS, "")  # of a network that is not there, none could run
        return not self.wrong(ours=True) and all(f.engine not in mine for f in self.failures)


def present(engines: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Split engines into those that are installed, and what would install the others."""
    asked = list(dict.fromkeys(engines))
    absent = {name: why for name in asked if (why := ENGINES[name].absent()) is not None}
    there = [name for name in asked if name not in absent]
    if not there:
        raise BenchmarkError("none of the engines is installed: " + "; ".join(absent.values()))
    return there, absent


class Measured:
    """One batch size of a network: its files, inputs, and the reference's answer."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        folder.mkdir()
        self.kind, self.inputs = kind_of(subject.name), folder / "inputs.npz"
        self.reference = REFERENCES[self.kind]
        if self.kind == TORCH:
            self.source, self.halves = folder / "model.pt2", subject.model.halves()
            self.source.symlink_to(subject.model.file.resolve())
        else:
            self.source, self.halves = folder / "model.onnx", halves_inside(subject.model)
            save_model(subject.model, self.source)
        np.savez(self.inputs, **subject.inputs)
        self.files: dict[str, Path] = {}
        self.macs: int | None = None  # known where ours was built, which counts them
        self.expected: list[np.ndarray] | None = None

    def name(self, engine: str) -> str:
        """A name for ``engine`` on this batch, unique in a run."""
        return engine if self.subject.batch is None else f"{engine}-batch{self.subject.batch}"

    def require_batch(self) -> None:
        """Refuse a model that answers a batch with something else. Raises ``BenchmarkError``."""
        batch, outputs = self.subject.batch, self.expected or []
        if batch and any(not array.ndim or array.shape[0] % batch for array in outputs):
            shapes = ", ".join(str(list(array.shape)) for array in outputs)
            raise BenchmarkError(
                f"{self.subject.title}: batch {batch} gives outputs of shape {shapes}; "
                "the model has a fixed batch inside"
            )

    def failure(self, engine: str, reason: str, device: str = "") -> Failure:
        """The engine cannot take this."""
        about, text = self.subject, " ".join(reason.split())
        return Failure(about.name, about.title, about.batch, engine, text, device)


class Bench:
    """Measures one network after another with the same engines, threads and rounds.

    ``engines`` are installed ones, of which those that offer ``precision`` take part; ``peak`` is
    the GFLOP/s of one core, None if not known; ``compiling`` are keywords of ``byoc.compile`` (see
    ``byoc.bench.builds.build``).
    """

    def __init__(
        self,
        engines: Sequence[str],
        threads: Sequence[int],
        rounds: int,
        peak: float | None,
        compiling: CompileKeywords | None = None,
        progress: Progress = lambda stage: None,
        precision: str = FP32,
    ) -> None:
        self.threads, self.rounds, self.precision = threads, rounds, precision
        self.theirs = PRECISIONS[precision].peers or precision
        self.engines = [name for name in engines if self.theirs in ENGINES[name].precisions]
        self.peak, self.compiling, self.progress = peak, dict(compiling or {}), progress
        if not PRECISIONS[precision].quantised:
            exceptions = self.compiling.get("precision", ())
            self.compiling["precision"] = (precision, *exceptions) if precision != FP32 else ()

    def measure(self, subjects: Sequence[Subject]) -> Results:
        """Measure a network, in the batch sizes of ``subjects``, which take turns as well."""
        results = Results()
        with tempfile.TemporaryDirectory(prefix="byoc-bench-") as temporary:
            folder = Path(temporary)
            measured = self.prepare(subjects, folder, results)
            for threads in self.threads:
                self.progress(f"{subjects[0].title}: timing, threads: {threads}")
                self._time(measured, threads, folder, results)
        return results

    def prepare(
        self, subjects: Sequence[Subject], folder: Path, results: Results
    ) -> list[Measured]:
        """Build a network for each engine, in a folder; failures go into ``results``."""
        measured = []
        for number, subject in enumerate(subjects):
            measured.append(Measured(subject, folder / str(number)))
            self._build(measured[-1], results)
        return measured

    def _build(self, measured: Measured, results: Results) -> None:
        title = measured.subject.title
        for engine in self.engines:
            if measured.kind not in ENGINES[engine].models:
                continue
            self.progress(f"{title}: building for {ENGINES[engine].title}")
            try:
                built = build(engine, measured.subject, measured.source, self.compiling)
            except Exception as error:  # one that cannot take the network must not stop the rest
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                results.failures.append(measured.failure(engine, reason))
                continue
            measured.files[engine] = built.file
            measured.macs = measured.macs or built.macs
            if built.shortfall is not None:
                results.shortfalls[title] = built.shortfall
            if built.kept:
                results.kept[f"{title} in {self.precision}"] = built.kept
        reference = ENGINES[measured.reference]
        if reference.absent() is None:
            self.progress(f"{title}: asking {reference.title} for the answer")
            self._answer(measured, results)

    def _answer(self, measured: Measured, results: Results) -> None:
        """Note the reference's outputs; it need not be among the engines that are timed."""
        reference = measured.reference
        entrant = Entrant(reference, reference, measured.source, measured.inputs)
        failed: dict[str, str] = {}
        timings = take_turns([entrant], 1, 0, measured.source.parent, failed=failed)
        if reference not in failed:
            measured.expected = timings[0].outputs
            measured.require_batch()
        elif reference not in self.engines:  # else it fails once more
            results.failures.append(measured.failure(reference, failed[reference]))

    def _time(
        self, measured: Sequence[Measured], threads: int, folder: Path, results: Results
    ) -> None:
        entrants, owners = [], {}
        for one in measured:
            for engine, file in one.files.items():
                name = one.name(engine)
                owners[name] = (one, engine)
                entrants.append(Entrant(name, engine, file, one.inputs, self.theirs))
        failed: dict[str, str] = {}
        timings = take_turns(entrants, threads, self.rounds, folder, failed=failed)
        for timing in timings:
            results.rows.append(self.row(*owners[timing.engine], timing))
        for name, reason in failed.items():
            one, engine = owners[name]
            del one.files[engine]  # more threads would not help
            results.failures.append(one.failure(engine, reason))

    def row(self, measured: Measured, engine: str, timing: Timing, device: str = "") -> Row:
        """What an engine did."""
        about, expected = measured.subject, measured.expected
        low, middle, high, highest = (timing.percentile(percent) for percent in (0, 50, 90, 99))
        gflops = None if measured.macs is None else 2e-6 * measured.macs / middle
        known = gflops is not None and self.peak is not None
        return Row(
            model=about.name,
            title=about.title,
            batch=about.batch,
            threads=timing.threads,
            engine=engine,
            runs=len(timing.milliseconds),
            min_ms=low,
            p50_ms=middle,
            p90_ms=high,
            p99_ms=highest,
            gflops=gflops,
            share_of_peak=gflops / (self.peak * timing.threads) if known else None,
            peak_mb=timing.peak_mb,
            error=None if expected is None else relative_error(timing.outputs, expected),
            precision=self.precision,
            device=device,
            rounding=max((TOLERANCES[half] for half in measured.halves), default=0.0),
            reference=measured.reference,
        )
