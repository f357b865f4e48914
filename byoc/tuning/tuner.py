"""Measured choice: time what can compute each layer of a network, and remember who won."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from byoc.errors import TuningError
from byoc.rpc.devices import Devices
from byoc.tuning.build import Pair, build
from byoc.tuning.database import machine_key, merge, races_of, require_writable
from byoc.tuning.layers import Answer, TunableLayer, tunable_layers
from byoc.tuning.remote import RemoteTimer
from byoc.tuning.timing import TimedLayer, time_layers
from codegen_cc.dim import product
from codegen_cc.errors import LibraryError, foreign_errors_as
from codegen_cc.libraries import Selection, library
from codegen_cc.libraries.measured_choice import Decision, Race, Time, decide, stamp
from codegen_cc.libraries.registry import SHIPPED, installed
from codegen_cc.target import Target

ROUNDS = 6

#: Bytes of weights, over all candidates, that are compiled into one library.
_BATCH_BYTES = 256e6

#: Called with what is done, how much of it, and how much there is.
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Show nothing."""
    del what, done, total


@dataclass(frozen=True)
class Choice:
    """One layer at one number of threads: what was timed, and what follows.

    ``failed`` has the reason of every candidate that may not win. ``known`` is whether the database
    had it already. ``decision`` is None where nothing could be timed.
    """

    layer: TunableLayer
    threads: int
    times: Mapping[Pair, Time]
    failed: Mapping[Pair, str]
    decision: Decision | None
    known: bool = False
    checked_by: str = ""

    def milliseconds(self, pair: Pair) -> float | None:
        """The fastest run of a candidate, if it was timed."""
        return self.times[pair].fastest if pair in self.times else None


@dataclass(frozen=True)
class Tuned:
    """What ``tune`` did."""

    path: Path
    machines: dict[int, str]  # the database's name of this machine, by threads
    choices: tuple[Choice, ...]
    skipped: tuple[TunableLayer, ...]
    absent: dict[str, str] = field(default_factory=dict)
    #: Why devices were left out.
    lost: tuple[str, ...] = ()

    def totals(self, threads: int) -> tuple[float, float]:
        """Milliseconds of all timed layers of the network, with counts: untuned, and tuned."""
        untuned = tuned = 0.0
        for choice in self.choices:
            if choice.threads == threads and choice.decision is not None:
                before = choice.milliseconds(choice.decision.untuned)
                after = choice.milliseconds(choice.decision.winner)
                untuned += choice.layer.count * (before or after or 0.0)
                tuned += choice.layer.count * (after or 0.0)
        return untuned, tuned


def present_libraries(alone: bool = False) -> tuple[list[str], dict[str, str]]:
    """The names of all kernel libraries of this machine, ``builtin`` first; why others are not.

    With ``alone``, only those whose kernels are linked in, which work on any machine.
    """
    present, absent = [], {}
    for name in dict.fromkeys([*SHIPPED, *installed()]):
        try:
            found = library(name)
            if alone and (files := found.link().shared):
                needs = f"{name} needs {', '.join(Path(file).name for file in files)} on the device"
                absent[name] = f"{needs}; where that is, name it with --library"
            else:
                present.append(found.name)
        except LibraryError as error:
            absent[name] = str(error)
    return present, absent


