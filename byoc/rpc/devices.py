"""Where to measure: one or several devices, and jobs that are shared out among them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from byoc.errors import RpcError, RpcLost
from byoc.rpc.address import Address
from byoc.rpc.session import TIMEOUT, Session, connect
from byoc.rpc.tracker import connect_tracker

#: Seconds that a device has to answer again after a session on it was lost.
RECOVERY = 10.0

Job = TypeVar("Job")


@dataclass(frozen=True)
class Devices:
    """Servers by their addresses, or ``count`` of those that a tracker has under a key.

    ``timeout`` is how many seconds to wait for each, and how long a session may last then.
    """

    servers: tuple[Address, ...] = ()
    tracker: Address | None = None
    key: str = ""
    count: int = 1
    timeout: float | None = TIMEOUT

    def __len__(self) -> int:
        return self.count if self.tracker is not None else len(self.servers)

    def open(self, number: int = 0, wait: float | None = None) -> Session:
        """A session on the server of that number, or on any free one of the tracker's.

        ``wait`` is the time to wait for it, where that is not ``timeout``. Raises ``RpcError``.
        """
        if self.tracker is not None:
            return connect_tracker(self.tracker, self.key, self.timeout, wait)
        return connect(self.servers[number], self.key, self.timeout, wait=wait)

    def open_all(self) -> list[Session]:
        """A session on each, at the same time. Raises ``RpcError``; none is open then."""
        sessions: list[Session] = []
        try:
            for number in range(len(self)):
                sessions.append(self.open(number))
        except BaseException:
            for session in sessions:
                session.close()
            raise
        return sessions

    def __str__(self) -> str:
        if self.tracker is not None:
            some = f"{self.count} devices" if self.count > 1 else "a device"
            return f"{some} of key {self.key!r} at tracker {self.tracker}"
        return ", ".join(map(str, self.servers))


class _Unreachable(Exception):
    """A device did not give a session."""

    def __init__(self, reason: RpcError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Sharing(Generic[Job]):
    """Jobs that the devices take one after the other, each device in a thread of its own.

    ``work`` does a job; it gets a function that opens a session on the device, once.  Where that
    session fails in its hands (``RpcError``), ``failed`` is told, and says whether another device
    shall do the job again.  A device that gives no session any more is left out.
    """

    def __init__(
        self,
        devices: Devices,
        work: Callable[[Job, Callable[[], Session]], None],
        failed: Callable[[Job, RpcError], bool],
    ) -> None:
        self.devices, self._work, self._failed = devices, work, failed
        #: Why devices were left out.
        self.gone: list[RpcError] = []
        self._jobs: deque[Job] = deque()
        self._running = self._alive = 0
        self._sessions: dict[int, Session] = {}
        self._error: BaseException | None = None
        self._change = threading.Condition()

    def run(self, jobs: Iterable[Job]) -> None:
        """Do all jobs. Raises what ``work`` raises, and ``RpcLost`` where no device is left."""
        self._jobs.extend(jobs)
        self._alive = len(self.devices)  # even with fewer jobs: one may be lost
        for number in range(self._alive):
            threading.Thread(target=self._serve, args=(number,), daemon=True).start()
        try:
            self._wait()
        except BaseException as error:  # interrupted
            self._end(error)
            try:
                self._wait()
            except BaseException:  # and once more, impatiently
                for session in list(self._sessions.values()):
                    session.abandon()
                self._wait()
            raise
        if self._error is not None:
            raise self._error
        if self._jobs:
            reasons = "; ".join(dict.fromkeys(map(str, self.gone)))
            raise RpcLost(f"no device is left for {len(self._jobs)} more to measure: {reasons}")

    def _wait(self) -> None:
        """Wait for all threads. Their own ``join`` takes them for ended once it is interrupted."""
        with self._change:
            self._change.wait_for(lambda: self._alive == 0)

    def _serve(self, number: int) -> None:
        try:
            while (job := self._take()) is not None:
                if not self._do(job, number):
                    # Somebody else can do the job while this one looks whether it is there.
                    self.devices.open(number, RECOVERY).close()
        except _Unreachable as error:
            self.gone.append(error.reason)
        except RpcError as error:
            self.gone.append(error)
        finally:
            with self._change:
                self._alive -= 1
                self._change.notify_all()

    def _do(self, job: Job, number: int) -> bool:
        """Do a job on a device; whether that is as it was. Raises ``_Unreachable``."""

        def open_session() -> Session:
            try:
                session = self.devices.open(number)
            except RpcError as error:
                raise _Unreachable(error) from error
            self._sessions[number] = session
            if self._error is not None:
                session.stop()
            return session

        again = well = False
        try:
            self._work(job, open_session)
            well = True
        except _Unreachable:
            again = True
            raise
        except RpcError as error:
            again = self._failed(job, error)
        except BaseException as error:
            self._end(error)
        finally:
            self._sessions.pop(number, None)
            self._done(job, again)
        return well or self._error is not None

    def _end(self, error: BaseException) -> None:
        """No further job, and nothing more for those that are at work."""
        with self._change:
            self._error = self._error or error
            self._change.notify_all()
        for session in list(self._sessions.values()):
            session.stop()

    def _take(self) -> Job | None:
        """The next job; None where there will be none, as nobody works on one any more."""
        with self._change:
            while not self._jobs and self._running and self._error is None:
                self._change.wait()
            if not self._jobs or self._error is not None:
                return None
            self._running += 1
            return self._jobs.popleft()

    def _done(self, job: Job, again: bool) -> None:
        with self._change:
            self._running -= 1
            if again:
                self._jobs.appendleft(job)
            self._change.notify_all()
