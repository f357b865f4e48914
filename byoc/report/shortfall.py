"""When most of the work stays with TVM: say so, why, and what it costs.

TVM has no schedules for CPUs: what is not offloaded runs as plain loops, and what stays in float16
converts every number by a function call. A model whose dtype no kernel takes is correct and some
hundred times too slow, so that a report of it is not enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from byoc.report.left import Left
from byoc.report.reasons import Chosen
from codegen_cc.dtypes import SINGLE

#: Share of the work below which there is a shortfall.
LEAST_SHARE = 0.5

#: Nanoseconds of TVM's loops on one thread of an AVX-512 server, for a multiply-accumulate and for
#: an element of a result: matrix products of 256^3, a 3x3 convolution of 32 channels, exp, softmax.
LOOPS = (2.0, 5.0)
#: The same for dtypes that TVM computes by conversion.
CONVERTED = {"float16": (55.0, 30.0), "bfloat16": (55.0, 30.0)}

#: What kernels would take in single precision.
_WIDER = "float64"

#: Without a multiply-accumulate, seconds for each run that are worth a warning.
LEAST_SECONDS = 10e-6

#: Reasons that are listed.
_LISTED = 3


@dataclass(frozen=True)
class Blocker:
    """One reason why operators stay: how many of which operator, and of which dtype."""

    count: int
    op: str
    dtype: str
    reason: str


@dataclass(frozen=True)
class Shortfall:
    """Too little is offloaded.

    ``share`` is what is, from 0 to 1, of the model's ``unit`` (``MACs``, or ``elements`` of results
    in a model without any); ``seconds`` is an estimate of what the rest takes TVM for each run on
    one thread, every symbol of a shape taken as 1; ``blockers`` are all reasons, the most work
    first.
    """

    share: float
    unit: str
    seconds: float
    blockers: tuple[Blocker, ...]

    def __str__(self) -> str:
        """One line."""
        listed = "; ".join(f"{b.count} x {b.op}: {b.reason}" for b in self.blockers[:_LISTED])
        more = len(self.blockers) - _LISTED
        wider = any(b.dtype == _WIDER for b in self.blockers)
        remedy = f"; save the model in {SINGLE}, not in {_WIDER}" if wider else ""
        return (
            f"only {100 * self.share:.1f} % of {self.unit} are offloaded; the rest runs in TVM's "
            f"plain loops, about {_time_text(self.seconds)} for each run on one thread: {listed}"
            + f"; and {more} more reasons" * (more > 0)
            + remedy
        )


def shortfall_of(
    offloaded_macs: int, offloaded_elements: int, left: Sequence[Left]
) -> Shortfall | None:
    """What is missing, or None where at least half of the work is offloaded.

    What stays because a user said so, or because it is too little for a region, does not count.
    """
    missed = [entry for entry in left if not isinstance(entry.reason, Chosen)]
    by_macs = offloaded_macs + sum(entry.macs for entry in missed) > 0
    done = offloaded_macs if by_macs else offloaded_elements
    missing = sum(entry.macs if by_macs else entry.elements for entry in missed)
    seconds = sum(_seconds(entry) for entry in missed)
    if missing == 0 or done >= LEAST_SHARE * (done + missing):
        return None
    if not by_macs and seconds < LEAST_SECONDS:
        return None
    counts = Counter((e.op, e.dtype, e.reason) for e in missed)
    work: Counter[tuple[str, str, str]] = Counter()
    for entry in missed:
        work[entry.op, entry.dtype, entry.reason] += _seconds(entry)
    blockers = tuple(Blocker(counts[key], *key) for key, _ in work.most_common())
    return Shortfall(done / (done + missing), "MACs" if by_macs else "elements", seconds, blockers)


def _seconds(entry: Left) -> float:
    mac, element = CONVERTED.get(entry.dtype, LOOPS)
    return 1e-9 * (mac * entry.macs if entry.macs else element * entry.elements)


def _time_text(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds / 1e-6:.2g} us"
