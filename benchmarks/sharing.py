"""Do processes share a library's weights, and does loading depend on how many there are?

``python -m benchmarks.sharing [--megabytes 1 16 128 512] [--large] [--json]``

For networks of so many megabytes of weights, each compiled into one library: milliseconds to load
it in a fresh process once the file is cached; and, with a process that has loaded and run it, what
a second one adds to the memory of both, by the proportional set sizes of /proc/PID/smaps.
``--large`` compiles, runs and checks a network of 2.5 GiB as well, which takes minutes, 8 GB of
disk and 12 GB of memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks import harness
from byoc.accuracy import relative_error
from byoc.bench.machine import Machine
from byoc.errors import BenchmarkError

_SIDE = 1024  # of the matrices, 4 MB each
_LARGE_MB = 2560
_LARGE_SIDE = 8192
_REPEATS = 5
_MOST_ADDED, _MOST_GROWTH = 0.10, 2.0
_TOLERANCE = 1e-4

#: One process: loads, runs once, prints, and stays until its stdin ends.
_PROCESS = """
import json, os, sys, time
os.environ["TVM_USE_RUNTIME_LIB"] = "1"
sys.modules["torch"] = None
import numpy as np
from byoc.deploy.loader import load
from byoc.deploy.tvm_runtime import load_runtime
load_runtime()
begin = time.perf_counter()
model = load(sys.argv[1], threads=1)
loaded = time.perf_counter()
result = model(np.load(sys.argv[2]))
done = time.perf_counter()
np.save(sys.argv[3], result)
print(json.dumps([1e3 * (loaded - begin), 1e3 * (done - loaded)]), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Shared:
    """One network: megabytes, milliseconds.

    ``first_mb`` is what the library takes in memory with one process, ``added_mb`` what a second
    one adds to that; ``own_mb`` is what the second process has for itself in all, Python included.
    """

    weights_mb: float
    library_mb: float
    load_ms: float
    first_run_ms: float
    first_mb: float
    added_mb: float
    own_mb: float

    @property
    def added(self) -> float:
        """What the second process adds, as a share of the weights."""
        return self.added_mb / self.weights_mb


def measure(megabytes: Sequence[int], large: bool = False) -> list[Shared]:
    """Compile, load and share networks of so many megabytes of weights.

    Raises ``BenchmarkError`` where an answer differs from ONNX Runtime's.
    """
    sizes = [(mb, _SIDE) for mb in megabytes] + ([(_LARGE_MB, _LARGE_SIDE)] if large else [])
    return [_measure(size, side) for size, side in sizes]


def _measure(megabytes: int, side: int) -> Shared:
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        folder = Path(name)
        layers = max(1, round(megabytes * (1 << 20) / (4 * side * side)))
        _write(folder / "model.onnx", layers, side)
        draw = np.random.default_rng(1)
        np.save(folder / "x.npy", draw.standard_normal((1, side), np.float32))
        harness.byoc("compile", folder / "model.onnx", "-o", folder / "m.so", "--require-full")
        _check(folder)
        times = [_alone(folder) for _ in range(_REPEATS)]
        first_mb, added_mb, own_mb = _together(folder)
        return Shared(
            weights_mb=layers * 4e-6 * side * side,
            library_mb=(folder / "m.so").stat().st_size * 1e-6,
            load_ms=min(load for load, _ in times),
            first_run_ms=min(run for _, run in times),
            first_mb=first_mb,
            added_mb=added_mb,
            own_mb=own_mb,
        )


def _write(path: Path, layers: int, side: int) -> None:
    """A chain of matrix products and ReLUs, the weights in a file of external data."""
    draw = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    with path.with_suffix(".data").open("wb") as file:
        for layer in range(layers):
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[side, side])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", path.with_suffix(".data").name),
                ("offset", str(file.tell())),
                ("length", str(4 * side * side)),
            ):
                tensor.external_data.add(key=key, value=value)
            scale = np.float32((2 / side) ** 0.5)
            (draw.standard_normal((side, side), np.float32) * scale).tofile(file)
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [x, tensor.name], [f"m{layer}"]))
            last = layer + 1 == layers
            x = "y" if last else f"r{layer}"
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [x]))
    shape = (1, side)
    ends = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y"))
    graph = helper.make_graph(nodes, "chain", [next(ends)], [next(ends)], weights)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def _check(folder: Path) -> None:
    """Hold our answer against ONNX Runtime's, in a process that ends before anything is timed."""
    _alone(folder)
    script = (
        "import sys, numpy, onnxruntime as o; x = numpy.load(sys.argv[2]);"
        "s = o.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']);"
        "numpy.save(sys.argv[3], s.run(None, {'x': x})[0])"
    )
    files = [str(folder / name) for name in ("model.onnx", "x.npy", "expected.npy")]
    harness.run([sys.executable, "-c", script, *files], "ONNX Runtime")
    error = relative_error([np.load(folder / "y.npy")], [np.load(folder / "expected.npy")])
    if not error <= _TOLERANCE:
        raise BenchmarkError(f"the answer differs from ONNX Runtime's by {error:.1e} of the range")


