"""grouped_matmul on ``ext_matmul_grouped``: each row of A by the matrix of its group.

    y[i][:] = lhs[i][:] rhs<group[i]>, or 0 where there is no matrix of that number

for lhs [S, K], group [S, 1] of int64 and constants rhs0, rhs1, ... [K, N].  Rows that lie side by
side and have one group are one product: those of a mixture of experts, which are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen_cc.dim import Dim, product
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Layout, Narrow, Operator
from codegen_cc.operators.bfloat16 import (
    BFLOAT16_PANELS,
    in_bfloat16,
    in_parts,
    narrow,
    no_gain,
    storage_struct,
)
from codegen_cc.operators.dtype_rules import one_of
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import FLOAT32_PANELS
from codegen_cc.operators.sample import REAL, Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Argument, Struct
from codegen_cc.region.graph import RegionNode


def matrices_of(node: Node) -> list[str]:
    """The roles of the matrices, in the order of their groups."""
    return [operand.role for operand in node.operands[2:]]


def dtypes(node: Node) -> str | None:
    """float32, and int64 for the groups."""
    group = one_of("group", node.operand("group").dtype, ("int64",))
    floats = [operand for operand in node.operands if operand.role != "group"]
    return group or next(
        filter(None, (one_of(o.role, o.dtype, ("float32",)) for o in floats)), None
    )


def supports(node: Node) -> str | None:
    """None if the kernel can compute the node, else the reason."""
    lhs, group = node.operand("lhs"), node.operand("group")
    if len(lhs.shape) != 2 or group.shape != (lhs.shape[0], 1):
        return f"lhs {list(lhs.shape)} and group {list(group.shape)}; need [S, K] and [S, 1]"
    for role in matrices_of(node):
        matrix = node.operand(role)
        if not matrix.constant:
            return not_constant(matrix)
        if matrix.shape != (lhs.shape[1], node.shape[1]) or 0 in matrix.shape:
            return f"{role} {list(matrix.shape)}; need {[lhs.shape[1], node.shape[1]]}"
    return None


def computes(node: Node) -> str | None:
    """None for products in bfloat16 where they gain, else the reason."""
    if in_parts(node):
        return "bf16x3 of products by groups; need float32 or bf16"
    return no_gain(node)


def lower(node: RegionNode, builder: PlanBuilder) -> None:
    """One call for all rows."""
    x = builder.tensor(node.role("lhs"))
    if x.strides[1] != 1:
        x = builder.dense(x)
    group = builder.dense(builder.tensor(node.role("group")))
    roles = matrices_of(node.node)
    matrices = np.stack([node.role(role).data for role in roles])
    narrows = in_bfloat16(node.node)
    panels = builder.constant((BFLOAT16_PANELS if narrows else FLOAT32_PANELS).pack(matrices))
    y = builder.space(node.node.shape, builder.stored_dtype(node.output))
    rows, n = node.node.shape
    fields: dict[str, object] = {"m": rows, "n": n, "k": x.shape[1], "a_row": x.strides[0]}
    fields |= {"a_col": 1, "y_row": n}
    arguments: list[Argument] = [Struct("ext_matmul_params", fields)]
    if narrows:
        arguments.append(storage_struct(x, None, y))
    arguments += [len(roles), group, x, panels, y]
    comment = f"{node.node.composite} of {len(roles)}: {list(x.shape)} x {list(matrices.shape[1:])}"
    function = "ext_matmul_grouped" + "_bf16" * narrows
    builder.call(function, arguments, y, comment)
    builder.place(node.output, y)


def _macs(node: Node) -> Dim:
    return product(node.shape) * node.operand("lhs").shape[1]


def _samples() -> Iterator[Sample]:
    operands: dict[str, tuple] = {"lhs": ((32, 64), REAL), "group": ((32, 1), "int64")}
    operands |= {f"rhs{i}": ((64, 48), "constant") for i in range(2)}
    yield Sample("", sample_node("grouped_matmul", operands, (32, 48)))


GROUPED_MATMUL = Operator(
    "grouped_matmul",
    roles=("lhs", "group", "rhs0", "rhs1"),
    repeats="rhs",
    about="each row of lhs by the matrix that group names, 0 where there is none",
    macs=_macs,
    layout=Layout.FREE,
    facts=Facts(ranks={"lhs": 2}),
    kernels=Kernels(
        lower,
        dtypes,
        supports,
        lambda node: "grouped products" + ", bf16" * in_bfloat16(node),
        computes=computes,
        narrow=lambda node: narrow("lhs") if in_bfloat16(node) else Narrow(),
    ),
    samples=_samples,
)

OPERATORS = (GROUPED_MATMUL,)
