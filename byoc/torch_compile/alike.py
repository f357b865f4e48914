"""Libraries of one graph, each for the weights of one of several layers that are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Sets of weights for which one graph has libraries.
_MOST = 64


@dataclass
class _Kept:
    """What runs the graph, its weights, and in which call these were given last."""

    run: Callable[..., Any]
    weights: Sequence[Any]  # beside it, so that no other tensors get their places in memory
    last: int


class Alike:
    """What runs a graph by the weights that it is given: these very tensors.

    PyTorch compiles the code of a layer once for all that are alike.  Those of a network in use
    take turns; one that has missed two rounds belongs to a network that is gone, and falls away
    with its weights when there are others to be kept.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], _Kept] = {}
        self._calls = 0

    def find(self, weights: Sequence[Any]) -> Callable[..., Any] | None:
        """What runs the graph on these weights, if it is kept."""
        self._calls += 1
        kept = self._kept.get(tuple(map(id, weights)))
        if kept is None:
            return None
        kept.last = self._calls
        return kept.run

    def has_room(self) -> bool:
        """Whether one more may be kept; those that are out of use make room."""
        begin = self._calls - 2 * (len(self._kept) + 1)
        self._kept = {key: kept for key, kept in self._kept.items() if kept.last > begin}
        return len(self._kept) < _MOST

    def keep(self, weights: Sequence[Any], run: Callable[..., Any]) -> None:
        """Keep what runs the graph on these weights."""
        self._kept[tuple(map(id, weights))] = _Kept(run, weights, self._calls)
