"""``--emit standalone``: what is in the libraries, their answers, and their one C interface."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.compiler.standalone import Standalone, compile_standalone
from byoc.deploy.compiled_file import read_compiled
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.target import HOST
from models.bert import bert
from models.squeezenet import squeezenet
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.deploy.standalone_api import (
    ALIGNMENT,
    ARGUMENT,
    BUSY,
    INDEX,
    MEMORY,
    OK,
    THREADS,
    Allocate,
    Instance,
    Options,
    ParallelFor,
    Release,
    Task,
)
from tests.reference import assert_agrees, onnxruntime_outputs

HERE = Path(__file__).parent
FUNCTIONS = ("create", "destroy", "error", "inputs", "outputs", "run", "status_text")


@dataclass
class Case:
    """A compiled network, inputs, and ONNX Runtime's answer."""

    done: Standalone
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]

    @property
    def shared(self) -> Path:
        """Its shared library."""
        return self.done.folder / "lib" / f"lib{self.done.name}.so"

    @property
    def static(self) -> Path:
        """Its static library."""
        return self.shared.with_suffix(".a")


def build(name: str, model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> Case:
    """Compile a network; all of it must be in one region."""
    done = compile_standalone(model, folder / "model", name=name)
    assert len(done.report.regions) == 1 and not done.report.left
    return Case(done, model, inputs, onnxruntime_outputs(model, inputs))


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Case:
    """Convolutions: scratch memory in every thread, and an image that is reordered."""
    model = squeezenet(size=64)
    return build("squeeze", model, draw_inputs(model), tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Case:
    """Token ids and mask (int64), attention, two outputs."""
    model = bert(layers=1, hidden=64, heads=2, sequence=12, vocabulary=100)
    inputs = draw_inputs(model, below=100)
    return build("small_text", model, inputs, tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Case:
    """Two inputs that the region takes in the other order."""
    folder = tmp_path_factory.mktemp("pair")
    return build("pair", two_by_two(), inputs_of_two_by_two(0), folder)


@pytest.fixture(params=["image", "text", "pair"])
def case(request) -> Case:
    """Each network."""
    return request.getfixturevalue(request.param)


def symbols(path: Path, *flags: str) -> set[str]:
    """Names of global symbols, as nm has them."""
    command = [HOST.tool("nm"), "-P", "-g", *flags, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if len(line.split()) > 1}


# ------------------------------------------------------------------ what is in the folder


def test_the_folder(case: Case) -> None:
    name = case.done.name
    files = {str(path.relative_to(case.done.folder)) for path in case.done.folder.rglob("*.*")}
    assert files == {
        "include/byoc_model.h",
        f"include/{name}.h",
        f"lib/lib{name}.a",
        f"lib/lib{name}.so",
        f"{name}.c",
    }
    assert files == set(case.done.files)


def test_only_the_interface_is_exported(case: Case) -> None:
    wanted = {f"{case.done.name}_{function}" for function in FUNCTIONS}
    assert symbols(case.shared, "-D", "--defined-only") == wanted
    own = symbols(case.static, "--defined-only")
    weights = {name for name in own if name.startswith(f"byoc_{case.done.name}_w")}
    assert own - weights == wanted and weights


def test_it_needs_the_c_library_alone(case: Case) -> None:
    command = ["readelf", "-dW", str(case.shared)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    assert needed <= {"libc.so.6", "libm.so.6"} and "libc.so.6" in needed
    assert re.findall(r"\(SONAME\).*\[(.*)\]", text) == [case.shared.name]
    assert not [name for name in symbols(case.shared, "-D") if "TVM" in name.upper()]


def test_its_metadata(case: Case) -> None:
    metadata = read_compiled(case.shared).metadata()
    assert metadata.form == "standalone"
    assert [info.name for info in metadata.inputs] == list(case.inputs)
    assert metadata == case.done.metadata


def test_the_descriptors(case: Case) -> None:
    with Instance(case.shared, threads=1) as model:
        for tensors, arrays in ((model.inputs, case.inputs), (model.outputs, case.expected)):
            assert [tensor.name.decode() for tensor in tensors] == list(arrays)
            for tensor, array in zip(tensors, arrays.values(), strict=True):
                assert (tensor.zeros().shape, tensor.zeros().dtype) == (array.shape, array.dtype)
                assert tensor.bytes == array.nbytes and tensor.alignment == array.itemsize


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 20])
def test_answers(case: Case, threads: int) -> None:
    with Instance(case.shared, threads=threads) as model:
        for _ in range(3):
            assert_agrees(model.answers(case.inputs), case.expected)


def test_many_instances_at_once(image: Case, text: Case) -> None:
    def use(number: int) -> None:
        case = (image, text)[number % 2]
        with Instance(case.shared, threads=1 + number % 3) as model:
            for _ in range(5):
                assert_agrees(model.answers(case.inputs), case.expected)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(12)))


