"""Kernel libraries: who computes which node.

``supports`` and ``library_for`` ask the libraries in the order of ``LIBRARIES``.
"""

from __future__ import annotations

from codegen_cc.errors import CodegenError
from codegen_cc.libraries.builtin import BUILTIN
from codegen_cc.libraries.interface import KernelLibrary
from codegen_cc.node import Node

LIBRARIES: tuple[KernelLibrary, ...] = (BUILTIN,)


def supports(node: Node) -> str | None:
    """None if some library can compute the node, else the reasons why none can."""
    reasons = []
    for library in LIBRARIES:
        reason = library.supports(node)
        if reason is None:
            return None
        reasons.append(reason)
    return "; ".join(reasons)


def library_for(node: Node) -> KernelLibrary:
    """The first library that supports the node. Raises ``CodegenError`` where none does."""
    for library in LIBRARIES:
        if library.supports(node) is None:
            return library
    raise CodegenError(f"no kernel library computes {node.composite}: {supports(node)}")
