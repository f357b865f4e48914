"""What Prometheus is told of each network that is served, besides what the server itself tells.

``byoc_library_seconds`` is the time of calls of the library, ``byoc_call_rows`` their rows,
``byoc_refused_total`` counts refused requests by HTTP status, and ``byoc_reloads_total`` files that
took the place of another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from byoc.integrations.engines import require_engine

_LABELS = ("model", "version")
_SECONDS = tuple(m * 10.0**e for e in (-4, -3, -2, -1, 0) for m in (1, 2, 5))
_ROWS = tuple(2.0**e for e in range(11))


@cache
def _families() -> dict[str, Any]:
    """Made when the first network is loaded: the server decides before where values are kept."""
    kinds = require_engine("prometheus_client", "serve")
    return {
        "seconds": kinds.Histogram(
            "byoc_library_seconds", "Time of a call of the library", _LABELS, buckets=_SECONDS
        ),
        "rows": kinds.Histogram(
            "byoc_call_rows", "Rows of a call of the library", _LABELS, buckets=_ROWS
        ),
        "refused": kinds.Counter(
            "byoc_refused", "Requests without an answer, by HTTP status", (*_LABELS, "status")
        ),
        "reloads": kinds.Counter(
            "byoc_reloads", "Replaced files: taken or not", (*_LABELS, "outcome")
        ),
    }


@dataclass(frozen=True)
class Metrics:
    """Those of one network and version."""

    model: str
    version: str

    def _of(self, family: str, *labels: str) -> Any:
        return _families()[family].labels(self.model, self.version, *labels)

    def called(self, rows: int, seconds: float) -> None:
        """A call of the library ended."""
        self._of("rows").observe(rows)
        self._of("seconds").observe(seconds)

    def refused(self, status: int) -> None:
        """A request got no answer."""
        self._of("refused", str(status)).inc()

    def reloaded(self, taken: bool) -> None:
        """A file was replaced."""
        self._of("reloads", "taken" if taken else "refused").inc()


def metrics(model: str, version: str | None) -> Metrics:
    """The metrics of a network; they are there, with no values, from now on."""
    _families()
    return Metrics(model, version or "")
