"""Requests that wait for a network, and are computed together.

A request is rows of each input. Requests whose rows have equal shapes are joined along the first
axis, computed in one call, and each gets its rows of the results. Whoever asks has checked them: a
request that fails all the same fails alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from byoc.errors import ByocError
from byoc.integrations.rows import chunks

if TYPE_CHECKING:
    from byoc.deploy.loader import Model

Arrays = Mapping[str, np.ndarray]


class QueueFull(ByocError):
    """More rows wait for a network than may; the request can be made again later."""


@dataclass
class Request:
    """Checked inputs for a model, and where its outputs go."""

    model: Model
    inputs: Arrays
    rows: int
    outputs: Future[dict[str, np.ndarray]] = field(default_factory=Future)

    def joins(self, other: Request) -> bool:
        """Whether both can be computed in one call."""
        return self.model is other.model and all(
            array.shape[1:] == other.inputs[name].shape[1:] for name, array in self.inputs.items()
        )


class RowQueue:
    """Threads that take requests, and join those that are there.

    There are ``callers`` threads at most, each started when a request finds all others at work. A
    call computes ``most_rows`` rows at most; with 1 no requests are joined. A thread that found
    fewer rows waits ``seconds`` for more. ``most_waiting`` rows may wait, besides those that are
    computed. ``measured`` is told the rows of each call, and the seconds that it took.
    """

    def __init__(
        self,
        most_rows: int,
        seconds: float,
        most_waiting: int,
        callers: int,
        measured: Callable[[int, float], None],
    ) -> None:
        self.most_rows, self.seconds, self.most_waiting = most_rows, seconds, most_waiting
        self._measured, self._callers = measured, callers
        self._waiting: deque[Request] = deque()
        self._rows = 0
        self._closed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    def put(self, request: Request) -> None:
        """Let a request wait for its turn. Raises ``QueueFull``."""
        with self._changed:
            if self._closed:
                raise QueueFull("the network is being unloaded; ask again")
            if self._waiting and self._rows + request.rows > self.most_waiting:
                raise QueueFull(
                    f"{self._rows} rows wait for the network and {self.most_waiting} may; "
                    "ask again later"
                )
            self._waiting.append(request)
            self._rows += request.rows
            if len(self._waiting) > self._idle and len(self._threads) < self._callers:
                thread = threading.Thread(target=self._serve, name="byoc-rows", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more requests, compute those that wait, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while requests := self._take():
            running = [one for one in requests if one.outputs.set_running_or_notify_cancel()]
            if running:
                self._compute(running)

    def _take(self) -> list[Request]:
        """The next requests to compute together; none once the queue is closed and empty."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return []
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            taken = [self._pop(0)]
            rows = taken[0].rows
            deadline = time.monotonic() + self.seconds
            while rows < self.most_rows:
                number = self._next(taken[0], self.most_rows - rows)
                if number is not None:
                    taken.append(self._pop(number))
                    rows += taken[-1].rows
                elif self._waiting or self._closed or (left := deadline - time.monotonic()) <= 0:
                    break  # one that cannot be joined waits no longer for others
                else:
                    self._changed.wait(left)
            return taken

    def _next(self, first: Request, rows: int) -> int | None:
        """The first request that can be joined with so many rows at most."""
        for number, request in enumerate(self._waiting):
            if request.rows <= rows and first.joins(request):
                return number
        return None

    def _pop(self, number: int) -> Request:
        request = self._waiting[number]
        del self._waiting[number]
        self._rows -= request.rows
        return request

    def _compute(self, requests: list[Request]) -> None:
        try:
            results = self._call(requests)
        except Exception as error:
            if len(requests) == 1:
                requests[0].outputs.set_exception(error)
                return
            for request in requests:
                self._compute([request])
            return
        if len(requests) == 1:
            requests[0].outputs.set_result(results)
            return
        start = 0
        for request in requests:
            part = slice(start, start + request.rows)
            request.outputs.set_result({name: rows[part] for name, rows in results.items()})
            start += request.rows

    def _call(self, requests: list[Request]) -> dict[str, np.ndarray]:
        first = requests[0]
        inputs = first.inputs
        if len(requests) > 1:
            inputs = {name: np.concatenate([r.inputs[name] for r in requests]) for name in inputs}
        rows = sum(request.rows for request in requests)
        most = self.most_rows if self.most_rows > 1 else None
        slices = chunks(rows, most) if rows else [slice(0, 0)]  # results have a shape without rows
        parts = [self._timed(first.model, inputs, part) for part in slices]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _timed(self, model: Model, inputs: Arrays, part: slice) -> dict[str, np.ndarray]:
        whole = part.start == 0 and self.most_rows == 1
        given = inputs if whole else {name: array[part] for name, array in inputs.items()}
        begin = time.perf_counter()
        results = model.run(given)
        self._measured(part.stop - part.start, time.perf_counter() - begin)
        return results
