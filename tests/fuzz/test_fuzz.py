"""Random graphs against ONNX Runtime: what single operators' tests cannot combine.

``make fuzz`` runs ten times as many.
"""

from __future__ import annotations

import pytest

from tests.fuzz import regressions
from tests.fuzz.run import Found, fuzz, try_each
from tests.fuzz.trial import EQUAL, FAILURES, REFUSED

OWN, NNSMITH = 150, 50
JOBS = 2


def _failures(found: Found) -> list[str]:
    return [f"{key}: {o.kind}: {o.text}" for key, o in found.failures().items()]


def test_no_graph_of_ours_fails() -> None:
    found = fuzz("own", 0, OWN, JOBS)
    assert not _failures(found)
    equal = [o for o in found.outcomes.values() if o.kind == EQUAL]
    assert len(equal) > 0.6 * OWN
    assert sum(o.offloaded for o in equal) > 0.5 * sum(o.operators for o in equal)


def test_no_graph_of_nnsmith_fails() -> None:
    pytest.importorskip("nnsmith", reason="NNSmith is not installed (make fuzz installs it)")
    found = fuzz("nnsmith", 0, NNSMITH, JOBS)
    assert not _failures(found)
    assert sum(o.kind == EQUAL for o in found.outcomes.values()) > 0.6 * NNSMITH


def test_what_once_failed_does_not() -> None:
    known = regressions.read()
    outcomes = try_each([graph for _, graph in known], JOBS)
    pairs = zip(known, outcomes, strict=True)
    failed = [f"{title}: {o.text}" for (title, _), o in pairs if o.kind in FAILURES]
    assert not failed
    assert {o.kind for o in outcomes} <= {EQUAL, REFUSED}
