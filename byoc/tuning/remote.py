"""Time the candidates of layers on other machines, several of them at once."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from byoc.errors import RpcError, RpcLost, RpcTimeout, TuningError
from byoc.rpc.devices import Devices, Sharing
from byoc.rpc.probe import PROBE, DeviceInfo, build_probe, describe, look_at
from byoc.rpc.session import Session
from byoc.tuning.build import BuiltLayer, Pair, build, laid_out_shape
from byoc.tuning.database import machine_name
from byoc.tuning.layers import Answer, TunableLayer
from byoc.tuning.race import OTHER_BYTES, Race, read_arrays
from byoc.tuning.timing import TimedLayer
from codegen_cc import dtypes
from codegen_cc.libraries.measured_choice import Time
from codegen_cc.target import HOST, Target

if TYPE_CHECKING:
    import tvm_ffi

_BETWEEN = Path(__file__).with_name("between.c")
#: Seconds in which threads fall asleep that a library of its own keeps spinning after a call.
_REST = 0.01
#: Sessions on one layer that may fail without a candidate to blame.
_ATTEMPTS = 3


@dataclass
class _Job:
    """A layer, the numbers of threads to time it with, and what happened so far."""

    layer: TunableLayer
    threads: list[int]
    #: Candidates that took a server with them, and how; no number of threads is tried again.
    failed: dict[Pair, str] = field(default_factory=dict)
    #: The candidate whose first run lasts.
    running: Pair | None = None
    failures: int = 0


class RemoteTimer:
    """Times layers on devices, which must be of the same kind.

    ``progress`` is called with each layer when its turn comes, ``store`` with what became of it at
    a number of threads; never by two threads at once.
    """

    def __init__(
        self,
        devices: Devices,
        rounds: int,
        progress: Callable[[TunableLayer], None],
        store: Callable[[TimedLayer, int], None],
        answer: Answer,
        target: Target = HOST,
    ) -> None:
        self.devices, self.rounds, self.target = devices, rounds, target
        self._answer = answer
        self._progress, self._store = progress, store
        self._building, self._telling = threading.Lock(), threading.Lock()
        self._told: list[str] = []

    def machines(self, threads: Sequence[int]) -> dict[int, str]:
        """What the database calls the devices, by number of threads.

        Raises ``TuningError`` where they differ or have too few cores, ``RpcError``.
        """
        found: dict[str, DeviceInfo] = {}
        with tempfile.TemporaryDirectory(prefix="byoc-tune-") as folder:
            probe = build_probe(Path(folder), self.target)
            sessions = self.devices.open_all()
            try:
                for session in sessions:
                    found[session.name] = describe(session, probe)
            finally:
                for session in sessions:
                    session.close()
        self._kind = next(iter(found.values()))
        for name, info in found.items():
            self._require_same(name, info)
            if info.cores < max(threads):
                raise TuningError(
                    f"cannot time {max(threads)} threads: {name} may use {info.cores} cores, and "
                    "threads that share one would be timed against each other"
                )
        return {n: machine_name(f"{self._kind.cpu}, {self._kind.isa}", n) for n in threads}

    def time(self, layers: Iterable[tuple[TunableLayer, Sequence[int]]]) -> list[RpcError]:
        """Time layers, each at some numbers of threads; returns why devices were left out.

        Raises ``TuningError`` where a layer cannot be timed or no device is left.
        """
        jobs = [_Job(layer, sorted(threads, reverse=True)) for layer, threads in layers]
        sharing = Sharing(self.devices, self._work, self._failed)
        try:
            sharing.run(jobs)
        except RpcLost as error:
            told = f"; {'; '.join(self._told)}" if self._told else ""
            raise TuningError(f"{error}{told}") from error
        if stuck := [job for job in jobs if job.failures >= _ATTEMPTS]:
            raise TuningError(f"cannot time {stuck[0].layer.label}: {self._told[-1]}")
        return sharing.gone

    def _work(self, job: _Job, open_session: Callable[[], Session]) -> None:
        with tempfile.TemporaryDirectory(prefix="byoc-tune-") as folder:
            with self._building:  # it is this machine's work
                with self._telling:
                    self._progress(job.layer)
                library, (built,) = build(
                    [job.layer], Path(folder), self._answer, _extra(), self.target
                )
            with open_session() as session:
                module = session.upload(library)
                self._require_same(session.name, look_at(session, module))
                with session.doing("prepare to time candidates"):
                    module["byoc_tune_start"]()
                for threads in list(job.threads):
                    session.set_threads(threads)
                    timed = self._race(job, built, session, module)
                    job.threads.remove(threads)
                    with self._telling:
                        self._store(timed, threads)

    def _race(
        self,
        job: _Job,
        built: BuiltLayer,
        session: Session,
        module: tvm_ffi.Module,
    ) -> TimedLayer:
        result = TimedLayer(built)
        result.failed |= job.failed
        pairs = {s: pair for pair, s in built.symbols.items() if pair not in result.failed}
        node = built.layer.node
        race = _RemoteRace(session, module, built.arrays, pairs)

        def announce(symbol: str) -> None:
            job.running = pairs[symbol]

        race.check(list(pairs), laid_out_shape(node, node.shape), node.dtype, announce)
        job.running = None
        for symbol, reason in race.wrong.items():
            result.failed[pairs[symbol]] = reason
        for symbol, times in race.run(self.rounds).items():
            result.times[pairs[symbol]] = Time(min(times), median(times))
        return result

    def _failed(self, job: _Job, error: RpcError) -> bool:
        """A session ended with an error: blame a candidate, or try the layer again."""
        with self._telling:
            self._told.append(str(error))
            if job.running is not None:
                job.failed[job.running], job.running = str(error), None
                return True
            job.failures += 1
            return job.failures < _ATTEMPTS

    def _require_same(self, name: str, info: DeviceInfo) -> None:
        ours = self._kind
        if (info.cpu, info.isa) != (ours.cpu, ours.isa):
            raise TuningError(
                f"cannot tune for devices of two kinds: {name} is {info}, and another is {ours}; "
                "give each kind a key, or a run, of its own"
            )


class _RemoteRace(Race):
    """Candidates of a library that was uploaded to a device."""

    fatal = (RpcLost, RpcTimeout)

    def __init__(
        self,
        session: Session,
        module: tvm_ffi.Module,
        arrays: Path,
        pairs: Mapping[str, Pair],
    ) -> None:
        inputs, answers = read_arrays(arrays)
        super().__init__(answers)
        self.session, self.module, self.pairs = session, module, pairs
        with session.doing("take the inputs of a layer"):
            self.inputs = [session.send(array) for array in inputs]
        self.arguments: dict[str, list[tvm_ffi.Tensor]] = {}

    def first(self, symbol: str, shape: Sequence[int], dtype: str) -> np.ndarray:
        """Run a candidate, and keep the room for its result."""
        with self.session.doing(f"run candidate {': '.join(self.pairs[symbol])}"):
            output = self.session.send(np.full(shape, np.nan, dtypes.of(dtype).numpy))
            arguments = [*self.inputs, output]
            self.module[symbol](*arguments)
            self.arguments[symbol] = arguments
            return self.session.fetch(output)

    def turn(self, symbol: str, runs: int) -> list[float]:
        """Time some calls by the device's clock; one before them is not counted."""
        time.sleep(_REST)
        with self.session.doing(f"time candidate {': '.join(self.pairs[symbol])}"):
            return self.session.time(
                self.module, symbol, self.arguments[symbol], runs, "byoc.tune.between"
            )


def _extra() -> str:
    """C text that a library of candidates brings to a device besides the candidates."""
    texts = [PROBE.read_text(encoding="ascii"), _BETWEEN.read_text(encoding="ascii")]
    return "\n".join(["", f"#define BYOC_OTHER_BYTES {OTHER_BYTES}", *texts])
