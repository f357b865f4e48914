"""The row of decision trees."""

from __future__ import annotations

from tvm import relax

from byoc.ir.trees import NAME
from byoc.patterns.row import Candidate, Row, candidate
from codegen_cc.operators.trees import ROLES


def build_trees(call: relax.Call) -> Candidate:
    """An ensemble as the call says it."""
    return candidate(
        "trees", call, zip(ROLES, call.args, strict=True), {"kind": str(call.attrs["kind"])}
    )


TREES_ROWS = (Row(NAME, build_trees, "trees"),)
