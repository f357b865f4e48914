"""Which dtypes a family takes, as reasons, and their names in C."""

from __future__ import annotations

from codegen_cc import dtypes
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node


def as_stored(node: Node) -> str | None:
    """None if the node is to be computed in the dtypes that it is stored in, else the reason."""
    return f"no kernel computes {node.op} in {node.compute}" if node.compute else None


def only(node: Node, allowed: tuple[str, ...]) -> str | None:
    """None if every operand and the result have one of these dtypes, else the reason."""
    return operands_only(node, allowed) or one_of("result", node.dtype, allowed)


def operands_only(node: Node, allowed: tuple[str, ...]) -> str | None:
    """None if every operand has one of these dtypes, else the reason."""
    reasons = (one_of(operand.role, operand.dtype, allowed) for operand in node.operands)
    return next((reason for reason in reasons if reason), None)


def one_of(what: str, dtype: str, allowed: tuple[str, ...]) -> str | None:
    """None if the dtype is one of these, else the reason."""
    return None if dtype in allowed else f"{what} has dtype {dtype}; need {' or '.join(allowed)}"


def only_single(node: Node) -> str | None:
    """The rule of families that say nothing else."""
    return only(node, (SINGLE,))


def c_dtype(dtype: str) -> str:
    """The name of a dtype in ``ext_dtype``, which has all that the rules let through."""
    return str(dtypes.of(dtype).enumerator)
