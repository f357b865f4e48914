"""Ours beside the best peer: ratios, targets, means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from byoc.bench.engines import ENGINES
from byoc.bench.measure import OURS, Row
from byoc.bench.suite import Suite, Targets


@dataclass(frozen=True)
class Comparison:
    """Our median milliseconds and those of the fastest peer, for one network in one setting."""

    model: str
    title: str
    batch: int | None
    threads: int
    ours_ms: float
    peer: str
    peer_ms: float
    target: float | None = None

    @property
    def ratio(self) -> float:
        """Ours by theirs: below 1 we are faster."""
        return self.ours_ms / self.peer_ms

    @property
    def met(self) -> bool | None:
        """Whether the ratio is within its target; None without one."""
        return _met(self.ratio, self.target)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return asdict(self) | {"ratio": self.ratio, "met": self.met}


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of ``networks`` networks at one number of threads."""

    threads: int
    networks: int
    ratio: float
    target: float | None

    @property
    def met(self) -> bool | None:
        """Whether the mean is within its target; None without one."""
        return _met(self.ratio, self.target)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self) | {"met": self.met}


def compare_rows(rows: Sequence[Row], suite: Suite | None = None) -> list[Comparison]:
    """One comparison for each of our rows that has a peer beside it; plain TVM is no peer."""
    comparisons = []
    for ours in (row for row in rows if row.engine == OURS):
        setting = (ours.model, ours.batch, ours.threads)
        peers = [
            row
            for row in rows
            if (row.model, row.batch, row.threads) == setting and ENGINES[row.engine].peer
        ]
        if not peers:
            continue
        best = min(peers, key=lambda row: row.p50_ms)
        targets: Targets = suite.networks.get(ours.model, {}) if suite else {}
        comparisons.append(
            Comparison(
                *(ours.model, ours.title, ours.batch, ours.threads, ours.p50_ms),
                *(best.engine, best.p50_ms, targets.get(ours.threads)),
            )
        )
    return comparisons


def means(comparisons: Sequence[Comparison], suite: Suite | None = None) -> list[Mean]:
    """The geometric mean for each number of threads."""
    found = []
    for threads in sorted({comparison.threads for comparison in comparisons}):
        ratios = [c.ratio for c in comparisons if c.threads == threads]
        target = suite.mean.get(threads) if suite else None
        found.append(Mean(threads, len(ratios), prod(ratios) ** (1 / len(ratios)), target))
    return found


def _met(ratio: float, target: float | None) -> bool | None:
    return None if target is None else ratio <= target
