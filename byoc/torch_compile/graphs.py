"""The graphs that the backend met, for whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from byoc.deploy.metadata import Metadata


@dataclass(frozen=True)
class Part:
    """Operators of a graph that are taken or left together: the library, or why not."""

    operators: int
    metadata: Metadata | None
    reason: str = ""

    def __str__(self) -> str:
        """One line."""
        counted = _count(self.operators, "operator")
        if self.metadata is None:
            return f"{counted}, PyTorch: {self.reason}"
        report = self.metadata.report
        regions, left = len(report.get("regions", ())), len(report.get("left", ()))
        others = f", {_count(left, 'operator')} by TVM" if left else ""
        return f"{counted}, byoc: {_count(regions, 'region')}{others}"


#: Parts in the order in which they run; a list holds those that a part was split into.
Parts = list["Part | Parts"]


@dataclass(frozen=True)
class Graph:
    """One graph of PyTorch's tracer. Of one that is split, parts are known once they have run."""

    met: Parts = field(default_factory=list)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the graph was split into, in the order in which it runs; one part if it was not."""
        return tuple(_flat(self.met))

    def __str__(self) -> str:
        """A line, and where there are several parts one more for each."""
        parts = self.parts
        if len(parts) == 1:
            return str(parts[0])
        return "\n  ".join([f"{len(parts)} parts", *map(str, parts)])


def _flat(parts: Iterable[Part | Parts]) -> Iterator[Part]:
    for part in parts:
        yield from _flat(part) if isinstance(part, list) else (part,)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


#: Graphs that were met, while somebody asks.
_asked: list[list[Graph]] = []


@contextmanager
def collected() -> Iterator[list[Graph]]:
    """The graphs that the backend meets from now on."""
    _asked.append([])
    try:
        yield _asked[-1]
    finally:
        _asked.pop()


def tell(graph: Graph) -> None:
    """Note a graph."""
    for asked in _asked:
        asked.append(graph)
