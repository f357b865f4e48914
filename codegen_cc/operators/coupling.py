"""coupling on ``ext_coupling``: probabilities of classes from those of their pairs.

The rows have the probability of the first class of each pair: (0, 1), (0, 2), ..., (1, 2), ...
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_cc.dim import is_static
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node
from codegen_cc.operator import Facts, Kernels, Operator
from codegen_cc.operators.dtype_rules import one_of
from codegen_cc.operators.sample import Sample, sample_node
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode


def pairs_of(classes: int) -> int:
    """How many pairs there are of classes."""
    return classes * (classes - 1) // 2


def _dtypes(node: Node) -> str | None:
    reason = one_of("input", node.operand("input").dtype, (SINGLE,))
    return reason or one_of("result", node.dtype, (SINGLE,))


def _supports(node: Node) -> str | None:
    x, classes = node.operand("input").shape, node.shape[-1]
    if len(x) != 2 or not is_static(x[1:]) or int(x[1]) != pairs_of(int(classes)):
        return f"rows {list(x)} for {classes} classes; need a column for each pair"
    return None


def _lower(node: RegionNode, builder: PlanBuilder) -> None:
    x = builder.dense(builder.tensor(node.role("input")))
    y = builder.space(node.node.shape, node.node.dtype, (0, 1))
    fields: dict[str, object] = {"rows": x.shape[0], "classes": y.shape[1]}
    comment = f"{node.node.composite}: {y.shape[1]} classes of {list(x.shape)}"
    builder.call("ext_coupling", [Struct("ext_coupling_params", fields), x, y], y, comment)
    builder.place(node.output, y)


def _samples() -> Iterator[Sample]:
    yield Sample("", sample_node("coupling", {"input": ((8, 6), SINGLE)}, (8, 4)))


OPERATORS = (
    Operator(
        "coupling",
        roles=("input",),
        about="probabilities of classes that agree best with those of their pairs",
        facts=Facts(ranks={"input": 2}),
        kernels=Kernels(_lower, _dtypes, _supports),
        samples=_samples,
    ),
)
