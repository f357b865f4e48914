"""Processes that run tasks: a crash or an endless loop costs one process, not the run.

Workers are forked from a server process that has imported everything and run nothing, so that
another one is there at once, and none inherits a thread pool without its threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Lost:
    """A task without a result: its process died, or took too long."""

    text: str
    timeout: bool = False


@dataclass
class _Worker(Generic[Task]):
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    deadline: float = 0.0
    limit: float = 0.0
    done: int = 0


@dataclass(frozen=True)
class Pool(Generic[Task]):
    """How tasks are run.

    ``run`` is a function of a module, called with what ``message`` (by default nothing) makes of a
    task; that and results must be picklable. ``limit`` gives the seconds that a task may take.
    ``preload`` names the modules that the server process imports; the first pool of a process
    decides. A worker is replaced after ``tasks_per_worker``: what TVM compiles in a process stays
    in its memory.
    """

    run: Callable[[Any], Any]
    limit: Callable[[Task], float]
    preload: Sequence[str]
    message: Callable[[Task], Any] = lambda task: task
    tasks_per_worker: int = 150

    def run_tasks(
        self, tasks: Iterable[Task], jobs: int, finished: Callable[[Task, Any], Iterable[Task]]
    ) -> None:
        """Run each task in one of ``jobs`` processes.

        ``finished`` is called in this process with each result, or ``Lost``, and may return further
        tasks, which come first.
        """
        _context.set_forkserver_preload(list(self.preload))
        queue = list(reversed(list(tasks)))
        workers: list[_Worker[Task]] = []
        try:
            while queue or workers:
                while queue and len(workers) < jobs:
                    workers.append(self._start())
                for worker in list(workers):
                    if worker.task is None and not self._give(worker, queue):
                        _stop(worker)
                        workers.remove(worker)
                for worker, result in _results(workers):
                    task, worker.task = worker.task, None
                    queue += reversed(list(finished(task, result)))
                    if not worker.process.is_alive() or worker.done >= self.tasks_per_worker:
                        _stop(worker)
                        workers.remove(worker)
        finally:
            for worker in workers:
                worker.process.kill()
                _stop(worker)

    def _start(self) -> _Worker[Task]:
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_serve, args=(theirs, self.run), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _give(self, worker: _Worker[Task], queue: list[Task]) -> bool:
        if not queue:
            return False
        worker.task = queue.pop()
        worker.limit = self.limit(worker.task)
        worker.deadline = time.monotonic() + worker.limit
        worker.done += 1
        worker.pipe.send((self.message(worker.task),))
        return True


def _serve(pipe: Connection, run: Callable[[Any], Any]) -> None:
    """The loop of a worker. What TVM prints is dropped."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while (message := pipe.recv()) is not None:
        try:
            result = run(message[0])
        except Exception:  # of the test, not of what it tests
            result = Lost(traceback.format_exc())
        pipe.send(result)


def _stop(worker: _Worker[Any]) -> None:
    if worker.process.is_alive():
        with suppress(OSError):
            worker.pipe.send(None)
        worker.process.join(5)
    if worker.process.is_alive():
        worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _results(workers: list[_Worker[Task]]) -> list[tuple[_Worker[Task], Any]]:
    """Wait for the next results; a dead or overdue worker gives one as well."""
    busy = [worker for worker in workers if worker.task is not None]
    if not busy:
        return []
    patience = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    wait([worker.pipe for worker in busy], patience)
    found: list[tuple[_Worker[Task], Any]] = []
    for worker in busy:
        if worker.pipe.poll():
            try:
                found.append((worker, worker.pipe.recv()))
            except (EOFError, ConnectionError):
                worker.process.join()
                found.append((worker, Lost(_cause(worker.process.exitcode))))
        elif time.monotonic() >= worker.deadline:
            worker.process.kill()
            worker.process.join()
            found.append((worker, Lost(f"no result in {worker.limit:.0f} s", timeout=True)))
    return found


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"
