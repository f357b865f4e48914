"""Measured choice: what was timed of a layer, and which library and algorithm follow from it.

A *race* is what one run measured of one layer: all candidates, (library, algorithm) pairs, took
turns.  Times of different races are never compared, as the speed of a machine drifts.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codegen_cc.libraries.interface import KernelLibrary
from codegen_cc.node import Elsewhere, Node

#: A candidate has to take this share less time than the untuned choice to replace it: two races on
#: a busy machine gave one candidate minima that differed by up to 2.5 %.
MARGIN = 0.03

#: Bytes of a digest in ``stamp``.
_DIGEST = 4


class TuningWarning(UserWarning):
    """A tuning database, or a part of it, was ignored."""


def algorithms_of(found: KernelLibrary, node: Node) -> tuple[str, ...]:
    """How a library can compute a supported node, its own choice first.

    Libraries that offer no choice (no method ``algorithms``) have their own one alone.
    """
    node = replace(node, library=found.name, algorithm="")
    offered = getattr(found, "algorithms", None)
    names = tuple(offered(node)) if offered is not None else ()
    return names or (found.algorithm(node),)


def signature(node: Node) -> str:
    """A node without names: operator, operands, attributes, kinds of epilogue steps, result.

    >>> signature(node)
    'conv2d input float32[1,64,7,7] weight float32[64,64,1,1] const dilation=[1,1] ... relu -> ...'
    """
    parts = [node.op]
    for operand in node.operands:
        const = " const" * operand.constant
        parts.append(f"{operand.role} {operand.dtype}{_text(operand.shape)}{const}")
    parts += [f"{name}={_text(value)}" for name, value in sorted(node.attrs.items())]
    parts += [step.kind for step in node.epilogue]
    parts += ["exact"] * node.exact
    parts += [f"in {node.compute}"] * bool(node.compute)
    results = [f"{result.dtype}{_text(result.shape)}" for result in node.results]
    return " ".join([*parts, "->", *results])


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def stamp(found: KernelLibrary) -> str:
    """The version of a library, and a digest of the files that it brings into a model.

    A change of either makes times of the library void.  Raises ``CodegenError`` where the library
    cannot say what it brings.
    """
    link = found.link()
    digest = hashlib.blake2b(" ".join(link.cflags).encode(), digest_size=_DIGEST)
    for path in (*link.sources, *link.archives):
        digest.update(Path(path).read_bytes() if Path(path).is_file() else b"")
    return f"{found.version} {digest.hexdigest()}"


def able_elsewhere(node: Node) -> Node:
    """A node whose choices for other machines can compute it as it is now.

    It may be multiplied in another dtype than the one that was timed. A choice that cannot is that
    of the first machine.
    """
    from codegen_cc.libraries.registry import library

    def fits(other: Elsewhere) -> bool:
        found, trial = library(other.library), replace(node, library=other.library)
        if found.supports(trial) is not None:
            return False
        return other.algorithm in ("", *algorithms_of(found, trial))

    return replace(
        node,
        elsewhere=tuple(
            other if fits(other) else Elsewhere(other.machine, node.library, node.algorithm)
            for other in node.elsewhere
        ),
    )


@dataclass(frozen=True)
class Time:
    """Milliseconds of the fastest run and of the median one."""

    fastest: float
    median: float

    def __post_init__(self) -> None:
        if not 0 < self.fastest <= self.median < math.inf:
            raise ValueError(f"{self.fastest} and {self.median} ms are no times of runs")


@dataclass(frozen=True)
class Race:
    """One layer's candidates: stamps by library, times by library and algorithm.

    None stands for a candidate that failed or answered wrong: it was looked at, and never wins.
    """

    stamps: Mapping[str, str]
    times: Mapping[str, Mapping[str, Time | None]]

    def covers(self, candidates: Mapping[str, Sequence[str]], stamps: Mapping[str, str]) -> bool:
        """Whether all these algorithms by library took part, in these versions."""
        return all(
            self.stamps.get(name) == stamps[name] and set(algorithms) <= set(self.times[name])
            for name, algorithms in candidates.items()
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values: ``{library: {"stamp": ..., "ms": {algorithm: [fastest, median]}}}``."""
        return {
            name: {
                "stamp": self.stamps[name],
                "ms": {a: t and [round(t.fastest, 6), round(t.median, 6)] for a, t in own.items()},
            }
            for name, own in self.times.items()
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Race:
        """Read what ``to_json`` gave. Raises ``ValueError`` and the like for anything else."""
        stamps, times = {}, {}
        for name, entry in raw.items():
            stamps[name] = str(entry["stamp"])
            times[name] = {
                algorithm: None if ms is None else Time(*map(float, ms))
                for algorithm, ms in entry["ms"].items()
            }
        return cls(stamps, times)


@dataclass(frozen=True)
class Decision:
    """What a race says: the winner, the untuned choice, and how much less time the winner takes.

    Each is a library and an algorithm; ``gain`` is a share of the untuned choice's time, 0 where
    that stays.
    """

    winner: tuple[str, str]
    untuned: tuple[str, str]
    gain: float

    @property
    def why(self) -> str:
        """For reports: ``measured, 12 % faster``."""
        faster = 1 / (1 - self.gain) - 1
        return f"measured, {100 * faster:.0f} % faster" if self.gain else "measured"


def decide(race: Race, untuned: tuple[str, str], able: Iterable[str]) -> Decision | None:
    """The fastest candidate of the libraries ``able``; the untuned choice unless it is well beaten.

    That is, by ``MARGIN`` in the fastest runs, and by anything in the median ones: a lucky run does
    not win.  An untuned choice that failed loses to any candidate that did not.  None where it took
    no part, or all failed.
    """
    library, algorithm = untuned
    if algorithm not in race.times.get(library, {}):
        return None
    times = {
        (name, algorithm): time
        for name in able
        for algorithm, time in race.times.get(name, {}).items()
        if time is not None
    }
    if not times:
        return None
    best = min(times, key=lambda pair: times[pair].fastest)
    if untuned not in times:
        return Decision(best, untuned, 0.0)
    gain = 1 - times[best].fastest / times[untuned].fastest
    if gain > MARGIN and times[best].median < times[untuned].median:
        return Decision(best, untuned, gain)
    return Decision(untuned, untuned, 0.0)


class Tuning:
    """The races of this machine, by signature; ``origin`` is what warnings call their database."""

    def __init__(self, races: Mapping[str, Race], origin: str) -> None:
        self.races = races
        self.origin = origin
        self._stamps: dict[str, str] = {}
        self._told: set[str] = set()

    def apply(self, node: Node, able: Sequence[KernelLibrary]) -> Node:
        """The node with the library, of those able to compute it, and the algorithm that won.

        As it is where nothing usable was measured.
        """
        race = self.races.get(signature(node))
        if race is None:
            return node
        known = {found.name: algorithms_of(found, node) for found in able}
        usable = self._usable(race, able, known)
        own = known.get(node.library, ("",))[0]
        decision = decide(usable, (node.library, own), known)
        if decision is None:
            return node
        library, algorithm = decision.winner
        return replace(node, library=library, algorithm=algorithm, chosen=decision.why)

    def _usable(
        self, race: Race, able: Sequence[KernelLibrary], known: Mapping[str, Sequence[str]]
    ) -> Race:
        """What was measured with the libraries as they are now, by algorithms that they have."""
        times = {}
        for found in able:
            name = found.name
            if name not in race.times:
                continue
            now = self._stamps.setdefault(name, "") or stamp(found)
            self._stamps[name] = now
            if race.stamps[name] != now:
                self._tell(f"was measured with {name} {race.stamps[name]}, and this is {now}")
                continue
            for unknown in sorted(set(race.times[name]) - set(known[name])):
                self._tell(f"names an algorithm {unknown!r}, which {name} does not offer")
            times[name] = {a: t for a, t in race.times[name].items() if a in known[name]}
        return Race({name: race.stamps[name] for name in times}, times)

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            text = f"tuning database {self.origin} {problem}; that is ignored, byoc tune measures"
            warnings.warn(f"{text} again", TuningWarning, stacklevel=2)
