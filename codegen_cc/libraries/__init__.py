"""Kernel libraries: who computes which node.

``supports`` and ``library_for`` ask the libraries in the order of ``LIBRARIES``.
"""

from __future__ import annotations

from codegen_cc.dim import symbols
from codegen_cc.errors import CodegenError
from codegen_cc.libraries.builtin import BUILTIN
from codegen_cc.libraries.interface import KernelLibrary
from codegen_cc.node import Node

LIBRARIES: tuple[KernelLibrary, ...] = (BUILTIN,)


def supports(node: Node) -> str | None:
    """None if some library can compute the node, else the reasons why none can."""
    reason = _underivable(node)
    if reason is not None:
        return reason
    reasons = []
    for library in LIBRARIES:
        reason = library.supports(node)
        if reason is None:
            return None
        reasons.append(reason)
    return "; ".join(reasons)


def _underivable(node: Node) -> str | None:
    """Why the result's shape does not follow from the operands', or None.

    The importer's Reshape to computed values is such a node. A region of others alone finds all of
    its symbols in the shapes of its inputs.
    """
    known = set(symbols(dim for operand in node.operands for dim in operand.shape))
    new = [symbol.name for symbol in symbols(node.shape) if symbol not in known]
    if new:
        return f"dimension {', '.join(new)} of the result is in no operand's shape; need one"
    return None


def library_for(node: Node) -> KernelLibrary:
    """The first library that supports the node. Raises ``CodegenError`` where none does."""
    for library in LIBRARIES:
        if library.supports(node) is None:
            return library
    raise CodegenError(f"no kernel library computes {node.composite}: {supports(node)}")