@pytest.mark.parametrize("name", ["image", "text"])
def test_a_run_allocates_nothing(name: str, request, tmp_path: Path) -> None:
    """Counted in a C program whose malloc is the one that the library finds."""
    case: Case = request.getfixturevalue(name)
    folder, model = case.done.folder, case.done.name
    command = [*HOST.compiler(), "-std=gnu11", "-O2", f"-DNAME={model}", "-include", f"{model}.h"]
    command += [f"-I{folder / 'include'}", str(HERE / "standalone_probe.c"), str(case.static)]
    subprocess.run([*command, "-lm", "-pthread", "-ldl", "-o", tmp_path / "probe"], check=True)
    for threads in ("1", "2", "5"):
        command = [str(tmp_path / "probe"), threads, "10"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said == "allocations 0, different answers 0, failed 0\n", threads


FORKED = """
import os, sys
import numpy as np
from pathlib import Path
from tests.deploy.standalone_api import Instance
with Instance(Path(sys.argv[1]), threads=2) as model:
    zeros = {t.name.decode(): t.zeros() for t in model.inputs}
    before = model.answers(zeros)
    child = os.fork()
    again = model.answers(zeros)
    same = all(np.array_equal(before[name], again[name]) for name in before)
    if child == 0:
        model.destroy()
        os._exit(0 if same else 3)
    assert same and os.waitpid(child, 0)[1] == 0
print("both")
"""


def test_a_forked_child_runs_serially(image: Case) -> None:
    command = [sys.executable, "-c", FORKED, str(image.shared)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "both\n"), done.stderr


# ------------------------------------------------------------------ the caller's threads


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A pool of Python's threads."""
    with ThreadPoolExecutor(3) as threads:
        yield threads


def parallel_for(how: str, threads: ThreadPoolExecutor) -> tuple[object, list[int]]:
    """A caller's parallel_for, and a list of how many tasks it was asked for."""
    asked: list[int] = []

    def run(_pool: int, tasks: int, task: int, context: int) -> int:
        asked.append(tasks)
        call = Task(task)
        if how == "backwards":
            for index in reversed(range(tasks)):
                call(context, index)
        elif how == "threads":
            list(threads.map(lambda index: call(context, index), range(tasks)))
        elif how == "fails":
            return 5
        return 0  # "nothing": no task was called

    return ParallelFor(run), asked


@pytest.mark.parametrize("how", ["threads", "backwards"])
def test_the_callers_threads(case: Case, how: str, pool: ThreadPoolExecutor) -> None:
    function, asked = parallel_for(how, pool)
    with Instance(case.shared, threads=3, parallel_for=function) as model:
        assert not asked  # create runs on the calling thread
        assert_agrees(model.answers(case.inputs), case.expected)
    if case.done.name == "squeeze":
        assert asked and set(asked) == {3}


@pytest.mark.parametrize("how", ["fails", "nothing"])
def test_threads_that_do_not_do_their_work(image: Case, how: str, pool: ThreadPoolExecutor) -> None:
    function, _ = parallel_for(how, pool)
    with Instance(image.shared, threads=2, parallel_for=function) as model:
        assert model.run(image.inputs)[0] == THREADS
        assert re.fullmatch(r"squeeze: \w+ failed: the thread pool .*", model.error())


def test_one_run_at_a_time(image: Case) -> None:
    """The second caller is told while the first one is inside of parallel_for."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(_pool: int, tasks: int, task: int, context: int) -> int:
        inside.set()
        go_on.wait(30)
        for index in range(tasks):
            Task(task)(context, index)
        return 0

    function = ParallelFor(wait)
    with Instance(image.shared, threads=2, parallel_for=function) as model:
        first: list[dict[str, np.ndarray]] = []
        runner = threading.Thread(target=lambda: first.append(model.answers(image.inputs)))
        runner.start()
        assert inside.wait(30)
        assert model.run(image.inputs)[0] == BUSY
        assert "running already" in model.status_text(BUSY)
        go_on.set()
        runner.join()
        assert_agrees(first[0], image.expected)
        assert_agrees(model.answers(image.inputs), image.expected)


# ------------------------------------------------------------------ memory


class Heap:
    """The caller's memory: arrays of NumPy; the ``last`` allocations fail."""

    def __init__(self, limit: int | None = None) -> None:
        self.held: dict[int, np.ndarray] = {}
        self.taken = 0
        self.limit = limit
        self.allocate, self.release = Allocate(self._allocate), Release(self._release)

    def _allocate(self, _heap: int, alignment: int, nbytes: int) -> int | None:
        self.taken += 1
        if self.limit is not None and self.taken > self.limit:
            return None
        assert alignment == 64 and nbytes % alignment == 0
        memory = np.empty(nbytes + alignment, np.uint8)
        address = memory.ctypes.data + -memory.ctypes.data % alignment
        self.held[address] = memory
        return address

    def _release(self, _heap: int, address: int) -> None:
        del self.held[address]


def test_the_callers_memory(case: Case) -> None:
    heap = Heap()
    hooks = {"allocate": heap.allocate, "release": heap.release}
    with Instance(case.shared, threads=2, **hooks) as model:
        held, taken = set(heap.held), heap.taken
        assert len(held) == 3  # the instance, its arena, its scratch memory
        assert_agrees(model.answers(case.inputs), case.expected)
        assert (set(heap.held), heap.taken) == (held, taken)
    assert not heap.held


def test_every_lack_of_memory_is_told_and_leaves_nothing(image: Case) -> None:
    counting = Heap()
    with Instance(image.shared, threads=2, allocate=counting.allocate, release=counting.release):
        pass
    assert counting.taken > 4
    for limit in range(counting.taken):
        heap = Heap(limit)
        model = Instance(image.shared, threads=2, allocate=heap.allocate, release=heap.release)
        assert model.status == MEMORY and model.handle.value is None
        assert model.options.said.startswith("squeeze: ") and "memory" in model.status_text(MEMORY)
        assert not heap.held, limit


# ------------------------------------------------------------------ errors


def test_every_status_has_a_text(image: Case) -> None:
    with Instance(image.shared, threads=1) as model:
        texts = [model.status_text(status) for status in range(11)]
        assert texts[OK] == "done" and len(set(texts)) == 11
        assert model.status_text(11) == model.status_text(-1) == "unknown status"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"threads": -1}, "options.threads is -1; need 0 to 1024"),
        ({"threads": 2000}, "options.threads is 2000"),
        ({"allocate": Heap().allocate}, "need both or none"),
    ],
)
def test_wrong_options(image: Case, given: dict[str, object], words: str) -> None:
    model = Instance(image.shared, **given)
    assert model.status == ARGUMENT and model.handle.value is None
    assert words in model.options.said
    model.destroy()  # of nothing


