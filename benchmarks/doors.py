"""What one call through each of TVM's doors to an external kernel costs (docs/doors.md).

``python -m benchmarks.doors`` adds 16 floats through every door, from Python and in a chain of
calls inside a compiled network, in turns, and prints nanoseconds per call. What is above the
reference, a call by ctypes or by C, is the door.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from rich import box
from rich.table import Table
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T
from tvm.support import cc

import byoc
from benchmarks import harness
from byoc.errors import ByocError
from byoc.machine import cpu_name

ELEMENTS = 16
CHAIN = 64  # calls in a row inside compiled code; the call of the chain itself is spread over them
BURST = 100  # calls in a row from Python
PYTHON, NETWORK = "from Python", "in compiled code"

_HERE = Path(__file__).parent
_TENSOR = relax.TensorType([ELEMENTS], "float32")


class DoorError(ByocError):
    """A door gave a wrong sum, or a compiler that it needs refused its source."""


@dataclass(frozen=True)
class Task:
    """A door ready to be called: ``run`` makes ``calls`` calls and leaves its result in ``y``.

    ``expected`` is what y must hold afterwards, float32[16] (or [64, 16] for tiles).
    """

    where: str
    door: str
    calls: int
    run: Callable[[], Any]
    y: Callable[[], np.ndarray]
    expected: np.ndarray
    samples: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """Nanoseconds per call; ``over`` is the median above that of the table's reference."""

    where: str
    door: str
    min: float
    p50: float
    p90: float
    over: float


class Kernels:
    """The compiled kernel in every form that a door wants, and the operands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        includes = harness.ffi_includes()
        source, cpp = _HERE / "doors.c", folder / "add_cpp.so"
        self.object = harness.build_c(source, folder / "add.o", "-c", *includes)
        shared = harness.build_c(source, folder / "add.so", "-shared", *includes)
        cc.create_shared(str(cpp), [str(_HERE / "doors.cc")], ["-O2", "-std=c++17", *includes])
        self.raw = ctypes.CDLL(str(shared))
        pointers, count = [ctypes.c_void_p] * 3, [ctypes.c_int64]
        self.raw.byoc_bench_add.argtypes = pointers
        self.raw.byoc_bench_chain.argtypes = pointers + count
        self.packed = tvm_ffi.load_module(shared)["byoc_bench_packed"]
        self.cpp = tvm_ffi.load_module(cpp)["byoc_bench_cpp"]
        for name, function in (
            ("benchmarks.python", self.python),
            ("benchmarks.packed", self.packed),
            ("benchmarks.cpp", self.cpp),
        ):
            tvm_ffi.register_global_func(name, function, override=True)
        draw = np.random.default_rng(0)
        self.x, self.w = (
            tvm.runtime.tensor(draw.random(ELEMENTS, dtype=np.float32)) for _ in range(2)
        )

    def python(self, x: Any, w: Any, y: Any) -> None:
        """A packed function in Python, which calls the C kernel."""
        self.raw.byoc_bench_add(x.data_ptr(), w.data_ptr(), y.data_ptr())

    def link(self, function: tirx.PrimFunc | tvm.IRModule, name: str, addon: bool = True) -> Any:
        """Compile and export, with the kernel's object if ``addon``, and load."""
        library = self.folder / f"{name}.so"
        addons = [str(self.object)] if addon else []
        tvm.compile(function, "llvm").export_library(str(library), addons=addons)
        return tvm.runtime.load_module(str(library))

    def llvm(self) -> str | None:
        """The kernel as LLVM code, or None without clang."""
        clang = shutil.which("clang")
        if clang is None:
            return None
        text = self.folder / "add.ll"
        command = [clang, "-O2", "-S", "-emit-llvm", *harness.ffi_includes()]
        done = subprocess.run(
            [*command, str(_HERE / "doors.c"), "-o", str(text)], capture_output=True, check=False
        )
        return text.read_text(encoding="utf-8") if done.returncode == 0 else None


# ---------------------------------------------------------------- the doors


