"""Memory plan: where each temporary of a region lies in its arena.

Two buffers may share bytes if the ranges of calls in which they live do not touch.  Buffers are
placed from the largest to the smallest, each in the tightest gap between the placed ones that live
at the same time ("greedy by size"; Pisarchyk and Lee, Efficient Memory Management for Deep Neural
Net Inference, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from codegen_cc.dim import estimate, is_static
from codegen_cc.tensor import Buffer

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


@dataclass
class Slot:
    """Bytes that several buffers of unknown size share, one after another."""

    buffers: list[Buffer] = field(default_factory=list)
    free_after: int = -1


def plan_slots(lifetimes: list[Lifetime]) -> list[Slot]:
    """Share memory between buffers whose sizes are only known at run time.

    A slot is as large as its largest buffer turns out to be. A buffer takes a free slot that holds
    one of equal size already, else the free one whose size is estimated to be closest.
    """
    slots: list[Slot] = []
    for life in sorted(lifetimes, key=lambda life: life.first):
        free = [slot for slot in slots if slot.free_after < life.first]
        size = estimate(life.buffer.nbytes)
        free.sort(key=lambda slot: abs(max(estimate(b.nbytes) for b in slot.buffers) - size))
        if not free:
            free = [Slot()]
            slots.append(free[0])
        free[0].buffers.append(life.buffer)
        free[0].free_after = life.last
    return slots


def has_static_sizes(lifetimes: list[Lifetime]) -> bool:
    """Whether ``plan_arena`` can place these buffers at compile time."""
    return is_static(life.buffer.size for life in lifetimes)


def plan_arena(lifetimes: list[Lifetime]) -> int:
    """Set ``arena_offset`` of every buffer of static size; return the arena's size in bytes."""
    placed: list[Lifetime] = []
    total = 0
    for life in sorted(lifetimes, key=lambda life: (-life.buffer.size, life.first)):
        size = _padded_bytes(life.buffer)
        neighbours = sorted(
            (
                (other.buffer.arena_offset, _padded_bytes(other.buffer))
                for other in placed
                if other.first <= life.last and life.first <= other.last
            ),
        )
        life.buffer.arena_offset = _tightest_gap(neighbours, size)
        placed.append(life)
        total = max(total, life.buffer.arena_offset + size)
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
