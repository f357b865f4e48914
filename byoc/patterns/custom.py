"""The row of operators that users' kernel libraries bring."""

from __future__ import annotations

from tvm import relax

from byoc.ir.custom import NAME, attributes_of_custom, operands_of_custom, record_of
from byoc.patterns.row import Candidate, Row, candidate


def build_custom(call: relax.Call) -> Candidate:
    """The operator that the call says, with the record's operands and attributes."""
    operands = operands_of_custom(call).items()
    return candidate(record_of(call).name, call, operands, attributes_of_custom(call))


CUSTOM_ROWS = (Row(NAME, build_custom, ""),)
