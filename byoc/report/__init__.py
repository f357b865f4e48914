"""What a partition took, what it left, and why."""

from byoc.report.coverage import Coverage, Pruned, RegionSummary
from byoc.report.graph import Graph, GraphNode
from byoc.report.kernels import Kernel, KernelUse, LibraryUse
from byoc.report.left import Left
from byoc.report.report import Report

__all__ = [
    "Coverage",
    "Graph",
    "GraphNode",
    "Kernel",
    "KernelUse",
    "Left",
    "LibraryUse",
    "Pruned",
    "RegionSummary",
    "Report",
]
