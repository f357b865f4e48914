"""Kernel libraries: who computes which node."""

from __future__ import annotations

from functools import cache

from codegen_cc.errors import CodegenError
from codegen_cc.libraries.interface import LIBRARY_ABI, KernelLibrary, Link, Threads
from codegen_cc.libraries.registry import library
from codegen_cc.libraries.selection import Selection
from codegen_cc.node import Node


@cache
def default_selection() -> Selection:
    """``builtin`` for everything."""
    return Selection.of()


def supports(node: Node) -> str | None:
    """None if the node's library (or ``builtin``) can compute it, else the reason."""
    found = default_selection().pick(node)
    return found if isinstance(found, str) else None


def library_for(node: Node) -> KernelLibrary:
    """The node's library, or ``builtin`` where it has none.

    Raises ``CodegenError`` where it cannot compute the node, and ``LibraryError`` where it is not
    loaded.
    """
    found = default_selection().pick(node)
    if isinstance(found, str):
        who = node.library or "builtin"
        raise CodegenError(f"library {who} does not compute {node.composite}: {found}")
    return found


__all__ = [
    "LIBRARY_ABI",
    "KernelLibrary",
    "Link",
    "Selection",
    "Threads",
    "default_selection",
    "library",
    "library_for",
    "supports",
]
