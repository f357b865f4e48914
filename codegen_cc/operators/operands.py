"""Which operands must be constants, and that not all of them may be."""

from __future__ import annotations

from codegen_cc.dim import is_static
from codegen_cc.node import Node, Operand


def not_constant(operand: Operand) -> str | None:
    """None if an operand that is packed when compiling is a constant, else the reason."""
    return None if operand.constant else f"{_text(operand)} is computed; need a constant"


def all_constant(node: Node) -> str | None:
    """None if some operand is computed, else the reason: the result would be a constant as well.

    A result whose size only the caller knows is none.
    """
    if not all(operand.constant for operand in node.operands) or not is_static(node.shape):
        return None
    return f"constants alone ({', '.join(map(_text, node.operands))}); need a computed operand"


def _text(operand: Operand) -> str:
    return f"{operand.role} {operand.dtype}{list(operand.shape)}"
