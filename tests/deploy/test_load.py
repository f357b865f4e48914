"""``byoc.load``: inputs and outputs of every kind, without copies, from many threads."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi

import byoc
from byoc.compiler.compile import compile
from byoc.deploy.input_tensors import aligned_room, require_apart
from byoc.errors import InputError
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs


@pytest.fixture(scope="module", params=["one region", "a part left to TVM"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> byoc.Model:
    """The network with a region that is all of it, and with one beside TVM's code."""
    folder = tmp_path_factory.mktemp("load")
    whole = request.param == "one region"
    compiled = compile(
        two_by_two(), folder / "m.so", skip_ops=[] if whole else ["softmax"], threads=2
    )
    assert len(compiled.report.regions) == 1
    assert len(compiled.report.left) == (0 if whole else 1)
    assert (compiled.metadata.entry is not None) == whole
    return byoc.load(folder / "m.so", threads=2)


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    return inputs_of_two_by_two(0)


@pytest.fixture(scope="module")
def expected(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return onnxruntime_outputs(two_by_two(), given)


def test_inputs_by_name_by_position_and_as_tensors(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    names = list(expected)
    assert_agrees(model.run(given), expected)
    assert_agrees(dict(zip(names, model(*given.values()), strict=True)), expected)
    assert_agrees(dict(zip(names, model(**given), strict=True)), expected)
    tensors = [tvm.runtime.tensor(array) for array in given.values()]
    assert_agrees(dict(zip(names, model(*tensors), strict=True)), expected)


class _Counted:
    """An array of another library: it has DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.asked = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: object) -> object:
        self.asked += 1
        return self._array.__dlpack__(**options)


def test_dlpack_is_enough(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    foreign = {name: _Counted(array) for name, array in given.items()}
    assert_agrees(model.run(foreign), expected)
    assert all(array.asked for array in foreign.values())


def test_inputs_of_odd_places_and_strides(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    buffer = np.zeros(3 * 16 * 16 + 1, np.float32)
    moved = buffer[1:].reshape(1, 3, 16, 16)
    moved[...] = given["image"]
    turned = np.asfortranarray(given["image"])
    frozen = given["image"].copy()
    frozen.flags.writeable = False
    for image in (moved, turned, frozen):
        assert_agrees(model.run({"image": image, "scale": given["scale"]}), expected)


def test_read_only_inputs_are_read_where_they_lie(
    model: byoc.Model,
    given: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    """A write into a mapped file would end the process."""
    mapped = {}
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        assert not mapped[name].flags.writeable
    places = [np.from_dlpack(tensor).ctypes.data for tensor in model.tensors(mapped)]
    assert places == [array.ctypes.data for array in mapped.values()]
    for _ in range(2):
        assert_agrees(model.run(mapped), expected)


@pytest.mark.slow
def test_tensors_keep_read_only_inputs(model: byoc.Model, given: dict[str, np.ndarray]) -> None:
    frozen = aligned_room(given["image"].shape, given["image"].dtype)
    frozen.flags.writeable = False
    watched = weakref.ref(frozen)
    tensors = model.tensors({**given, "image": frozen})
    del frozen
    gc.collect()
    assert watched() is not None
    del tensors
    gc.collect()
    assert watched() is None


def test_results_are_written_where_the_caller_says(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    rooms = {name: np.full_like(array, np.nan) for name, array in expected.items()}
    for seed in (0, 1, 2):
        inputs = inputs_of_two_by_two(seed)
        found = model.run(inputs, rooms)
        assert all(found[name] is rooms[name] for name in rooms)
        assert_agrees(rooms, onnxruntime_outputs(two_by_two(), inputs))
    tensor = tvm.runtime.tensor(np.zeros(expected["mean"].shape, np.float32))
    model.run(given, {"mean": tensor})
    assert_agrees({"mean": tensor.numpy()}, {"mean": expected["mean"]})
    # Some of them, and one at an odd place.
    odd = np.zeros(expected["mean"].size + 1, np.float32)[1:].reshape(expected["mean"].shape)
    found = model.run(given, {"mean": odd})
    assert found["mean"] is odd
    assert_agrees(found, expected)


def test_results_belong_to_the_caller(model: byoc.Model, given: dict[str, np.ndarray]) -> None:
    first = model.run(given)
    kept = {name: array.copy() for name, array in first.items()}
    model.run(inputs_of_two_by_two(9))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])
        array[...] = 0  # writable


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (np.zeros((1, 8, 1, 1)), r"room for output 'mean' is float64\[1, 8, 1, 1\]; need mean"),
        (np.zeros((8,), np.float32), r"is float32\[8\]; need mean: float32\[1, 8, 1, 1\]"),
        (np.zeros((1, 16, 1, 1), np.float32)[:, ::2], "is not contiguous"),
        (np.broadcast_to(np.float32(0), (1, 8, 1, 1)), "is (not contiguous|read-only)"),
        ("text", "no attribute '__dlpack__'"),
    ],
)
def test_room_that_does_not_fit(
    model: byoc.Model, given: dict[str, np.ndarray], room: object, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        model.run(given, {"mean": room})


def test_room_of_an_unknown_name_or_inside_an_input(
    model: byoc.Model, given: dict[str, np.ndarray]
) -> None:
    with pytest.raises(InputError, match=r"unknown output 'median'; .* gives probabilities"):
        model.run(given, {"median": np.zeros(1, np.float32)})


class _Foreign:
    """Writable memory of another library, which speaks DLPack and is no NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)


@pytest.mark.parametrize("kind", ["NumPy", "TVM", "DLPack"])
def test_rooms_share_no_byte_with_an_input_or_a_room(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray], kind: str
) -> None:
    wrap = {"NumPy": lambda a: a, "TVM": tvm_ffi.from_dlpack, "DLPack": _Foreign}[kind]
    block = np.zeros(4096, np.float32)
    image = block[:768].reshape(1, 3, 16, 16)
    image[...] = given["image"]
    scale = given["scale"].copy()

    def at(start: int, name: str) -> np.ndarray:
        return block[start : start + expected[name].size].reshape(expected[name].shape)

    def run(**starts: int) -> dict[str, np.ndarray]:
        inputs = {"image": wrap(image), "scale": wrap(scale)}
        return model.run(inputs, {name: wrap(at(start, name)) for name, start in starts.items()})

    for starts, said in (
        ({"mean": 0}, "room for output 'mean' overlaps input 'image'"),
        ({"mean": 767}, "room for output 'mean' overlaps input 'image'"),
        ({"mean": 1000, "probabilities": 1000}, "rooms for outputs 'mean' and 'probabilities'"),
        ({"probabilities": 800, "mean": 2847}, "rooms for outputs 'probabilities' and 'mean'"),
    ):
        with pytest.raises(InputError, match=said):
            run(**starts)
        np.testing.assert_array_equal(image, given["image"])
    for starts in ({"mean": 768}, {"mean": 768, "probabilities": 776}):
        assert_agrees(run(**starts), expected)
        assert_agrees(
            {name: at(start, name) for name, start in starts.items()},
            {name: expected[name] for name in starts},
        )
    with pytest.raises(InputError, match="rooms for outputs 'mean' and 'probabilities' overlap"):
        shared = np.zeros(2048, np.float32)
        model.run(
            given,
            {"mean": shared[:8].reshape(1, 8, 1, 1), "probabilities": shared.reshape(1, 8, 16, 16)},
        )
    frozen = np.zeros((1, 8, 1, 1), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        model.run(given, {"mean": frozen})


def test_rooms_between_the_elements_of_an_input(
    model: byoc.Model, given: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> None:
    """Extents are compared byte by byte: what only surrounds a room is in nobody's way."""
    block = np.zeros((1, 3, 16, 32), np.float32)
    image = block[..., ::2]
    image[...] = given["image"]
    row = block.reshape(-1)[32 * 16 + 1 : 32 * 16 + 9].reshape(1, 8, 1, 1)
    with pytest.raises(InputError, match="overlaps input 'image'"):
        model.run({"image": image, "scale": given["scale"]}, {"mean": row})
    rows = np.zeros((1, 3, 32, 16), np.float32)
    image = rows[:, :, ::2]
    image[...] = given["image"]
    room = rows[0, 0, 1, :8].reshape(1, 8, 1, 1)
    assert np.may_share_memory(image, room)
    found = model.run({"image": image, "scale": given["scale"]}, {"mean": room})
    assert found["mean"] is room
    assert_agrees(found, expected)


def test_rooms_of_no_elements_overlap_nothing() -> None:
    block = np.zeros(4, np.float32)
    require_apart({"x": block}, {"y": block[2:2], "z": block[2:2]})
    with pytest.raises(InputError, match="overlaps input 'x'"):
        require_apart({"x": block[:3]}, {"y": block[2:]})


def test_eight_threads_call_one_model(model: byoc.Model) -> None:
    """8 x 1000 calls, inputs that differ from call to call, every answer checked."""
    samples = [inputs_of_two_by_two(seed) for seed in range(16)]
    answers = [onnxruntime_outputs(two_by_two(), sample) for sample in samples]
    wrong: list[str] = []
    counts = [0] * 8

    def call(caller: int) -> None:
        for number in range(1000):
            index = (5 * caller + number) % len(samples)
            for name, found in model.run(samples[index]).items():
                want = answers[index][name]
                if not np.abs(found - want).max() <= 1e-4 * np.ptp(want):
                    wrong.append(f"caller {caller}, call {number}, {name}")
            counts[caller] += 1

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong and counts == [1000] * 8


def test_every_calling_thread_has_the_asked_number_of_threads(model: byoc.Model) -> None:
    import tvm_ffi

    sizes = []

    def call() -> None:
        model.run(inputs_of_two_by_two(3))
        sizes.append(tvm_ffi.get_global_func("runtime.NumThreads")())

    caller = threading.Thread(target=call)
    caller.start()
    caller.join()
    assert sizes == [2]


_ALONE = """
import json, sys
import numpy as np
with np.load(sys.argv[2]) as file:
    inputs = {name: file[name] for name in file.files}
import tvm
from tvm.runtime.vm import VirtualMachine
machine = VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
results = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
np.savez(sys.argv[3], **dict(zip(["probabilities", "mean"], (r.numpy() for r in results))))
maps = open("/proc/self/maps").read()
print(json.dumps(["libtvm_compiler" in maps, "libtvm_runtime.so" in maps]))
"""


def test_plain_tvm_loads_it_with_its_runtime_alone(
    model: byoc.Model,
    given: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    np.savez(tmp_path / "in.npz", **given)
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, model.path, tmp_path / "in.npz", tmp_path / "out.npz"],
        env=os.environ | {"TVM_USE_RUNTIME_LIB": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [False, True]
    with np.load(tmp_path / "out.npz") as file:
        assert_agrees({name: file[name] for name in file.files}, expected)


def test_a_network_that_returns_its_input_runs_by_the_machine(tmp_path: Path) -> None:
    """An output that is an input is no result of the region: nothing may be written into it."""
    from models.builder import GraphBuilder

    graph = GraphBuilder("same", 2)
    x = graph.input("x", (1, 4))
    graph.output(graph.op("Relu", x), "y", (1, 4))
    model = graph.build()
    model.graph.output.append(onnx.helper.make_tensor_value_info("x", 1, [1, 4]))
    compile(model, tmp_path / "m.so")
    loaded = byoc.load(tmp_path / "m.so")
    array = np.array([[1, -2, 3, -4]], np.float32)
    assert loaded.metadata.entry is None
    assert_agrees(loaded.run({"x": array}), onnxruntime_outputs(model, {"x": array}))
