"""Ours beside the best peer: ratios, targets, means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from byoc.bench.engines import ENGINES
from byoc.bench.measure import OURS, Row
from byoc.bench.precision import FP32, PRECISIONS
from byoc.bench.suite import Suite, Targets


@dataclass(frozen=True)
class Comparison:
    """Our median milliseconds and those of the fastest peer, for one network in one setting.

    The peer computed in the same precision.
    """

    model: str
    title: str
    batch: int | None
    threads: int
    ours_ms: float
    peer: str
    peer_ms: float
    target: float | None = None
    precision: str = FP32

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
    precision: str = FP32

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
        peers = [
            row for row in rows if _setting(row) == _setting(ours) and ENGINES[row.engine].peer
        ]
        if not peers:
            continue
        best = min(peers, key=lambda row: row.p50_ms)
        targets = _targets(suite, ours.precision).get(ours.model, {})
        comparisons.append(
            Comparison(
                *(ours.model, ours.title, ours.batch, ours.threads, ours.p50_ms),
                *(best.engine, best.p50_ms, targets.get(ours.threads), ours.precision),
            )
        )
    return comparisons


def means(comparisons: Sequence[Comparison], suite: Suite | None = None) -> list[Mean]:
    """The geometric mean for each precision and number of threads."""
    found = []
    for precision, threads in dict.fromkeys((c.precision, c.threads) for c in comparisons):
        ratios = [c.ratio for c in comparisons if (c.precision, c.threads) == (precision, threads)]
        wanted = suite and (suite.mean if precision == FP32 else PRECISIONS[precision].mean)
        mean = prod(ratios) ** (1 / len(ratios))
        found.append(Mean(threads, len(ratios), mean, (wanted or {}).get(threads), precision))
    return found


def _setting(row: Row) -> tuple[object, ...]:
    return row.model, row.batch, row.threads, row.precision


def _targets(suite: Suite | None, precision: str) -> Mapping[str, Targets]:
    """The greatest ratios by network."""
    if suite is None:
        return {}
    most = PRECISIONS[precision].most
    return suite.networks if most is None else dict.fromkeys(suite.networks, most)


def _met(ratio: float, target: float | None) -> bool | None:
    return None if target is None else ratio <= target