def test_options_of_another_version(image: Case) -> None:
    for size in (0, 8, 1000):
        model = Instance(image.shared, Options(size=size, message=0, message_size=0))
        assert model.status == ARGUMENT and model.handle.value is None


def test_null_pointers(image: Case) -> None:
    with Instance(image.shared, threads=1) as model:
        create = model.function("create", c_int, c_void_p, c_void_p)
        assert create(None, None) == ARGUMENT
        assert model.run_raw(None, None) == ARGUMENT
        assert model.error() == "squeeze: inputs is NULL"
        zeros = [tensor.zeros() for tensor in (*model.inputs, *model.outputs)]
        assert model.run_at([0], [zeros[1].ctypes.data]) == ARGUMENT
        assert model.error() == "squeeze: input 0 (image) is NULL"
        assert model.run_at([zeros[0].ctypes.data], [0]) == ARGUMENT
        assert model.error() == "squeeze: output 0 (probabilities) is NULL"
        assert (
            model.run_at([array.ctypes.data for array in zeros[:1]], [zeros[1].ctypes.data]) == OK
        )
        assert model.error() == ""
    assert model.run_raw(None, None) == ARGUMENT  # of no instance
    assert model.error() == ""


def test_default_options(pair: Case) -> None:
    with Instance(pair.shared) as model:
        handle = c_void_p()
        create = model.function("create", c_int, c_void_p, c_void_p)
        assert create(None, byref(handle)) == OK
        model.destroy()
        model.handle = handle
        assert_agrees(model.answers(pair.inputs), pair.expected)


def test_buffers_that_do_not_fit(pair: Case) -> None:
    with Instance(pair.shared, threads=1) as model:
        memory = np.zeros(1 << 16, np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % 64
        image, scale, large, mean = (start + 8192 * i for i in range(4))
        assert model.run_at([image, scale], [large, mean]) == OK
        assert model.run_at([image + 2, scale], [large, mean]) == ALIGNMENT
        assert "input 0 (image) is not aligned" in model.error()
        assert model.run_at([image, scale], [large, mean + 1]) == ALIGNMENT
        assert model.run_at([image, scale], [large, image + 4]) == ARGUMENT
        assert model.error() == "pair: output 1 (mean) overlaps an input"
        assert model.run_at([image, scale], [large, large + 8160]) == ARGUMENT
        assert "output 1 (mean) overlaps another output" in model.error()
        assert model.run_at([image, image], [large, mean]) == OK  # inputs may share memory


def test_an_index_outside_of_its_axis(text: Case) -> None:
    with Instance(text.shared, threads=2) as model:
        wrong = text.inputs | {"input_ids": text.inputs["input_ids"] + 1000}
        assert model.run(wrong)[0] == INDEX
        assert "index lies outside" in model.error()
        assert_agrees(model.answers(text.inputs), text.expected)


def test_an_instruction_set_that_there_is_not(image: Case, monkeypatch, tmp_path: Path) -> None:
    # A library decides while it is loaded: another file is another library.
    path = shutil.copy(image.shared, tmp_path / image.shared.name)
    script = (
        "import sys; from pathlib import Path; from tests.deploy.standalone_api import Instance\n"
        "model = Instance(Path(sys.argv[1])); print(model.status, model.options.said)"
    )
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "BYOC_ISA": "sse9"}
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("5 squeeze: BYOC_ISA=sse9: unknown instruction set")
