"""The rows of decision trees, and of the cuts that their branches make."""

from __future__ import annotations

from tvm import relax

from byoc.ir.cuts import NAME as CUTS
from byoc.ir.trees import NAME
from byoc.patterns.row import Candidate, Row, candidate
from codegen_cc.operators.trees import CUT_ROLES, ROLES


def build_trees(call: relax.Call) -> Candidate:
    """An ensemble as the call says it."""
    return candidate(
        "trees", call, zip(ROLES, call.args, strict=True), {"kind": str(call.attrs["kind"])}
    )


def build_cuts(call: relax.Call) -> Candidate:
    """Places among cuts."""
    return candidate("cuts", call, zip(CUT_ROLES, call.args, strict=True), {})


TREES_ROWS = (Row(NAME, build_trees, "trees"), Row(CUTS, build_cuts, "cuts"))
