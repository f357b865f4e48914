"""Where the time of a network goes: every kernel call of its regions, timed inside the library."""

from __future__ import annotations

import ctypes
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.bench.roofs import Roofs, measure_roofs, precision_of
from byoc.bench.subjects import Subject
from byoc.compiler.compile import compile
from byoc.deploy.loader import Model, load
from byoc.report.coverage import Coverage
from codegen_cc.emit.timers import ROOM, Span, Times, calls_symbol, times_symbol

if TYPE_CHECKING:
    from byoc.compiler.keywords import CompileKeywords

_PREFIX = "ext_"


@dataclass(frozen=True)
class CallTime:
    """One kernel call: what it computes, its MACs and bytes, and its median time.

    ``compute`` is the dtype that it multiplies in, empty for none, and ``node`` the number of its
    composite in the region, -1 for none. A region that runs several times in a run of the network,
    as in a loop, has the time of all. Where a composite takes several calls of a function, the last
    has its MACs and bytes, and ``node_ms`` is the time of all.
    """

    region: str
    function: str
    library: str
    composite: str
    what: str
    macs: int
    bytes: int
    compute: str
    node: int
    milliseconds: float
    node_ms: float

    @property
    def name(self) -> str:
        """The kernel and what it computes, for people."""
        return f"{self.kernel} {self.what}"

    @property
    def kernel(self) -> str:
        """The function without the prefix that all have."""
        return self.function.removeprefix(_PREFIX)

    @property
    def precision(self) -> str:
        """The precision whose peak is its roof; empty where none is known."""
        return precision_of(self.compute, self.function)

    @property
    def intensity(self) -> float:
        """Operations for each byte, two to a multiply-accumulate."""
        return 2 * self.macs / self.bytes if self.bytes else 0.0

    @property
    def gflops(self) -> float:
        """GFLOP/s, two to a multiply-accumulate."""
        return 2e-6 * self.macs / self.node_ms if self.node_ms else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s, if every operand passes through memory once."""
        return 1e-6 * self.bytes / self.node_ms if self.node_ms else 0.0


@dataclass(frozen=True)
class Timeline:
    """One run of the network: spans as (call, worker, begin, end), in milliseconds of the run.

    ``call`` counts through all calls of the profile. Worker ``WHOLE`` is the whole call; the others
    are the workers of the kernels' pool that took part in its launches, worker 0 on the thread that
    runs the network. ``dropped`` spans found no room.
    """

    milliseconds: float
    spans: tuple[tuple[int, int, float, float], ...]
    dropped: int

    @property
    def lost(self) -> str:
        """What is missing of the run, for people; empty where nothing is."""
        if not self.dropped:
            return ""
        more = "span" if self.dropped == 1 else "spans"
        return f"{self.dropped} later {more} found no room: a region keeps {ROOM} of a run"


@dataclass(frozen=True)
class Profile:
    """The calls of a network in the order in which they run.

    Each time is the median of its own over the runs; medians need not add up to ``whole_ms``.
    ``report`` is that of the partition, ``timeline`` the run whose time is nearest the median, and
    ``roofs`` are there if they were asked for.
    """

    title: str
    threads: int
    runs: int
    calls: tuple[CallTime, ...]
    whole_ms: float  # median of whole runs, timers included
    outside_ms: float  # median of what no kernel call accounts for: TVM's operators, the calls
    report: Coverage
    timeline: Timeline
    roofs: Roofs | None = None

    def by_kernel(self) -> list[tuple[str, int, float, int]]:
        """(kernel, calls, milliseconds, MACs), the slowest first."""
        groups: dict[str, list[CallTime]] = {}
        for call in self.calls:
            groups.setdefault(call.kernel, []).append(call)
        rows = [
            (name, len(calls), sum(c.milliseconds for c in calls), sum(c.macs for c in calls))
            for name, calls in groups.items()
        ]
        return sorted(rows, key=lambda row: -row[2])

    def to_json(self) -> dict[str, object]:
        """Plain numbers and texts: calls, and the roofs if these were measured."""
        found: dict[str, object] = {
            "title": self.title,
            "threads": self.threads,
            "runs": self.runs,
            "calls": [asdict(call) for call in self.calls],
            "whole_ms": self.whole_ms,
            "outside_ms": self.outside_ms,
        }
        return found if self.roofs is None else found | {"roofs": asdict(self.roofs)}


class _Region:
    """A region of a loaded model: its calls, and what it notes of them."""

    def __init__(self, model: Model, name: str, first: int) -> None:
        self.name, self.first = name, first
        self.calls: list[dict[str, Any]] = json.loads(model.function(calls_symbol(name))())
        address = model.function(times_symbol(name))()
        self._times = ctypes.cast(address, ctypes.POINTER(Times)).contents
        self._seconds = np.ctypeslib.as_array(self._times.seconds, (max(1, len(self.calls)),))

    def reset(self) -> None:
        """Forget what was noted."""
        self._seconds[:] = 0
        self._times.count = 0

    def seconds(self) -> np.ndarray:
        """Seconds of each call since the reset."""
        return self._seconds[: len(self.calls)].copy()

    def spans(self) -> tuple[np.ndarray, int]:
        """A record for each span since the reset, and how many found no room."""
        count = min(self._times.count, ROOM)
        place = ctypes.addressof(self._times.spans.contents)
        spans = np.frombuffer((Span * count).from_address(place), np.dtype(Span)).copy()
        spans["call"] += self.first
        return spans, self._times.count - count


@dataclass(frozen=True)
class _Run:
    begin: float
    end: float
    seconds: np.ndarray
    spans: list[tuple[np.ndarray, int]]

    @property
    def whole(self) -> float:
        return self.end - self.begin

    @property
    def outside(self) -> float:
        return self.whole - float(self.seconds.sum())

    def timeline(self) -> Timeline:
        spans = [
            (int(call), int(worker), 1e3 * (begin - self.begin), 1e3 * (end - self.begin))
            for found, _ in self.spans
            for begin, end, call, worker in found.tolist()
        ]
        spans.sort(key=lambda span: (span[2], span[1]))
        return Timeline(1e3 * self.whole, tuple(spans), sum(lost for _, lost in self.spans))


def profile(
    subject: Subject,
    threads: int,
    runs: int = 30,
    compiling: CompileKeywords | None = None,
    progress: Callable[[str], None] = lambda stage: None,
    with_roofs: bool = False,
) -> Profile:
    """Compile a network with timers and run it ``runs`` times, after one run that does not count.

    ``compiling`` are keywords of ``byoc.compile``. With ``with_roofs`` the CPU's roofs are measured
    after the runs, in the same process and by the same threads. Raises ``ByocError``.
    """
    with tempfile.TemporaryDirectory(prefix="byoc-profile-") as folder:
        path = Path(folder, "model.so")
        keywords: CompileKeywords = {**(compiling or {}), "progress": progress}
        compiled = compile(subject.model, path, timers=True, **keywords)
        model = load(path, threads)
        regions: list[_Region] = []
        for region in compiled.report.regions:
            first = sum(len(before.calls) for before in regions)
            regions.append(_Region(model, region.name, first))
        progress(f"run {runs} times")
        timed = _run(model, subject.inputs, regions, runs)
        medians = 1e3 * np.median([run.seconds for run in timed], axis=0)
        described = [(region.name, call) for region in regions for call in region.calls]
        calls = tuple(_calls(described, [float(each) for each in medians]))
        roofs = None
        if with_roofs:
            progress("measure the CPU's roofs")
            found = dict.fromkeys(call.precision for call in calls if call.macs and call.precision)
            roofs = measure_roofs(threads, found)
        whole = statistics.median(run.whole for run in timed)
        outside = statistics.median(run.outside for run in timed)
        nearest = min(timed, key=lambda run: abs(run.whole - whole))
        title, report, line = subject.title, compiled.report, nearest.timeline()
        model.close()
    times = {"whole_ms": 1e3 * whole, "outside_ms": 1e3 * outside}
    return Profile(title, threads, runs, calls, **times, report=report, timeline=line, roofs=roofs)


def _calls(
    described: Sequence[tuple[str, dict[str, Any]]], times: Sequence[float]
) -> Iterator[CallTime]:
    """The calls of all regions, by the region's name."""
    keys = [
        (region, call["node"], call["function"]) if call["node"] >= 0 else (region, index)
        for index, (region, call) in enumerate(described)
    ]
    of_node: dict[tuple[Any, ...], float] = defaultdict(float)
    for key, milliseconds in zip(keys, times, strict=True):
        of_node[key] += milliseconds
    for key, (region, call), milliseconds in zip(keys, described, times, strict=True):
        yield CallTime(region, **call, milliseconds=milliseconds, node_ms=of_node[key])


def _run(
    model: Model, inputs: Mapping[str, np.ndarray], regions: list[_Region], runs: int
) -> list[_Run]:
    """Run once and then ``runs`` times, which are noted."""
    tensors = model.tensors(inputs)
    model.invoke(tensors)
    found = []
    for _ in range(runs):
        for region in regions:
            region.reset()
        begin = time.perf_counter()
        model.invoke(tensors)
        end = time.perf_counter()
        seconds = np.concatenate([np.zeros(0), *(region.seconds() for region in regions)])
        found.append(_Run(begin, end, seconds, [region.spans() for region in regions]))
    return found
