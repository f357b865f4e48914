"""Processes that run cases: a crash or an endless loop costs one process, not the run.

Workers are forked from a server process that has imported everything and run nothing, so that
another one is there at once, and none inherits a thread pool without its threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.conformance.cases import Case, all_cases
from tests.conformance.engines import FAILED, Result, run_case

#: Seconds that a case may take. The networks take TVM's own loops a minute or so, and LLVM needs
#: another for TVM's bfloat16 code of an attention.
TIME_LIMIT = {"light": 900.0}
USUAL_TIME_LIMIT = 240.0

#: Cases before a worker is replaced: what TVM compiles in a process stays in its memory.
CASES_PER_WORKER = 150

Task = tuple[Case, str]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.conformance.preload"])


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    deadline: float = 0.0
    done: int = 0


def run_tasks(
    tasks: Iterable[Task], jobs: int, finished: Callable[[Case, str, Result], list[Task]]
) -> None:
    """Run each task in one of ``jobs`` processes.

    ``finished`` is called in this process with each result and may return further tasks.
    """
    queue = list(reversed(list(tasks)))
    workers: list[_Worker] = []
    while queue or workers:
        while queue and len(workers) < jobs:
            workers.append(_start())
        for worker in list(workers):
            if worker.task is None and not _give(worker, queue):
                _stop(worker)
                workers.remove(worker)
        for worker, result in _results(workers):
            case, engine = worker.task
            worker.task = None
            queue += reversed(finished(case, engine, result))
            if not worker.process.is_alive() or worker.done >= CASES_PER_WORKER:
                _stop(worker)
                workers.remove(worker)


def _start() -> _Worker:
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection) -> None:
    """The loop of a worker. What TVM prints is dropped."""
    table = {case.name: case for case in all_cases()}
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    while (message := pipe.recv()) is not None:
        name, engine = message
        pipe.send(run_case(table[name], engine))


def _give(worker: _Worker, queue: list[Task]) -> bool:
    if not queue:
        return False
    case, engine = worker.task = queue.pop()
    worker.deadline = time.monotonic() + TIME_LIMIT.get(case.kind, USUAL_TIME_LIMIT)
    worker.done += 1
    worker.pipe.send((case.name, engine))
    return True


def _stop(worker: _Worker) -> None:
    if worker.process.is_alive():
        worker.pipe.send(None)
        worker.process.join(5)
    if worker.process.is_alive():
        worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _results(workers: list[_Worker]) -> list[tuple[_Worker, Result]]:
    """Wait for the next results; a dead or overdue worker gives one as well."""
    busy = [worker for worker in workers if worker.task is not None]
    if not busy:
        return []
    patience = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    wait([worker.pipe for worker in busy], patience)
    found = []
    for worker in busy:
        if worker.pipe.poll():
            try:
                found.append((worker, worker.pipe.recv()))
            except (EOFError, ConnectionError):
                worker.process.join()
                found.append((worker, Result(FAILED, _cause(worker.process.exitcode))))
        elif time.monotonic() >= worker.deadline:
            worker.process.kill()
            worker.process.join()
            limit = TIME_LIMIT.get(worker.task[0].kind, USUAL_TIME_LIMIT)
            found.append((worker, Result(FAILED, f"no result in {limit:.0f} s")))
    return found


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"
