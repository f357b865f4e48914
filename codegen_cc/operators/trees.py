"""trees on ``ext_trees``: the leaves that rows reach in an ensemble of decision trees.

    y[r, targets[v] + w] = sum over trees of values[v, w], v the leaf of row r in the tree

or the least or greatest of them. All operands but the rows are constants: a branch, a place in four
arrays, goes on at ``children`` where ``input[r, features] <= thresholds``, with ``EQUAL`` in its
tag where they are equal, and with ``ABSENT`` where that number is NaN as well; else one place
further. A leaf is where the child lies one place before; its row of values is ``tags / 4``. Of each
tree the root's place is given, and how many steps its farthest leaf is away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen_cc.dim import is_static, same
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Operator
from codegen_cc.operators.dtype_rules import one_of
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

ABSENT, EQUAL, ROW = 1, 2, 4  # in tags, as in ``ext_trees.h``
KINDS = ("sum", "least", "greatest")

#: Roles of the places of nodes, and of what else is constant, with their dtypes.
NODES = {"thresholds": SINGLE, "features": "int32", "children": "int32", "tags": "int32"}
TREES_AND_LEAVES = {"roots": "int32", "depths": "int32", "values": SINGLE, "targets": "int32"}
ROLES = {"input": SINGLE, **NODES, **TREES_AND_LEAVES}


#: Those of ``cuts``: all of a column's side by side, ascending, and where each column's begin.
CUT_ROLES = {"input": "float64", "cuts": "float64", "first": "int32"}


def _dtypes(node: Node) -> str | None:
    """Numbers in float32, places in int32."""
    reasons = (one_of(role, node.operand(role).dtype, (dtype,)) for role, dtype in ROLES.items())
    return next((r for r in reasons if r), None) or one_of("result", node.dtype, (SINGLE,))


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    if node.attrs["kind"] not in KINDS:
        return f"trees kind {node.attrs['kind']}; need one of {', '.join(KINDS)}"
    for role in ROLES:
        operand = node.operand(role)
        if role != "input" and (reason := not_constant(operand)) is not None:
            return reason
        rank = 2 if role in ("input", "values") else 1
        if len(operand.shape) != rank:
            return f"{role} has rank {len(operand.shape)}; need {rank}"
    features = node.operand("input").shape[1]
    if not is_static([features]) or same(features, 0):
        return f"rows of {features} features; need a fixed number"
    return None


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call of ``ext_trees``, with the four arrays of the nodes side by side."""
    x = builder.dense(builder.tensor(node.role("input")))
    y = builder.space(node.node.shape, node.node.dtype, (0, 1))
    parts = [np.ascontiguousarray(node.role(role).data).view(np.int32) for role in NODES]
    nodes = builder.constant(np.stack(parts, 1))
    roots, depths, values, targets = (
        builder.constant(node.role(role).data) for role in TREES_AND_LEAVES
    )
    _, _, children, tags = parts
    inner = children > np.arange(len(children))
    fields: dict[str, object] = {
        "rows": x.shape[0],
        "features": x.shape[1],
        "trees": roots.shape[0],
        "width": values.shape[1],
        "outputs": y.shape[1],
        "kind": f"EXT_TREES_{node.node.attrs['kind'].upper()}",
        "plain": int(not tags[inner].any()),
    }
    comment = f"{node.node.composite}: {roots.shape[0]} trees for {list(x.shape)}"
    arguments = [Struct("ext_trees_params", fields), x, nodes, roots, depths, values, targets, y]
    builder.call("ext_trees", arguments, y, comment)
    builder.place(node.output, y)


# ---------------------------------------------------------------- cuts


def _cuts_dtypes(node: Node) -> str | None:
    reasons = (
        one_of(role, node.operand(role).dtype, (dtype,)) for role, dtype in CUT_ROLES.items()
    )
    return next((r for r in reasons if r), None) or one_of("result", node.dtype, (SINGLE,))


def _cuts_support(node: Node) -> str | None:
    x, cuts, first = (node.operand(role) for role in CUT_ROLES)
    if (reason := not_constant(cuts) or not_constant(first)) is not None:
        return reason
    if len(x.shape) != 2 or not is_static(x.shape[1:]) or same(x.shape[1], 0):
        return f"rows {list(x.shape)}; need a fixed number of features"
    if first.shape != (x.shape[1] + 1,) or len(cuts.shape) != 1:
        return f"first {list(first.shape)} for {x.shape[1]} features; need one more"
    return None


def _lower_cuts(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.dense(builder.tensor(node.role("input")))
    y = builder.space(node.node.shape, node.node.dtype, (0, 1))
    cuts, first = (builder.constant(node.role(role).data) for role in ("cuts", "first"))
    fields: dict[str, object] = {"rows": x.shape[0], "features": x.shape[1]}
    comment = f"{node.node.composite}: {cuts.shape[0]} cuts for {list(x.shape)}"
    builder.call("ext_cuts", [Struct("ext_cuts_params", fields), x, cuts, first, y], y, comment)
    builder.place(node.output, y)


def _cuts_samples() -> Iterator[Sample]:
    operands = {"input": ((8, 16), "float64"), "cuts": ((96,), "constant float64")}
    operands |= {"first": ((17,), "constant int32")}
    yield Sample("", sample_node("cuts", operands, (8, 16)))


CUTS = Operator(
    "cuts",
    roles=tuple(CUT_ROLES),
    about="where numbers lie among the cuts of their column: 2 k at cut k, 2 k - 1 below it",
    facts=Facts(ranks={"input": 2}),
    kernels=Kernels(_lower_cuts, _cuts_dtypes, _cuts_support),
    samples=_cuts_samples,
)


# ---------------------------------------------------------------- the record


def _samples() -> Iterator[Sample]:
    operands: dict[str, tuple] = {"input": ((8, 16), REAL)}
    operands |= {role: ((96,), f"constant {dtype}") for role, dtype in NODES.items()}
    operands |= {role: ((32,), "constant int32") for role in ("roots", "depths")}
    operands |= {"values": ((64, 1), f"constant {SINGLE}"), "targets": ((64,), "constant int32")}
    for kind in KINDS:
        yield Sample(kind, sample_node("trees", operands, (8, 1), kind=kind))


TREES = Operator(
    "trees",
    roles=tuple(ROLES),
    attributes={"kind": ", ".join(KINDS)},
    about="sums, or extremes, of the values of leaves that rows reach in decision trees",
    facts=Facts(ranks={"input": 2}, told_by={"kind": ()}),
    kernels=Kernels(lower, _dtypes, supports),
    samples=_samples,
)

OPERATORS = (TREES, CUTS)