@T.prim_func(s_tir=True)
def _call_extern(
    X: T.Buffer((16,), "float32"), W: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")
):
    with T.sblock("add"):
        T.reads(X[0:16], W[0:16])
        T.writes(Y[0:16])
        T.evaluate(
            T.call_extern(
                "int32", "byoc_bench_add", X.access_ptr("r"), W.access_ptr("r"), Y.access_ptr("w")
            )
        )


@T.prim_func(s_tir=True)
def _loop(
    X: T.Buffer((16,), "float32"), W: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")
):
    for i in T.vectorized(16):
        Y[i] = X[i] + W[i]


@T.prim_func(s_tir=True)
def _tile_computes(x: T.handle, w: T.handle, y: T.handle):
    X = T.match_buffer(x, (16,), "float32", offset_factor=1)
    W = T.match_buffer(w, (16,), "float32", offset_factor=1)
    Y = T.match_buffer(y, (16,), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(X[0:16], W[0:16])
        T.writes(Y[0:16])
        for i in range(16):
            with T.sblock("add"):
                vi = T.axis.spatial(16, i)
                Y[vi] = X[vi] + W[vi]


@T.prim_func(s_tir=True)
def _tile_calls(x: T.handle, w: T.handle, y: T.handle):
    X = T.match_buffer(x, (16,), "float32", offset_factor=1)
    W = T.match_buffer(w, (16,), "float32", offset_factor=1)
    Y = T.match_buffer(y, (16,), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(X[0:16], W[0:16])
        T.writes(Y[0:16])
        T.evaluate(
            T.call_extern(
                "int32", "byoc_bench_add", X.access_ptr("r"), W.access_ptr("r"), Y.access_ptr("w")
            )
        )


def _te_extern(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    return te.extern(
        x.shape,
        [x, w],
        lambda i, o: tirx.call_packed("benchmarks.packed", i[0], i[1], o[0]),
        dtype=["float32"],
        in_buffers=[tirx.decl_buffer(t.shape, t.dtype) for t in (x, w)],
    )


def _tensorised() -> tirx.PrimFunc:
    """64 rows of 16, each added by one external call."""
    x, w = (te.placeholder((CHAIN, ELEMENTS), "float32", name) for name in "xw")
    y = te.compute(x.shape, lambda i, j: x[i, j] + w[i, j], "y")
    schedule = Schedule(te.create_prim_func([x, w, y]))
    TensorIntrin.register("benchmarks.tile", _tile_computes, _tile_calls, override=True)
    schedule.tensorize(schedule.get_loops(schedule.get_sblock("y"))[1], "benchmarks.tile")
    return schedule.mod["main"]


Step = Callable[[relax.BlockBuilder, relax.Expr, relax.Expr], relax.Expr]


def _chain(step: Step, calls: int = CHAIN) -> tvm.IRModule:
    """A Relax function of x and w that applies ``step`` so often, each time to the last result."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", _TENSOR), relax.Var("w", _TENSOR)
    value: relax.Expr = x
    with builder.function("main", [x, w]):
        with builder.dataflow():
            for _ in range(calls):
                value = builder.emit(step(builder, value, w))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def _by_name(name: str) -> Step:
    return lambda builder, x, w: op.call_dps_packed(name, (x, w), _TENSOR)


def _by_function(function: tirx.PrimFunc) -> Step:
    def step(builder: relax.BlockBuilder, x: relax.Expr, w: relax.Expr) -> relax.Expr:
        return op.call_tir(builder.add_func(function, "kernel"), (x, w), _TENSOR)

    return step


def _region() -> tuple[str, list[Any]]:
    """Name and modules of a region of this project that adds."""
    module = byoc.partition_for_ext(_chain(lambda b, x, w: op.add(x, w), 1), min_bytes=0)
    module = relax.transform.RunCodegen()(module)
    names = [
        call.args[0].global_symbol
        for block in module["main"].body.blocks
        for binding in block.bindings
        if (call := binding.value) is not None and getattr(call, "op", None) is not None
        if str(call.op.name) == "relax.call_dps_packed"
    ]
    return names[0], list(module.attrs["external_mods"])


# ---------------------------------------------------------------- from Python


def python_tasks(kernels: Kernels) -> Iterator[Task]:
    """Every door called from Python, with tensors that exist; the first is the reference."""
    x, w, y = kernels.x, kernels.w, tvm.runtime.tensor(np.zeros(ELEMENTS, np.float32))
    total = x.numpy() + w.numpy()

    def task(door: str, function: Callable[..., Any], *arguments: Any) -> Task:
        def run() -> None:
            for _ in repeat(None, BURST):
                function(*arguments)

        last = arguments[-1]
        fetch = y.numpy if isinstance(last, (int, tvm.runtime.Tensor)) else lambda: np.asarray(last)
        return Task(PYTHON, door, BURST, run, fetch, total)

    addresses = (x.data_ptr(), w.data_ptr(), y.data_ptr())
    yield task("C by ctypes (reference)", kernels.raw.byoc_bench_add, *addresses)
    yield task("1 packed function, Python", tvm_ffi.get_global_func("benchmarks.python"), x, w, y)
    yield task("2 packed function, C", kernels.packed, x, w, y)
    yield task("2 packed function, C++", kernels.cpp, x, w, y)
    numpy_arrays = [np.array(array) for array in (x.numpy(), w.numpy(), y.numpy())]
    yield task("2 the same, NumPy arrays", kernels.packed, *numpy_arrays)
    try:
        import torch
    except ModuleNotFoundError:
        pass
    else:
        tensors = [torch.from_numpy(array.copy()) for array in numpy_arrays]
        yield task("9 the same, PyTorch tensors", kernels.packed, *tensors)
    shape = (ELEMENTS,)
    inputs = [te.placeholder(shape, "float32", name) for name in "xw"]
    extern = te.create_prim_func([*inputs, _te_extern(*inputs)])
    yield task("3 te.extern", tvm.compile(extern, "llvm")["main"], x, w, y)
    for door, function in (("4 call_extern", _call_extern), ("7 TVMScript loop", _loop)):
        module = kernels.link(function, f"python{door[0]}")
        yield task(door, module[function.attrs["global_symbol"]], x, w, y)
    name, modules = _region()
    module = _chain(_by_name(name), 1).with_attrs({"external_mods": modules})
    region = kernels.link(module, "python10")
    yield task("10 region, its packed function", _find(region, name), x, w, y)


def _find(module: Any, name: str) -> Any:
    """A packed function somewhere in a library's modules."""
    waiting = [module]
    while waiting:
        found = waiting.pop()
        if found.implements_function(name):
            return found[name]
        waiting.extend(found.imports)
    raise DoorError(f"{name} is not in the library; is it a region?")


# ---------------------------------------------------------------- in compiled code


def network_tasks(kernels: Kernels) -> Iterator[Task]:
    """Every door in a chain of calls in a Relax function; the first is the reference, all in C."""
    x, w = kernels.x, kernels.w
    expected = x.numpy()
    for _ in range(CHAIN):
        expected = expected + w.numpy()
    y = tvm.runtime.tensor(np.zeros(ELEMENTS, np.float32))
    addresses = (x.data_ptr(), w.data_ptr(), y.data_ptr(), CHAIN)

    def by_c() -> None:
        kernels.raw.byoc_bench_chain(*addresses)

    yield Task(NETWORK, "C by pointer (reference)", CHAIN, by_c, y.numpy, expected)
    for door, module in network_modules(kernels):
        library = kernels.link(module, door.replace(" ", "_"), addon=door == "4 call_extern")
        main = relax.VirtualMachine(library, tvm.cpu())["main"]
        kept: list[Any] = [None]

        def run(main: Any = main, kept: list[Any] = kept) -> None:
            kept[0] = main(x, w)

        def fetch(kept: list[Any] = kept) -> np.ndarray:
            return kept[0].numpy()

        yield Task(NETWORK, door, CHAIN, run, fetch, expected)
    yield _tile_task(kernels)


def network_modules(kernels: Kernels) -> Iterator[tuple[str, tvm.IRModule]]:
    """Name of a door, and a chain of calls through it."""
    yield "1 packed function, Python", _chain(_by_name("benchmarks.python"))
    yield "2 packed function, C", _chain(_by_name("benchmarks.packed"))
    yield "2 packed function, C++", _chain(_by_name("benchmarks.cpp"))
    yield "3 te.extern", _chain(lambda b, x, w: b.call_te(_te_extern, x, w))
    yield "4 call_extern", _chain(_by_function(_call_extern))
    static = tvm.runtime.module.load_static_library(str(kernels.object), ["byoc_bench_packed"])
    module = _chain(_by_name("byoc_bench_packed"))
    yield "6 static object", module.with_attrs({"external_mods": [static]})
    text = kernels.llvm()
    if text is not None:
        body = tirx.AttrStmt(0, "pragma_import_llvm", text, _call_extern.body)
        yield "6 LLVM code", _chain(_by_function(_call_extern.with_body(body)))
    yield "7 TVMScript loop", _chain(_by_function(_loop))
    name, modules = _region()
    yield "10 region", _chain(_by_name(name)).with_attrs({"external_mods": modules})


def _tile_task(kernels: Kernels) -> Task:
    """One function that calls the kernel for each of its 64 tiles."""
    draw = np.random.default_rng(1)
    x, w, y = (
        tvm.runtime.tensor(draw.random((CHAIN, ELEMENTS), dtype=np.float32)) for _ in range(3)
    )
    main = kernels.link(_tensorised(), "tiles")["main"]
    total = x.numpy() + w.numpy()
    return Task(NETWORK, "5 tensorised, per tile", CHAIN, lambda: main(x, w, y), y.numpy, total)


# ---------------------------------------------------------------- measuring


def measure(tasks: list[Task], rounds: int) -> list[Row]:
    """Check each task once, then time them in turns; raises ``DoorError`` for a wrong sum."""
    for task in tasks:
        task.run()
        if not np.allclose(task.y(), task.expected, rtol=1e-5):
            raise DoorError(f"door '{task.door}' {task.where}: wrong sum; nothing was measured")
    for task in harness.in_turns(tasks, rounds):
        task.run()  # finds cold caches after the other doors, and is dropped
        for _ in range(3):
            start = time.perf_counter_ns()
            task.run()
            task.samples.append((time.perf_counter_ns() - start) / task.calls)
    rows = []
    reference = 0.0
    for task in tasks:
        low, middle, high = harness.spread(task.samples)
        if "reference" in task.door:
            reference = middle
        rows.append(Row(task.where, task.door, low, middle, high, middle - reference))
    return rows


def facts() -> dict[str, str]:
    """CPU, threads, precision and versions of a run."""
    packages = (("TVM", "apache-tvm"), ("TVM FFI", "apache-tvm-ffi"), ("NumPy", "numpy"))
    versions = [f"{title} {version(package)}" for title, package in packages]
    return {
        "cpu": f"{cpu_name()}, {os.cpu_count()} cores",
        "run": f"1 thread, fp32, {ELEMENTS} elements",
        "versions": harness.versions(f"byoc {byoc.__version__}", *versions),
    }


def run(rounds: int) -> list[Row]:
    """Build every door, and measure all in one interleaved run."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = Kernels(Path(folder))
        return measure([*python_tasks(kernels), *network_tasks(kernels)], rounds)


def _table(where: str, rows: list[Row]) -> Table:
    cells = []
    for row in rows:
        over = "" if "reference" in row.door else f"{row.over:+.0f}"
        cells.append([row.door, f"{row.min:.0f}", f"{row.p50:.0f}", f"{row.p90:.0f}", over])
    headings = ("door", "min", "p50", "p90", "above the reference")
    return harness.table(f"{where}: ns per call", headings, cells, box=box.MARKDOWN)


@harness.one_line_errors(status=1)
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure and print."""
    options = harness.parser("doors", __doc__, rounds=300).parse_args(arguments)
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    rows = run(options.rounds)
    if options.json:
        harness.show_json({**facts(), "rows": [asdict(row) for row in rows]})
        return 0
    tables = (_table(place, [r for r in rows if r.where == place]) for place in (PYTHON, NETWORK))
    harness.show(["; ".join(facts().values()), *tables])
    return 0


if __name__ == "__main__":
    sys.exit(main())
