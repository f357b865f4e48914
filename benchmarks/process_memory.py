"""Run a command and see how much memory it and the programs that it starts had at most.

Linux keeps the most that a process ever had in memory as VmHWM in ``/proc``; it begins anew when a
process becomes another program, which ru_maxrss does not.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import said
from byoc.bench.machine import peak_mb
from byoc.errors import BenchmarkError

_PERIOD = 0.004  # seconds between two looks


@dataclass(frozen=True)
class Finished:
    """A command that ended: what it wrote, how long it took, and MB of memory at most.

    ``tools`` are the programs that it started, by name, each alone.
    """

    status: int
    output: str
    messages: str
    seconds: float
    peak_mb: float
    tools: dict[str, float] = field(default_factory=dict)

    def require(self, who: str) -> Finished:
        """Itself. Raises ``BenchmarkError``, which names ``who``, where it failed."""
        if self.status != 0:
            raise BenchmarkError(f"{who} failed: {said(self.messages)}")
        return self


def run_watched(command: Sequence[str | os.PathLike[str]], env: dict[str, str]) -> Finished:
    """Run a command to its end."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    )
    peaks: dict[tuple[int, str], float] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended))
    watcher.start()
    try:
        output, messages = process.communicate()
    finally:
        seconds = time.perf_counter() - begin
        ended.set()
        watcher.join()
    own = max((mb for (pid, _), mb in peaks.items() if pid == process.pid), default=0.0)
    tools: dict[str, float] = {}
    for (pid, name), mb in peaks.items():
        if pid != process.pid:
            tools[name] = max(mb, tools.get(name, 0.0))
    return Finished(process.returncode, output, messages, seconds, own, tools)


def _watch(root: int, peaks: dict[tuple[int, str], float], ended: threading.Event) -> None:
    program = _program(root)
    while not ended.wait(_PERIOD):
        for pid in (root, *_descendants(root)):
            name = _program(pid)
            # Between vfork and exec a child is its parent, memory and all.
            if name is not None and (pid == root or name != program):
                key = (pid, Path(name).name)
                peaks[key] = max(peak_mb(pid), peaks.get(key, 0.0))


def _descendants(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield int(child)
                yield from _descendants(int(child))


def _program(pid: int) -> str | None:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe")
    return None
