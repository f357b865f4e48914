"""The graphs that the backend met, for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from byoc.deploy.metadata import Metadata


@dataclass(frozen=True)
class Graph:
    """One graph of PyTorch's tracer: its operators, and the library, or why PyTorch runs it."""

    operators: int
    metadata: Metadata | None
    reason: str = ""

    def __str__(self) -> str:
        """One line."""
        if self.metadata is None:
            return f"{self.operators} operators, PyTorch: {self.reason}"
        report = self.metadata.report
        regions, left = len(report.get("regions", ())), report.get("left", ())
        others = f", {len(left)} operators by TVM" if left else ""
        plural = "" if regions == 1 else "s"
        return f"{self.operators} operators, byoc: {regions} region{plural}{others}"


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
