"""codegen_cc: one region in, one runtime module out.

``module`` is what TVM calls.  A region travels through the folders in this order: ``region`` (the
graph), ``libraries`` (who computes what), ``plan`` (calls, views, memory), ``emit`` (C), ``link``
(objects).  ``standalone`` makes a C library of a region.  Nothing here knows ONNX or the command
line, or how regions were chosen.

Names are resolved at first use: a process that only loads models asks ``codegen_cc.target`` about
this machine, and TVM's compiler is needed for ``codegen`` and its like alone.
"""

# ruff: noqa: F401 (what is imported here is for type checkers alone)

from typing import TYPE_CHECKING

from codegen_cc.lazy_names import lazy_names

if TYPE_CHECKING:
    from codegen_cc.activations import ACTIVATIONS
    from codegen_cc.errors import CodegenError, LibraryError, ToolchainError
    from codegen_cc.libraries import supports
    from codegen_cc.module import codegen, generate, metadata_module, plan_functions
    from codegen_cc.node import NODE_ATTRIBUTE, Node, Operand, Step

_HOMES = {
    "ACTIVATIONS": "codegen_cc.activations",
    "NODE_ATTRIBUTE": "codegen_cc.node",
    "CodegenError": "codegen_cc.errors",
    "LibraryError": "codegen_cc.errors",
    "Node": "codegen_cc.node",
    "Operand": "codegen_cc.node",
    "Step": "codegen_cc.node",
    "ToolchainError": "codegen_cc.errors",
    "codegen": "codegen_cc.module",
    "generate": "codegen_cc.module",
    "metadata_module": "codegen_cc.module",
    "plan_functions": "codegen_cc.module",
    "supports": "codegen_cc.libraries",
}

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
