"""A kernel library of your own: all that its Python file needs.

    from byoc.library import Kernel, Library, Link

    LIBRARY = Library("my_library", version="1.0", abi=1, link=Link(...), kernels=[Kernel(...)])

``docs/my_library.md`` tells what each field means. A library that a table cannot express implements
``KernelLibrary`` itself, as the built-in one does.
"""

from codegen_cc.custom import Custom
from codegen_cc.errors import LibraryError
from codegen_cc.libraries.interface import LIBRARY_ABI, KernelLibrary, Link, Threads
from codegen_cc.libraries.kernel import Kernel
from codegen_cc.libraries.table import Library
from codegen_cc.node import Node, Operand, Step
from codegen_cc.operator import Facts, Layout, Operator
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor
from codegen_cc.region.graph import RegionNode

__all__ = [
    "LIBRARY_ABI",
    "Custom",
    "Facts",
    "Kernel",
    "KernelLibrary",
    "Layout",
    "Library",
    "LibraryError",
    "Link",
    "Node",
    "Operand",
    "Operator",
    "PlanBuilder",
    "RegionNode",
    "Step",
    "Struct",
    "Tensor",
    "Threads",
]
