"""Pools of threads across forks and beside other calls: right answers, and no wait for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.compiler.standalone import compile_standalone
from models.builder import GraphBuilder
from tests.reference import onnxruntime_outputs

ROOT = Path(byoc.__file__).parents[1]
SHAPE = (1, 16, 32, 32)


def network(name: str, seed: int) -> onnx.ModelProto:
    """Two convolutions with work for several threads each."""
    graph = GraphBuilder(name, seed)
    x = graph.op("Relu", graph.conv(graph.input("x", SHAPE), (16, 32), 3))
    graph.output(graph.conv(x, (32, 16), 3), "y", SHAPE)
    return graph.build()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries ``a.so`` and ``b.so``, an input and what ONNX Runtime makes of it."""
    folder = tmp_path_factory.mktemp("processes")
    x = np.random.default_rng(3).standard_normal(SHAPE, np.float32)
    np.save(folder / "x.npy", x)
    for seed, name in enumerate("ab"):
        model = network(name, seed)
        assert byoc.compile(model, folder / f"{name}.so").metadata.entry is not None
        np.save(folder / f"{name}.npy", onnxruntime_outputs(model, {"x": x})["y"])
    return folder


#: Beginning of each program: ``right`` runs a loaded model and compares, ``child`` forks.
_BEGIN = """
import json, os, signal, sys, threading, time
import numpy as np
import byoc

x = np.load("x.npy")
said = {}

def close(name, y):
    want = np.load(name + ".npy")
    return bool(np.abs(np.asarray(y) - want).max() <= 1e-4 * np.ptp(want))

def right(name, model):
    return all(close(name, model(x)) for _ in range(20))

def threads():
    return len(os.listdir("/proc/self/task"))

def child(body):
    read, write = os.pipe()
    if os.fork() == 0:
        signal.alarm(30)  # one that waits for ever outlives its parent else
        os.write(write, json.dumps(body()).encode())
        os._exit(0)
    os.close(write)
    return json.loads(os.fdopen(read).read() or "null")
"""


def run(program: str, folder: Path, **environment: str) -> dict[str, object]:
    """What a program puts into ``said``, within a time that no waiting process keeps."""
    script = folder / "program.py"  # a file: TVM's script reads its own source
    script.write_text(_BEGIN + program + "\nprint(json.dumps(said))")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


_FORK = """
a = byoc.load("a.so", threads=4)
if WARM: said["parent"] = right("a", a)
said["same"] = child(lambda: right("a", a))
said["again"] = child(lambda: right("a", byoc.load("a.so")))
said["other"] = child(lambda: right("b", byoc.load("b.so")))
said["more"] = child(lambda: right("b", byoc.load("b.so", threads=3)))

def in_thread():
    found = []
    def work():
        found.append(right("b", byoc.load("b.so")))
        found.append(threads())
    worker = threading.Thread(target=work)
    worker.start(); worker.join()
    return found

said["thread"] = child(in_thread)
said["grandchild"] = child(lambda: [right("b", byoc.load("b.so")), child(lambda: right("a", a))])
said["after"] = right("a", a)
"""


@pytest.mark.parametrize("warm", [False, True])
def test_a_forked_child_runs_what_was_loaded_and_loads_more(folder: Path, warm: bool) -> None:
    said = run(_FORK.replace("WARM", str(warm)), folder)
    # A thread of the child has a pool with four workers of its own.
    found, count = said.pop("thread")
    assert found and count >= 5
    assert said.pop("grandchild") == [True, True]
    assert said == dict.fromkeys(said, True)


_PLAIN = """
import tvm
from tvm.runtime.vm import VirtualMachine

def machine(name):
    return VirtualMachine(tvm.runtime.load_module(name + ".so"), tvm.cpu())

def right_plain(name, m):
    return all(close(name, m["main"](tvm.runtime.tensor(x)).numpy()) for _ in range(20))

a = machine("a")
said["parent"] = right_plain("a", a)
said["same"] = child(lambda: right_plain("a", a))
said["other"] = child(lambda: right_plain("b", machine("b")))
said["byoc"] = child(lambda: right("b", byoc.load("b.so", threads=2)))
"""


@pytest.mark.slow
def test_a_forked_child_of_plain_tvm(folder: Path) -> None:
    """TVM's own loader and virtual machine, as C++ has them, in parent and child."""
    said = run(_PLAIN, folder, TVM_NUM_THREADS="4")
    assert said == dict.fromkeys(said, True) and len(said) == 4


