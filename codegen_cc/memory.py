"""Memory plan: where each temporary of a region lies in its arena.

Two buffers may share bytes if the ranges of calls in which they live do not touch.  Buffers are
placed from the largest to the smallest, each in the tightest gap between the placed ones that live
at the same time ("greedy by size"; Pisarchyk and Lee, Efficient Memory Management for Deep Neural
Net Inference, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_cc.tensor import Buffer

ALIGNMENT = 64  # bytes: one cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """A buffer and the first and last call (inclusive) that touch it."""

    buffer: Buffer
    first: int
    last: int


def plan_arena(lifetimes: list[Lifetime]) -> int:
    """Set ``arena_offset`` of every buffer; return the arena's size in bytes."""
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
    return -(-4 * max(buffer.size, 1) // ALIGNMENT) * ALIGNMENT