@foreign_errors_as(TuningError, "tuning")
def tune_partitioned(
    module: tvm.IRModule,
    selection: Selection,
    path: Path,
    answer: Answer,
    threads: Sequence[int] = (1,),
    rounds: int = ROUNDS,
    again: bool = False,
    devices: Devices | None = None,
    target: str | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Time the layers of a module that was partitioned by a selection without a database.

    ``answer`` says what a layer's candidates must give; the rest is as for ``byoc.tune``.
    """
    require_writable(path)
    layers = tunable_layers(module, selection)
    timable = [layer for layer in layers if not layer.skipped]
    tuner = _Tuner(path, rounds, progress, answer)
    if devices is None:
        tuner.machines = {count: machine_key(count) for count in threads}
        tuner.find_known(timable, again)
        tuner.run(timable)
    else:
        machine = Target.parse(target)
        remote = RemoteTimer(devices, rounds, tuner.tell, tuner.store, answer, machine)
        progress(f"looking at {devices}", 0, 1)
        tuner.machines = remote.machines(threads)
        tuner.find_known(timable, again)
        tuner.run_remotely(timable, remote)
    choices = [c for count in threads for layer in timable if (c := tuner.choice(layer, count))]
    skipped = [layer for layer in layers if layer.skipped]
    return Tuned(path, tuner.machines, tuple(choices), tuple(skipped), lost=tuner.lost)


class _Tuner:
    """Choices by signature and threads, as they become known."""

    def __init__(self, path: Path, rounds: int, progress: Progress, answer: Answer) -> None:
        self.path, self.rounds, self.progress, self.answer = path, rounds, progress, answer
        #: What the database calls the machine that times, by number of threads.
        self.machines: dict[int, str] = {}
        self.choices: dict[tuple[str, int], Choice] = {}
        self.stamps: dict[str, str] = {}
        self.lost: tuple[str, ...] = ()
        self._done = self._total = 0

    def choice(self, layer: TunableLayer, threads: int) -> Choice | None:
        """What is known of a layer."""
        return self.choices.get((layer.signature, threads))

    def find_known(self, layers: Sequence[TunableLayer], again: bool) -> None:
        """Take from the database what it has, unless that is to be measured again."""
        for name in dict.fromkeys(name for layer in layers for name in layer.candidates):
            self.stamps[name] = stamp(library(name))
        if again:
            return
        for threads, machine in self.machines.items():
            races = races_of(self.path, machine)
            for layer in layers:
                race = races.get(layer.signature)
                if race is not None and race.covers(layer.candidates, self.stamps):
                    self.choices[layer.signature, threads] = _known(layer, threads, race)

    def run(self, layers: Sequence[TunableLayer]) -> None:
        """Compile and time what is not known, some layers at a time, storing as it goes."""
        missing = [layer for layer in layers if self._unknown(layer)]
        self._total = len(missing) * len(self.machines)
        for batch in _batches(missing):
            self.progress(
                f"compiling the candidates of {len(batch)} layers", self._done, self._total
            )
            with tempfile.TemporaryDirectory(prefix="byoc-tune-") as folder:
                file, built = build(batch, Path(folder), self.answer)
                for threads in self.machines:

                    def tell(layer: TunableLayer, threads: int = threads) -> None:
                        self.tell(layer, threads if len(self.machines) > 1 else None)

                    self._store(time_layers(file, built, threads, self.rounds, tell), threads)
        if self._total:
            self.progress("done", self._total, self._total)

    def run_remotely(self, layers: Sequence[TunableLayer], remote: RemoteTimer) -> None:
        """Time what is not known on devices, storing each layer as it comes."""
        missing = [(layer, counts) for layer in layers if (counts := self._unknown(layer))]
        self._total = len(missing)
        if missing:
            self.lost = tuple(map(str, remote.time(missing)))
            self.progress("done", self._total, self._total)

    def tell(self, layer: TunableLayer, threads: int | None = None) -> None:
        """Say that a layer's turn has come."""
        threads_text = "" if threads is None else f", {threads} threads"
        self.progress(f"{layer.label}{threads_text}", min(self._done, self._total), self._total)
        self._done += 1

    def store(self, timed: TimedLayer, threads: int) -> None:
        """Keep what became of a layer, here and in the database."""
        self._store([timed], threads)

    def _unknown(self, layer: TunableLayer) -> list[int]:
        """Numbers of threads that a layer is to be timed with."""
        return [threads for threads in self.machines if not self.choice(layer, threads)]

    def _store(self, timed: Sequence[TimedLayer], threads: int) -> None:
        races = {}
        for found in timed:
            layer = found.layer
            race = Race(
                {name: self.stamps[name] for name in layer.candidates},
                {
                    name: {a: found.times.get((name, a)) for a in algorithms}
                    for name, algorithms in layer.candidates.items()
                },
            )
            races[layer.signature] = race
            self.choices[layer.signature, threads] = Choice(
                layer,
                threads,
                {pair: found.times[pair] for pair in layer.pairs if pair in found.times},
                {pair: found.failed[pair] for pair in layer.pairs if pair in found.failed},
                decide(race, layer.untuned, layer.candidates),
                checked_by=found.checked_by,
            )
        merge(self.path, self.machines[threads], races)


def _known(layer: TunableLayer, threads: int, race: Race) -> Choice:
    """What the database says."""
    times = {(name, a): race.times[name][a] for name, a in layer.pairs}
    failed = {pair: "failed when it was timed" for pair, time in times.items() if time is None}
    timed = {pair: time for pair, time in times.items() if time is not None}
    decision = decide(race, layer.untuned, layer.candidates)
    return Choice(layer, threads, timed, failed, decision, known=True)


def _batches(layers: Sequence[TunableLayer]) -> Iterator[list[TunableLayer]]:
    batch: list[TunableLayer] = []
    held = 0.0
    for layer in layers:
        constants = [operand for operand in layer.node.operands if operand.constant]
        size = 4.0 * len(layer.pairs) * sum(product(operand.shape) for operand in constants)
        if batch and held + size > _BATCH_BYTES:
            yield batch
            batch, held = [], 0.0
        batch.append(layer)
        held += size
    if batch:
        yield batch


def to_json(tuned: Tuned) -> dict[str, Any]:
    """Plain numbers and texts: layers with all candidates, totals by threads, what was skipped."""
    layers = []
    for choice in tuned.choices:
        decision = choice.decision
        candidates = [
            {
                "library": pair[0],
                "algorithm": pair[1],
                "min_ms": choice.times[pair].fastest if pair in choice.times else None,
                "p50_ms": choice.times[pair].median if pair in choice.times else None,
                "failed": choice.failed.get(pair, ""),
            }
            for pair in choice.layer.pairs
        ]
        layers.append(
            {
                "signature": choice.layer.signature,
                "first": choice.layer.name,
                "count": choice.layer.count,
                "threads": choice.threads,
                "known": choice.known,
                "checked_by": choice.checked_by,
                "untuned": list(choice.layer.untuned),
                "winner": list(decision.winner) if decision else None,
                "gain": decision.gain if decision else 0.0,
                "candidates": candidates,
            }
        )
    totals = {
        str(n): dict(zip(("untuned_ms", "tuned_ms"), tuned.totals(n), strict=True))
        for n in tuned.machines
    }
    skipped = [
        {"signature": s.signature, "first": s.name, "count": s.count, "reason": s.skipped}
        for s in tuned.skipped
    ]
    return {
        "database": str(tuned.path),
        "machines": {str(n): machine for n, machine in tuned.machines.items()},
        "totals": totals,
        "layers": layers,
        "skipped": skipped,
        "absent": tuned.absent,
        "lost": list(tuned.lost),
    }
