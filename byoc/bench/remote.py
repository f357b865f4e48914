"""Measure networks on other machines, through TVM's RPC, several machines at once.

TVM's RPC runs libraries of TVM's, so ours and plain TVM can be measured there, and no other engine.
They sit in one process of the server's and take turns; times are by the machine's own clock.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.bench.engines import ENGINES
from byoc.bench.interleave import WARM_UPS, Timing, Turns
from byoc.bench.measure import Bench, Failure, Measured, Results, Row
from byoc.bench.subjects import Subject
from byoc.deploy.tvm_runtime import start_machine
from byoc.errors import BenchmarkError, RpcError, RpcLost, RpcTimeout
from byoc.rpc.devices import Devices, Sharing
from byoc.rpc.probe import DeviceInfo, build_probe, describe
from byoc.rpc.session import Session
from codegen_cc.target import Target

if TYPE_CHECKING:
    import tvm_ffi

#: Engines that TVM's RPC can run.
REMOTE_ENGINES = ("byoc", "tvm")
#: Numbers of threads where none are asked for, as far as there are cores.
_THREADS = (1, 2)

#: Milliseconds below which the length of a turn is not adapted to that of a run any more.
_LEAST_MS = 0.01

#: Loads a network when its turn comes; None where it cannot be had.
Load = Callable[[], list[Subject] | None]


def require_remote(engines: Iterable[str]) -> None:
    """Raise ``BenchmarkError`` for an engine that only this machine can run."""
    if others := [name for name in engines if name not in REMOTE_ENGINES]:
        raise BenchmarkError(
            f"{ENGINES[others[0]].title} cannot be measured on a device: TVM's RPC runs libraries "
            f"of TVM's alone; need {' or '.join(REMOTE_ENGINES)}"
        )


@dataclass(frozen=True)
class RemoteMachines:
    """The devices of a benchmark by address, and the versions of the engines."""

    devices: dict[str, DeviceInfo]
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """The devices for people, a line for each, and the versions."""
        versions = ", ".join(f"{title} {version}" for title, version in self.versions.items())
        found = [f"{name}: {info}" for name, info in sorted(self.devices.items())]
        return [*found, versions]

    def to_json(self) -> dict[str, object]:
        """Plain numbers and texts."""
        return asdict(self)


class RemoteBench:
    """Measures networks on devices, by what ``bench`` builds.

    Several networks are shared out among the devices; a single one is measured on each.
    ``threads`` are numbers of threads, none for one and two.
    """

    def __init__(
        self,
        bench: Bench,
        devices: Devices,
        threads: Sequence[int] = (),
        turns: Turns | None = None,
    ) -> None:
        self.bench, self.devices = bench, devices
        self.threads, self.turns = threads, turns or Turns()
        #: The devices that took part, by address.
        self.found: dict[str, DeviceInfo] = {}
        self._building, self._telling = threading.Lock(), threading.Lock()

    def measure(self, networks: Sequence[Load], tell: Callable[[Results], None]) -> Results:
        """Measure networks; ``tell`` is called with what each one gave.

        Raises ``ByocError`` where nothing can be measured; a device that is lost, or an engine that
        fails on one, is in the results.
        """
        results = Results()
        with tempfile.TemporaryDirectory(prefix="byoc-bench-") as name:
            self._folder = Path(name)
            (self._folder / "probe").mkdir()
            target = Target.parse(self.bench.compiling.get("target"))
            self._probe = build_probe(self._folder / "probe", target)
            if len(networks) == 1:
                self._on_each(networks[0], results, tell)
            else:
                self._shared_out(networks, results, tell)
        results.rows.sort(key=lambda row: (row.model, row.device))  # stable
        return results

    def _on_each(self, load: Load, results: Results, tell: Callable[[Results], None]) -> None:
        measured = self._prepare(load, self._folder, results)
        sessions = self.devices.open_all()
        with ThreadPoolExecutor(len(sessions)) as pool:
            tasks = [pool.submit(self._alone, session, measured) for session in sessions]
            try:
                for task in tasks:
                    found = task.result()
                    results.add(found)
                    tell(found)
            finally:  # of all, or because one was interrupted
                for session in sessions:
                    session.stop()

    def _shared_out(
        self, networks: Sequence[Load], results: Results, tell: Callable[[Results], None]
    ) -> None:
        def work(load: Load, open_session: Callable[[], Session]) -> None:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                own = Results()
                with self._building:  # it is this machine's work
                    measured = self._prepare(load, Path(folder), own)
                error = None
                if any(one.files for one in measured):
                    with open_session() as session:
                        found, error = self._on(session, measured)
                    own.add(found)
            with self._telling:
                results.add(own)
                tell(own)
            if error is not None:
                raise error

        sharing = Sharing(self.devices, work, failed=lambda load, error: False)
        try:
            sharing.run(networks)
        except RpcLost as error:
            if not results.rows:
                raise
            results.failures.append(Failure("", "the other networks", None, "byoc", str(error)))

    def _prepare(self, load: Load, folder: Path, results: Results) -> list[Measured]:
        subjects = load()
        return [] if subjects is None else self.bench.prepare(subjects, folder, results)

    def _alone(self, session: Session, measured: Sequence[Measured]) -> Results:
        with session:
            return self._on(session, measured)[0]

    def _on(
        self, session: Session, measured: Sequence[Measured]
    ) -> tuple[Results, RpcError | None]:
        """Measure a network on one device; the error is there where the session failed."""
        visit = _Visit(self.bench, session, self.turns)
        try:
            info = self.found[visit.device] = describe(session, self._probe)
            visit.run(measured, self.threads or [n for n in _THREADS if n <= info.cores], info)
        except RpcError as error:
            failed = {(failure.batch, failure.engine) for failure in visit.results.failures}
            for one in measured:
                for engine in one.files:
                    if (one.subject.batch, engine) not in failed:
                        failure = one.failure(engine, str(error), visit.device)
                        visit.results.failures.append(failure)
            return visit.results, error
        return visit.results, None


@dataclass
class _Entrant:
    """An engine's network on a device."""

    owner: Measured
    engine: str
    machine: tvm_ffi.Module = field(init=False)
    inputs: list[tvm_ffi.Tensor] = field(init=False)
    timing: Timing = field(init=False)
    burst: int = 1
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.owner.subject.title} of {ENGINES[self.engine].title}"


