"""Where the time of a network goes: every kernel call of its regions, timed inside the library."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.bench.subjects import Subject
from byoc.compiler.compile import compile
from byoc.deploy.loader import load
from codegen_cc.emit.timers import calls_symbol, seconds_symbol

if TYPE_CHECKING:
    from byoc.compiler.keywords import CompileKeywords

_PREFIX = "ext_"


@dataclass(frozen=True)
class CallTime:
    """One kernel call: what it computes, its MACs and bytes, and its median time."""

    region: str
    function: str
    library: str
    composite: str
    what: str
    macs: int
    bytes: int
    milliseconds: float

    @property
    def gflops(self) -> float:
        """GFLOP/s, two to a multiply-accumulate."""
        return 2e-6 * self.macs / self.milliseconds if self.milliseconds else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s, if every operand passes through memory once."""
        return 1e-6 * self.bytes / self.milliseconds if self.milliseconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The calls of a network in the order in which they run."""

    title: str
    threads: int
    runs: int
    calls: tuple[CallTime, ...]
    whole_ms: float  # median of whole runs, timers included

    @property
    def outside_ms(self) -> float:
        """What no kernel call accounts for: operators that stay with TVM, and calls themselves."""
        return max(0.0, self.whole_ms - sum(call.milliseconds for call in self.calls))

    def by_kernel(self) -> list[tuple[str, int, float, int]]:
        """(kernel, calls, milliseconds, MACs), the slowest first."""
        groups: dict[str, list[CallTime]] = {}
        for call in self.calls:
            groups.setdefault(call.function.removeprefix(_PREFIX), []).append(call)
        rows = [
            (name, len(calls), sum(c.milliseconds for c in calls), sum(c.macs for c in calls))
            for name, calls in groups.items()
        ]
        return sorted(rows, key=lambda row: -row[2])

    def to_json(self) -> dict[str, object]:
        """Plain numbers and texts."""
        return asdict(self)


def profile(
    subject: Subject,
    threads: int,
    runs: int = 30,
    compiling: CompileKeywords | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> Profile:
    """Compile a network with timers and run it ``runs`` times, after one run that does not count.

    ``compiling`` are keywords of ``byoc.compile``. Raises ``ByocError``.
    """
    with tempfile.TemporaryDirectory(prefix="byoc-profile-") as folder:
        path = Path(folder, "model.so")
        keywords: CompileKeywords = {**(compiling or {}), "progress": progress}
        compiled = compile(subject.model, path, timers=True, **keywords)
        model = load(path, threads)
        regions = [region.name for region in compiled.report.regions]
        described = {name: json.loads(model.function(calls_symbol(name))()) for name in regions}
        readers = {name: model.function(seconds_symbol(name)) for name in regions}
        tensors = model.tensors(subject.inputs)
        progress(f"run {runs} times")
        model.invoke(tensors)
        seconds: dict[tuple[str, int], list[float]] = {}
        whole = []
        for _ in range(runs):
            begin = time.perf_counter()
            model.invoke(tensors)
            whole.append(time.perf_counter() - begin)
            for name, calls in described.items():
                for index in range(len(calls)):
                    seconds.setdefault((name, index), []).append(readers[name](index))
    calls = tuple(
        CallTime(name, **call, milliseconds=1e3 * statistics.median(seconds[name, index]))
        for name, calls in described.items()
        for index, call in enumerate(calls)
    )
    return Profile(subject.title, threads, runs, calls, 1e3 * statistics.median(whole))
