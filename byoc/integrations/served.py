"""A compiled network in a server: its limits, its queue, and the file that it is loaded from.

No server is named here; ``byoc/integrations/mlserver.py`` is the one that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from byoc.arguments import MAX_THREADS, as_whole
from byoc.deploy.cores import cores
from byoc.deploy.loader import Model, load
from byoc.errors import InputError, IntegrationError, LoadError
from byoc.integrations.row_queue import QueueFull, Request, RowQueue
from byoc.integrations.rows import rows_of_a_call

_MOST = 1 << 31
_JOINED = 32  # rows of a call where nobody says, for networks that take any number


class TooLarge(InputError):
    """A request has more rows than may ever wait."""


@dataclass(frozen=True)
class Limits:
    """What a user sets for a network, under ``parameters.extra`` of its settings.

    ``max_batch_rows`` is how many rows of requests are joined for one call (32 for networks that
    take any number of rows, and 1, which joins none, for others), ``max_batch_time`` how many
    seconds a call waits for more rows, ``max_queue_rows`` how many rows may wait. ``callers``
    threads call the network, each with a pool of ``threads``; by default there is one for each
    core. Every ``reload_seconds`` the file is looked at; 0 is never.
    """

    max_batch_rows: int | None = None
    max_batch_time: float = 0.0
    max_queue_rows: int = 1024
    callers: int | None = None
    threads: int = 1
    reload_seconds: float = 1.0

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Limits:
        """Check what a user set. Raises ``IntegrationError``."""
        known = {field.name for field in fields(cls)}
        if unknown := [name for name in given if name not in known]:
            raise IntegrationError(
                f"unknown setting {unknown[0]!r} in parameters.extra; "
                f"there are {', '.join(sorted(known))}"
            )
        for name, most in (
            ("max_batch_rows", _MOST),
            ("max_queue_rows", _MOST),
            ("callers", MAX_THREADS),
            ("threads", MAX_THREADS),
        ):
            if name in given:
                as_whole(given[name], name, IntegrationError, 1, most)
        for name in ("max_batch_time", "reload_seconds"):
            value = given.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 60:
                raise IntegrationError(f"{name} is {value!r}; need seconds, from 0 to 60")
        limits = cls(**given)
        callers = limits.callers or max(1, cores() // limits.threads)
        return replace(limits, callers=callers)


class Served:
    """A network that answers requests, from a file that may be replaced.

    Raises ``LoadError`` or ``IntegrationError`` where it cannot be served like this.
    """

    def __init__(self, path: Path, limits: Limits, measured: Callable[[int, float], None]) -> None:
        self.path, self.limits = path, limits
        self._identity = _identity(path)
        self.model = load(path, limits.threads)
        self._most_rows = self._rows_of(self.model)
        self._queue = RowQueue(
            self._most_rows,
            limits.max_batch_time,
            limits.max_queue_rows,
            limits.callers or 1,
            measured,
        )

    def _rows_of(self, model: Model) -> int:
        """How many rows are joined. Raises ``IntegrationError``."""
        asked = self.limits.max_batch_rows
        if model.metadata.states:
            raise IntegrationError(
                f"cannot serve {self.path}: it keeps states from call to call, which requests of "
                "different clients would share"
            )
        if asked == 1:
            return 1
        try:
            most = rows_of_a_call(model.metadata, self.path.name)
        except InputError as error:
            if asked is None:
                return 1
            raise IntegrationError(f"max_batch_rows is {asked}: {error}") from error
        rows = asked or _JOINED
        return rows if most is None else min(rows, most)

    def ask(self, inputs: Mapping[str, np.ndarray]) -> Future[dict[str, np.ndarray]]:
        """Check named arrays and let them wait for their turn; the outputs by name.

        Raises ``InputError`` for what does not fit the network, ``TooLarge`` for more rows than may
        ever wait, and ``QueueFull``.
        """
        model = self.model
        model.tensors(inputs, alignment=1)
        rows = 1
        if self._most_rows > 1:
            rows = inputs[model.inputs[0].name].shape[0]
            if rows > self.limits.max_queue_rows:
                raise TooLarge(
                    f"a request of {rows} rows; need {self.limits.max_queue_rows} at most"
                )
        request = Request(model, inputs, rows)
        self._queue.put(request)
        return request.outputs

    def reload_if_replaced(self) -> bool:
        """Load the file again where it is another one; requests that wait end on the old one.

        Raises ``LoadError`` or ``IntegrationError``, once for each file, and goes on with the old
        one.
        """
        identity = _identity(self.path)
        if identity is None or identity == self._identity:
            return False
        self._identity = identity
        model = load(self.path, self.limits.threads)
        if (rows := self._rows_of(model)) != self._most_rows:
            raise IntegrationError(
                f"{self.path} was replaced by a network of which {rows} rows are computed together "
                f"instead of {self._most_rows}; load it through the server's repository"
            )
        self.model = model
        return True

    def close(self) -> None:
        """Answer what waits, and let go of the library."""
        self._queue.close()
        self.model.close()


def _identity(path: Path) -> tuple[int, ...] | None:
    """What tells a file from its successor; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


__all__ = ["Limits", "LoadError", "QueueFull", "Served", "TooLarge"]