def _start(folder: Path) -> tuple[subprocess.Popen[str], list[float]]:
    files = [str(folder / name) for name in ("m.so", "x.npy", "y.npy")]
    process = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, *files],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkError("a process that loads the library died; byoc run tells why")
    return process, json.loads(line)


def _stop(process: subprocess.Popen[str]) -> None:
    process.communicate("")


def _alone(folder: Path) -> tuple[float, float]:
    """Milliseconds to load, and of the first run."""
    process, (load, run) = _start(folder)
    _stop(process)
    return load, run


def _together(folder: Path) -> tuple[float, float, float]:
    """MB of the library with one process; what a second adds; what that has in all."""
    first, _ = _start(folder)
    alone = _library_pss(first.pid, "m.so")
    second, _ = _start(folder)
    both = _library_pss(first.pid, "m.so") + _library_pss(second.pid, "m.so")
    own = _private(second.pid)
    _stop(second)
    _stop(first)
    return alone, both - alone, own


def _library_pss(pid: int, name: str) -> float:
    """MB of a process's share of the pages of a file that it has mapped."""
    return sum(
        fields.get("Pss", 0.0) for path, fields in _mappings(pid) if path.rpartition("/")[2] == name
    )


def _private(pid: int) -> float:
    return sum(
        fields.get("Private_Clean", 0.0) + fields.get("Private_Dirty", 0.0)
        for _, fields in _mappings(pid)
    )


def _mappings(pid: int) -> list[tuple[str, dict[str, float]]]:
    """File and sizes in MB of each mapping."""
    found: list[tuple[str, dict[str, float]]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[0].endswith(":"):
            if len(words) == 3 and words[2] == "kB":
                found[-1][1][words[0][:-1]] = float(words[1]) * 1024e-6
        else:
            found.append((words[5] if len(words) > 5 else "", {}))
    return found


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; exit code 1 where memory or loading is not as it should be."""
    parser = harness.parser("sharing", __doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[4, 32, 128, 512])
    parser.add_argument("--large", action="store_true", help="2.5 GiB as well")
    options = parser.parse_args(arguments)
    rows = measure(options.megabytes, options.large)
    if options.json:
        harness.show_json([asdict(row) for row in rows])
    else:
        print("\n".join(Machine.measure(["byoc", "onnxruntime"]).lines()))
        print(
            "| weights, MB | library, MB | load, ms | first run, ms | mapped, MB | second process"
            " adds, MB | of the weights | its own memory, MB |"
        )
        print("|" + "---:|" * 8)
        for row in rows:
            print(
                f"| {row.weights_mb:.0f} | {row.library_mb:.0f} | {row.load_ms:.1f} | "
                f"{row.first_run_ms:.1f} | {row.first_mb:.0f} | {row.added_mb:.2f} | "
                f"{100 * row.added:.2f} % | {row.own_mb:.0f} |"
            )
    least = min(row.load_ms for row in rows)
    kept = all(
        row.added < _MOST_ADDED and row.load_ms < _MOST_GROWTH * least + 1 for row in rows[-3:]
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
