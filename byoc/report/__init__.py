"""What a partition took, what it left, and why."""

from .graph import Graph, GraphNode
from .left import Left
from .report import RegionSummary, Report

__all__ = ["Graph", "GraphNode", "Left", "RegionSummary", "Report"]
