"""What a partition took, what it left, and why."""

from .report import Left, RegionSummary, Report

__all__ = ["Left", "RegionSummary", "Report"]
