"""Memory of states, which large pages hold once many rows are written."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from byoc.deploy.exchange import address_of, array_of
from byoc.deploy.host_memory import HostMemory
from byoc.deploy.kept_states import KeptStates
from byoc.deploy.metadata import StateInfo, TensorInfo

LARGE = 2 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="large pages are asked for on Linux alone")
@pytest.mark.parametrize("capacity", [1100, 4096, 5000])
def test_a_large_room_begins_at_a_large_page_and_keeps_what_is_in_it(capacity: int) -> None:
    memory = HostMemory()
    room = memory.room((capacity, 2, 64), "float32")
    assert room.shape == (capacity, 2, 64) and address_of(room) % LARGE == 0
    rows = memory.rows_worth_enlarging(room)
    assert 1 <= rows <= capacity
    values = np.arange(rows * 128, dtype=np.float32).reshape(rows, 2, 64)
    memory.write(memory.first(room, rows), values)
    memory.enlarge(room)
    np.testing.assert_array_equal(memory.read(memory.first(room, rows)), values)
    memory.write(room, 3)
    assert (room == 3).all()


def test_a_small_room_is_never_enlarged() -> None:
    memory = HostMemory()
    room = memory.room((64, 4), "float32")
    assert address_of(room) % 64 == 0
    assert memory.rows_worth_enlarging(room) > len(room)


def test_a_state_is_enlarged_once_when_it_has_many_rows() -> None:
    class Counted(HostMemory):
        enlarged = 0

        def rows_worth_enlarging(self, room: np.ndarray) -> int:
            return 10

        def enlarge(self, room: np.ndarray) -> None:
            self.enlarged += 1

    memory = Counted()
    info = StateInfo(TensorInfo("past", (1, "past", 4), "float32"), "present", 1, "n")
    states = KeptStates((info,), 32, memory)
    for n, enlarged in ((9, 0), (1, 1), (3, 1)):
        symbols = {"n": n, **states.lengths()}
        states.tensors(symbols)
        assert memory.enlarged == enlarged
        states.advance(symbols, [])
    other = states.copy()
    other.tensors({"n": 1, **other.lengths()})
    assert memory.enlarged == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_tensors_are_told_how_many_rows_they_have(dtype: str, shape: tuple[int, ...]) -> None:
    memory = HostMemory()
    rooms = [memory.room((100, *shape), dtype) for _ in range(3)]
    for number, room in enumerate(rooms):
        memory.write(room, number)
    first = memory.first_of(rooms)
    for count in (7, 1, 100, 64):
        tensors = first(count)
        assert [tuple(tensor.shape) for tensor in tensors] == [(count, *shape)] * 3
        for number, tensor in enumerate(tensors):
            assert str(tensor.dtype) == dtype
            np.testing.assert_array_equal(array_of(tensor), rooms[number][:count])
            assert not rooms[number].size or tensor.data_ptr() == address_of(rooms[number])
