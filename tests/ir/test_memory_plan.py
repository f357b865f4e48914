"""The arena: buffers that live at the same time never share bytes."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from codegen_cc.dim import Dim, symbol
from codegen_cc.plan.memory import ALIGNMENT, Lifetime, plan_arena, plan_memory
from codegen_cc.plan.tensors import Buffer

H, W = symbol("h"), symbol("w")

lives = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=30
)


@given(lives)
def test_no_overlap_in_time_and_space(entries):
    lifetimes = [
        Lifetime(Buffer("arena", f"t{i}", size, "float32"), first, first + length)
        for i, (size, first, length) in enumerate(entries)
    ]
    total = plan_arena(lifetimes)
    for i, one in enumerate(lifetimes):
        begin, end = one.buffer.arena_offset, one.buffer.arena_offset + 4 * one.buffer.size
        assert begin % ALIGNMENT == 0 and end <= total
        for other in lifetimes[i + 1 :]:
            if one.first <= other.last and other.first <= one.last:
                start = other.buffer.arena_offset
                stop = start + 4 * other.buffer.size
                assert end <= start or stop <= begin or begin == end or start == stop


def test_a_chain_needs_two_buffers():
    chain = [Lifetime(Buffer("arena", f"t{i}", 100, "float32"), i, i + 1) for i in range(50)]
    assert plan_arena(chain) == 2 * 448


kinds = st.sampled_from(
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), None]  # powers of h and w; None: a rounded half
)


@pytest.mark.slow
@given(
    st.lists(st.tuples(kinds, st.integers(1, 300), st.integers(0, 9), st.integers(0, 3)),
             min_size=1, max_size=15),
    st.integers(0, 7),
    st.integers(0, 7),
)  # fmt: skip
def test_sizes_of_the_call_do_not_overlap_either(
    entries: list[tuple[tuple[int, int] | None, int, int, int]], h: int, w: int
) -> None:
    lifetimes = []
    for i, (powers, factor, first, length) in enumerate(entries):
        size = factor * sympy.floor((H + 1) / 2)
        if powers is not None:
            size = factor * H ** powers[0] * W ** powers[1] + i % 3
        lifetimes.append(Lifetime(Buffer("arena", f"t{i}", size, "float32"), first, first + length))
    planned, slots = plan_memory(lifetimes)

    def number(dim: Dim) -> int:
        return int(sympy.sympify(dim).subs({H: h, W: w}))

    place, total = {}, number(planned)
    for slot in slots:
        place |= dict.fromkeys(slot.buffers, total)
        size = max(number(buffer.nbytes) for buffer in slot.buffers)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    for i, one in enumerate(lifetimes):
        begin = place.setdefault(one.buffer, number(one.buffer.arena_offset))
        end = begin + number(one.buffer.nbytes)
        assert begin % ALIGNMENT == 0 and end <= total
        assert one.buffer in {b for slot in slots for b in slot.buffers} or end <= number(planned)
        for other in lifetimes[:i]:
            if one.meets(other):
                start = place[other.buffer]
                stop = start + number(other.buffer.nbytes)
                assert end <= start or stop <= begin or begin == end or start == stop


def test_images_are_counted_in_their_common_size() -> None:
    chain = [
        Lifetime(Buffer("arena", f"t{i}", (32 + 16 * (i % 2)) * H * W, "float32"), i, i + 1)
        for i in range(30)
    ]
    planned, slots = plan_memory(chain)
    assert planned == 4 * (48 + 32) * H * W and not slots


def test_small_sizes_and_rounded_ones_get_slots() -> None:
    image, line, rounded = 16 * H * W, H, sympy.floor((H + 1) / 2) * W
    lives = [
        Lifetime(Buffer("arena", f"t{i}", size, "float32"), 0, 1)
        for i, size in enumerate([image, line, rounded])
    ]
    planned, slots = plan_memory(lives)
    assert planned == 64 * H * W
    assert [slot.buffers for slot in slots] == [[lives[2].buffer], [lives[1].buffer]]
