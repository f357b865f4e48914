"""Memory plan: where each temporary of a region lies in its arena.

Two buffers may share bytes if the ranges of calls in which they live do not touch.  Buffers are
placed from the largest to the smallest, each in the tightest gap between the placed ones that live
at the same time ("greedy by size"; Pisarchyk and Lee, Efficient Memory Management for Deep Neural
Net Inference, 2020).

Sizes that are only known at the call are mostly multiples of one product of symbols, such as h w
of an image [1, c, 32 h, 32 w].  They are placed in the same way, counted in that product.  Buffers
of any other size share slots instead, as large as the largest buffer in them turns out to be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from codegen_cc.dim import Dim, estimate, is_static, normal
from codegen_cc.plan.tensors import Buffer

ALIGNMENT = 64  # bytes: one cache line, and the widest vector

#: Bytes added to every buffer of a page or more. Sizes are often multiples of 4 KiB, and a kernel
#: that reads and writes at equal offsets in a page makes the CPU suspect that its loads depend on
#: its stores.
STAGGER = 5 * ALIGNMENT
PAGE = 4096


@dataclass(frozen=True)
class Lifetime:
    """A buffer and the first and last call (inclusive) that touch it."""

    buffer: Buffer
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both live at the same time."""
        return other.first <= self.last and self.first <= other.last


@dataclass
class Slot:
    """Bytes that several buffers of unknown size share, one after another."""

    lives: list[Lifetime] = field(default_factory=list)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers, the largest by estimate first."""
        return [life.buffer for life in self.lives]

    def is_free(self, life: Lifetime) -> bool:
        """Whether no buffer of the slot lives at the same time."""
        return all(not life.meets(other) for other in self.lives)


def plan_memory(lifetimes: list[Lifetime]) -> tuple[Dim, list[Slot]]:
    """Place all buffers: the bytes of those with an ``arena_offset``, and the slots behind them."""
    if is_static(life.buffer.size for life in lifetimes):
        return plan_arena(lifetimes), []
    unit = common_unit([life.buffer.nbytes for life in lifetimes])
    counts = {life: units_of(life.buffer.nbytes, unit) for life in lifetimes}
    counted = {life: -(-n // ALIGNMENT) * ALIGNMENT for life, n in counts.items() if n is not None}
    total = _place(counted)
    for life in counted:
        life.buffer.arena_offset = normal(life.buffer.arena_offset * unit)
    return normal(total * unit), plan_slots([life for life in lifetimes if life not in counted])


def common_unit(sizes: list[Dim]) -> Dim:
    """The product of symbols that the largest size is a multiple of; 1 if there is none."""
    terms = _terms(max(sizes, key=estimate))
    return next(iter(terms)) if len(terms) == 1 else 1


def units_of(size: Dim, unit: Dim) -> int | None:
    """How many units a size is, whatever its symbols are; None for a size of another kind.

    No other kind of size fits: any symbol may be 0, so that h w holds neither h nor 1.
    """
    terms = _terms(size)
    return terms[unit] if unit != 1 and terms.keys() == {unit} else None


def _terms(size: Dim) -> dict[Dim, int]:
    """Factors by products of symbols, if a size is a sum of such; nothing for any other."""
    terms = {}
    for term in sympy.Add.make_args(sympy.expand(size)):
        factor, product = term.as_coeff_Mul()
        if not factor.is_Integer or not product.is_polynomial(*product.free_symbols):
            return {}
        terms[product] = int(factor)
    return terms


def plan_slots(lifetimes: list[Lifetime]) -> list[Slot]:
    """Share memory between buffers whose sizes are only known at run time.

    From the largest to the smallest by estimate, each takes the slot that is estimated to be the
    smallest among those that are free while it lives.
    """
    slots: list[Slot] = []
    for life in sorted(lifetimes, key=lambda life: (-estimate(life.buffer.nbytes), life.first)):
        free = [slot for slot in slots if slot.is_free(life)]
        if not free:
            free = [Slot()]
            slots += free
        free[-1].lives.append(life)
    return slots


def plan_arena(lifetimes: list[Lifetime]) -> int:
    """Set ``arena_offset`` of every buffer of static size; return the arena's size in bytes."""
    return _place({life: _padded_bytes(life.buffer) for life in lifetimes})


def _place(sizes: dict[Lifetime, int]) -> int:
    """Set ``arena_offset`` of buffers of these sizes; return the end of the last one."""
    placed: list[Lifetime] = []
    total = 0
    for life in sorted(sizes, key=lambda life: (-sizes[life], life.first)):
        neighbours = sorted(
            (other.buffer.arena_offset, sizes[other]) for other in placed if life.meets(other)
        )
        life.buffer.arena_offset = _tightest_gap(neighbours, sizes[life])
        placed.append(life)
        total = max(total, life.buffer.arena_offset + sizes[life])
    return total


def _tightest_gap(neighbours: list[tuple[int, int]], size: int) -> int:
    best_offset, best_gap = None, None
    end = 0
    for offset, extent in neighbours:
        gap = offset - end
        if gap >= size and (best_gap is None or gap < best_gap):
            best_offset, best_gap = end, gap
        end = max(end, offset + extent)
    return end if best_offset is None else best_offset


def _padded_bytes(buffer: Buffer) -> int:
    padded = -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT
    return padded + STAGGER if padded >= PAGE else padded