_TVM_LAUNCH = """
import tvm
from tvm.script import tirx as T

@T.prim_func
def double(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        b[i] = a[i] * T.float32(2)

kernel = tvm.compile(tvm.IRModule({"main": double.with_attr("global_symbol", "main")}), "llvm")

def doubled():
    a = tvm.runtime.tensor(np.arange(64, dtype=np.float32))
    b = tvm.runtime.tensor(np.zeros(64, np.float32))
    for _ in range(20): kernel["main"](a, b)
    return bool((b.numpy() == 2 * a.numpy()).all())

a = byoc.load("a.so", threads=4)
said["parent"] = doubled() and right("a", a)
said["child"] = child(lambda: right("a", a) and doubled())
"""


@pytest.mark.slow
def test_parallel_loops_of_tvm_itself_in_a_forked_child(folder: Path) -> None:
    """They have the same pool: once ``byoc.load``'s models ran there, it is told to use none."""
    assert run(_TVM_LAUNCH, folder) == {"parent": True, "child": True}


_INSIDE = """
import ctypes
a = byoc.load("a.so", threads=4)
found = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def task(index, env, context):
    found.append(right("a", a))
    return 0

failed = ctypes.CDLL(None).TVMBackendParallelLaunch(task, None, 3)
said.update(failed=failed, found=found)
"""


def test_models_in_the_tasks_of_a_loop_of_tvms(folder: Path) -> None:
    """TVM refuses a launch in a launch by an exception; the kernels' threads are their own."""
    assert run(_INSIDE, folder) == {"failed": 0, "found": [True] * 3}


_CHILD_ONLY = """
def load():
    model = byoc.load("a.so", threads=4)
    return [right("a", model), threads()]
said["child"] = child(load)
"""


def test_a_child_that_alone_loads_has_threads(folder: Path) -> None:
    right, count = run(_CHILD_ONLY, folder)["child"]
    assert right and count >= 4


_RESIZED = """
a, b = byoc.load("a.so", threads=8), byoc.load("b.so")
end = time.monotonic() + 3
problems, runs = [], [0, 0, 0]

def call(number):
    try:
        while time.monotonic() < end:
            model, name = ((a, "a"), (b, "b"))[number % 2]
            if not close(name, model(x)): problems.append(name)
            runs[number] += 1
    except Exception as error:
        problems.append(repr(error))

callers = [threading.Thread(target=call, args=(number,)) for number in range(3)]
for caller in callers: caller.start()
loads = 0
while time.monotonic() < end:
    byoc.load("ab"[loads % 2] + ".so", threads=(2, 8, 1, 5)[loads % 4])
    loads += 1
for caller in callers: caller.join()
said.update(problems=problems, runs=min(runs), loads=loads)
"""


@pytest.mark.slow
def test_models_are_loaded_with_other_numbers_of_threads_while_others_run(folder: Path) -> None:
    said = run(_RESIZED, folder)
    assert said["problems"] == []
    assert said["runs"] > 20 and said["loads"] > 5


def test_a_number_of_threads_in_the_environment_that_cannot_be(folder: Path) -> None:
    program = """
try: byoc.load("a.so")
except byoc.ByocError as error: said["error"] = str(error)
"""
    said = run(program, folder, TVM_NUM_THREADS="100000")
    assert said == {"error": "TVM_NUM_THREADS is 100000; need a whole number from 0 to 1024"}
    said = run(program, folder, OMP_NUM_THREADS="all")
    assert said == {"error": "OMP_NUM_THREADS is 'all'; need a whole number from 0 to 1024"}
    assert run(program, folder, OMP_NUM_THREADS="2,1") == {}


def test_the_standalone_form_in_a_forked_child(tmp_path: Path, folder: Path) -> None:
    """The parent's instance runs without its threads; one of the child's own has threads."""
    compile_standalone(network("a", 0), tmp_path / "out", name="a")
    program = """
import ctypes
lib = ctypes.CDLL(sys.path_of_library)
lib.a_error.restype = ctypes.c_char_p
y = np.zeros_like(x)

def create():
    instance = ctypes.c_void_p()
    assert lib.a_create(None, ctypes.byref(instance)) == 0
    return instance

def runs(instance):
    y[...] = 0
    place = lambda array: (ctypes.c_void_p * 1)(array.ctypes.data)
    status = lib.a_run(instance, place(x), place(y))
    return status == 0 and close("a", y)

def whole():
    instance = create()
    found = [runs(instance) for _ in range(20)]
    lib.a_destroy(instance)
    return all(found)

instance = create()
said["parent"] = runs(instance)
said["same"] = child(lambda: runs(instance))
said["own"] = child(whole)
said["ends"] = child(lambda: lib.a_destroy(instance) or True)
said["after"] = runs(instance)
""".replace("sys.path_of_library", repr(str(tmp_path / "out/lib/liba.so")))
    said = run(program, folder)
    assert said == dict.fromkeys(said, True) and len(said) == 5
