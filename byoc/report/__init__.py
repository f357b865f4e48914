"""What a partition took, what it left, and why."""

from .graph import Graph, GraphNode
from .kernels import Kernel, KernelUse, LibraryUse
from .left import Left
from .report import RegionSummary, Report

__all__ = [
    "Graph",
    "GraphNode",
    "Kernel",
    "KernelUse",
    "Left",
    "LibraryUse",
    "RegionSummary",
    "Report",
]
