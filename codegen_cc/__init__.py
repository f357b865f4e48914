"""codegen_cc: one region in, one runtime module out.

Region graph, kernel libraries, planning, memory, weight packing, C emission and compiling.  It
knows neither ONNX nor the command line, nor how regions were chosen.
"""

from __future__ import annotations

from codegen_cc.errors import CodegenError, LibraryError, ToolchainError
from codegen_cc.libraries import supports
from codegen_cc.node import ACTIVATIONS, NODE_ATTRIBUTE, Node, Operand, Step

__all__ = [
    "ACTIVATIONS",
    "NODE_ATTRIBUTE",
    "CodegenError",
    "LibraryError",
    "Node",
    "Operand",
    "Step",
    "ToolchainError",
    "codegen",
    "metadata_module",
    "plan_functions",
    "supports",
]


def __getattr__(name: str) -> object:
    # TVM's compiler is needed only for these; predicates and descriptors work without it.
    if name in ("codegen", "metadata_module", "plan_functions"):
        from codegen_cc import module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
