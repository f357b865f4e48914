"""Memory of large results is taken again, and never while somebody has it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.deploy.input_tensors import ALIGNMENT
from byoc.deploy.result_memory import ResultMemory, wanted
from tests.deploy.test_prepared_calls import feeds, network
from tests.reference import assert_agrees, onnxruntime_outputs

FP32 = np.dtype(np.float32)


def _room(memory: ResultMemory, *shape: int) -> np.ndarray:
    (room,) = memory.rooms([wanted(shape, FP32)])
    assert room.shape == shape and room.dtype == FP32
    assert room.ctypes.data % ALIGNMENT == 0 and room.flags.c_contiguous and room.flags.writeable
    return room


def test_memory_that_nobody_has_is_taken_again() -> None:
    memory = ResultMemory()
    first = _room(memory, 40, 50)
    place = first.ctypes.data
    del first
    assert _room(memory, 50, 40).ctypes.data == place


@pytest.mark.parametrize("hold", [np.ravel, lambda a: a[3:, 1].T, memoryview, np.from_dlpack])
def test_memory_that_somebody_has_is_not(hold) -> None:
    memory = ResultMemory()
    first = _room(memory, 40, 50)
    first[...] = 7
    held = hold(first)
    del first
    _room(memory, 40, 50)[...] = 8
    _room(memory, 40, 50)[...] = 9
    assert (np.asarray(held) == 7).all()


def test_memory_of_another_size_goes_back() -> None:
    memory = ResultMemory()
    _room(memory, 40, 50)
    (kept,) = memory._kept
    _room(memory, 50, 60)
    assert len(memory._kept) == 1 and memory._kept[0] is not kept


def test_small_results_are_not_kept() -> None:
    memory = ResultMemory()
    memory.rooms([wanted((2,), FP32), wanted((0, 2000), FP32)])
    assert not memory._kept


def test_results_of_one_call_lie_apart() -> None:
    memory = ResultMemory()
    for _ in range(3):
        rooms = memory.rooms([wanted(shape, FP32) for shape in ((40, 50), (3,), (40, 50))])
        for value, room in enumerate(rooms):
            room[...] = value
        assert [(room == value).all() for value, room in enumerate(rooms)] == [True] * 3


def test_threads_have_memory_of_their_own() -> None:
    memory, wrong = ResultMemory(), []

    def write(value: int) -> None:
        for _ in range(300):
            room = _room(memory, 40, 50)
            room[...] = value
            if not (room == value).all():
                wrong.append(value)

    threads = [threading.Thread(target=write, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_stay_as_they_are(tmp_path: Path) -> None:
    """Also those of calls that are known, which take another way."""
    model = network("rows")
    onnx.save(model, tmp_path / "m.onnx")
    assert byoc.compile(model, tmp_path / "m.so").metadata.entry is not None
    loaded, given = byoc.load(tmp_path / "m.so"), [feeds(5, seed) for seed in range(4)]
    results = [loaded.run(inputs) for inputs in given]
    for inputs, found in zip(given, results, strict=True):
        want = onnxruntime_outputs(tmp_path / "m.onnx", inputs)
        assert_agrees(found, want)
    place = results.pop()["wide"].ctypes.data
    del found
    assert loaded.run(given[0])["wide"].ctypes.data == place
