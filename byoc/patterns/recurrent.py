"""The row of recurrent layers."""

from __future__ import annotations

from tvm import relax

from byoc.ir.recurrent import NAME, attributes_of_layer, operands_of_layer
from byoc.patterns.row import Candidate, Row, candidate


def build_recurrent(call: relax.Call) -> Candidate:
    """A layer as the call says it."""
    return candidate("recurrent", call, operands_of_layer(call).items(), attributes_of_layer(call))


RECURRENT_ROWS = (Row(NAME, build_recurrent, "recurrent"),)
