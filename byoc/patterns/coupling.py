"""The row of probabilities of classes that are known by pairs."""

from __future__ import annotations

from tvm import relax

from byoc.ir.coupling import NAME
from byoc.patterns.row import Candidate, Row, candidate


def build_coupling(call: relax.Call) -> Candidate:
    """Its rows of pairs."""
    return candidate("coupling", call, [("input", call.args[0])], {})


COUPLING_ROWS = (Row(NAME, build_coupling, "coupling"),)
