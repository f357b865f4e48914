"""The arena: buffers that live at the same time never share bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen_cc.memory import ALIGNMENT, Lifetime, plan_arena
from codegen_cc.tensor import Buffer

lives = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=30
)


@given(lives)
def test_no_overlap_in_time_and_space(entries):
    lifetimes = [
        Lifetime(Buffer("arena", f"t{i}", size), first, first + length)
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
    chain = [Lifetime(Buffer("arena", f"t{i}", 100), i, i + 1) for i in range(50)]
    assert plan_arena(chain) == 2 * 448