class _Visit:
    """One network on one device, through one session."""

    def __init__(self, bench: Bench, session: Session, turns: Turns) -> None:
        self.bench, self.session, self.turns = bench, session, turns
        self.device = str(session.address)
        self.results = Results()
        self._entrants: list[_Entrant] = []

    def run(self, measured: Sequence[Measured], counts: Sequence[int], info: DeviceInfo) -> None:
        """Measure at all numbers of threads. Raises ``RpcError`` where the session fails."""
        if (most := max(counts)) > info.cores:
            raise RpcError(
                f"{self.session.name} cannot time {most} threads: it may use {info.cores} cores, "
                "and threads that share one would be timed against each other"
            )
        self._entrants = [_Entrant(one, engine) for one in measured for engine in one.files]
        self._each(self._upload)
        rows: dict[int, list[Row]] = {}
        try:
            # The first number of threads in a session is the greatest that it can have.
            for threads in sorted(counts, reverse=True):
                self.session.set_threads(threads)
                rows[threads] = self._time(threads)
        finally:
            for threads in sorted(rows):
                self.results.rows += rows[threads]

    def _upload(self, entrant: _Entrant) -> None:
        module = self.session.upload(entrant.owner.files[entrant.engine])
        arrays = entrant.owner.subject.inputs.values()
        with self.session.doing(f"start {entrant}"):
            entrant.inputs = [self.session.send(array) for array in arrays]
            entrant.machine = start_machine(module)

    def _time(self, threads: int) -> list[Row]:
        for entrant in self._entrants:
            entrant.timing = Timing(entrant.engine, threads)
        self._each(self._warm_up)
        for number in range(self.bench.rounds):
            late = number >= self.turns.slow_rounds
            self._each(partial(self._turn, late=late))
        return [
            self.bench.row(entrant.owner, entrant.engine, entrant.timing, self.device)
            for entrant in self._entrants
        ]

    def _warm_up(self, entrant: _Entrant) -> None:
        """Keep the answer, and choose the length of the turns."""
        with self.session.doing(f"run {entrant}"):
            results = self.session.items(entrant.machine["main"](*entrant.inputs))
            entrant.timing.outputs = [self.session.fetch(tensor) for tensor in results]
        once = self._run(entrant, 1)[0]
        if once < self.turns.burst_ms:
            once = min(self._run(entrant, WARM_UPS))
        entrant.burst = max(1, round(self.turns.burst_ms / max(once, _LEAST_MS)))
        entrant.slow = once > self.turns.slow_ms

    def _turn(self, entrant: _Entrant, late: bool) -> None:
        if entrant.slow and late:
            return
        entrant.timing.milliseconds += self._run(entrant, 1 if entrant.slow else entrant.burst)

    def _run(self, entrant: _Entrant, runs: int) -> list[float]:
        with self.session.doing(f"time {entrant}"):
            return self.session.time(entrant.machine, "main", entrant.inputs, runs)

    def _each(self, action: Callable[[_Entrant], None]) -> None:
        """Act on each, and leave out whose own fault it is that this fails.

        Raises ``RpcError`` where the session is over.
        """
        good = []
        for entrant in self._entrants:
            try:
                action(entrant)
                good.append(entrant)
            except (RpcLost, RpcTimeout):
                raise
            except RpcError as error:
                failure = entrant.owner.failure(entrant.engine, str(error), self.device)
                self.results.failures.append(failure)
        self._entrants = good
