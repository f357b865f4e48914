"""What a region's plan costs, in numbers: for reports."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cc.dim import at_unit
from codegen_cc.plan.builder import Plan


@dataclass(frozen=True)
class PlanCost:
    """Kernel calls, copies among them, copies of other than inputs and outputs, arena bytes.

    Where sizes are symbolic, the bytes are those of symbols that all are 1.
    """

    calls: int
    copies: int
    copies_inside: int
    arena_bytes: int

    def __str__(self) -> str:
        copies = f"{self.copies} copies ({self.copies_inside} inside)"
        return f"{self.calls} kernel calls, {copies}, arena {self.arena_bytes / 2**20:.2f} MiB"


def cost_of(plan: Plan) -> PlanCost:
    """Count what a plan does and needs."""
    copies = [call for call in plan.calls if call.function == "ext_copy"]
    inside = [
        call
        for call in copies
        if all(tensor.buffer.kind != "output" for tensor in call.writes)
        and all(tensor.buffer.kind != "input" for tensor in call.reads())
    ]
    slots = sum(max(at_unit(buffer.nbytes) for buffer in slot.buffers) for slot in plan.slots)
    arena = at_unit(plan.arena_bytes) + slots
    return PlanCost(len(plan.calls), len(copies), len(inside), arena)
