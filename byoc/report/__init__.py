"""What a partition took, what it left, and why."""

from byoc.report.graph import Graph, GraphNode
from byoc.report.kernels import Kernel, KernelUse, LibraryUse
from byoc.report.left import Left
from byoc.report.report import RegionSummary, Report

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
