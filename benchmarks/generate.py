"""Decoders: prompts and single steps beside ONNX Runtime, OpenVINO and a plain read of memory.

``python -m benchmarks.generate [--threads N] [--rounds N] [--model NAME] [--past N ...]``

A step reads every weight once, and the cache. So it is measured beside a plain read of as many
bytes (``ext_bench_read``) as well: ``share`` is its speed in times of that. The library keeps keys
and values; the peers are given those of the step before in memory of theirs, and write all of them
again. A prompt is as many tokens as ``--past`` says. All take turns in one process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks import abi, harness
from benchmarks.kernels import join_pool
from byoc.bench.interleave import thread_environment
from byoc.bench.tables import Sheet
from byoc.errors import BenchmarkError
from byoc.machine import choose_cores, cpu_name

#: Decoders by name: those of the builder, with the sizes of the originals. ``tiny`` is for tests.
MODELS: dict[str, dict[str, int]] = {
    "qwen2-0.5b": {
        **{"layers": 24, "hidden": 896, "heads": 14, "groups": 2, "inner": 4864},
        **{"vocabulary": 151936, "biased": True},
    },
    "qwen2-8-layers": {
        **{"layers": 8, "hidden": 896, "heads": 14, "groups": 2, "inner": 4864},
        **{"vocabulary": 32000, "biased": True},
    },
    "tiny": {
        **{"layers": 2, "hidden": 32, "heads": 4, "groups": 2, "inner": 48, "vocabulary": 50},
    },
}
_TARGET, _GREATEST_ERROR = 0.85, 1e-4
_READ_BYTES = 1 << 28

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """Milliseconds of one who computes a prompt or a step: least, median, nine tenths."""

    what: str
    past: int
    engine: str
    times: tuple[float, float, float]
    megabytes: float

    @property
    def label(self) -> str:
        """What is computed."""
        return f"{self.what} of {self.past}" if self.what == "prompt" else f"step at {self.past}"


def inputs_of(past: int, length: int, vocabulary: int) -> Inputs:
    """Tokens that nobody wrote, and where they stand."""
    return {
        "input_ids": np.random.default_rng(past).integers(0, vocabulary, (1, length)),
        "attention_mask": np.ones((1, past + length), np.int64),
        "position_ids": np.arange(past, past + length)[None],
    }


class _Ours:
    def __init__(self, library: Path, capacity: int) -> None:
        import byoc

        self.name, self.model = "byoc", byoc.load(library, capacity=capacity)

    def prompt(self, inputs: Inputs) -> np.ndarray:
        self.model.reset()
        return self.model.run(inputs)["logits"]

    def step(self, inputs: Inputs) -> np.ndarray:
        return self.model.run(inputs)["logits"]


class _OnnxRuntime:
    def __init__(self, model: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.name, self.session = "ONNX Runtime", onnxruntime.InferenceSession(str(model), options)
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.states = [i for i in self.session.get_inputs() if i.name.startswith("past")]
        self.past: dict[str, object] = {}

    def prompt(self, inputs: Inputs) -> np.ndarray:
        import onnxruntime

        self.past = {
            state.name: onnxruntime.OrtValue.ortvalue_from_numpy(
                np.zeros((1, state.shape[1], 0, state.shape[3]), np.float32)
            )
            for state in self.states
        }
        return self.step(inputs)

    def step(self, inputs: Inputs) -> np.ndarray:
        binding = self.session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, value in self.past.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        found = dict(zip(self.outputs, binding.get_outputs(), strict=True))
        for name in self.past:
            self.past[name] = found[name.replace("past_key_values", "present")]
        return found["logits"].numpy()


class _OpenVino:
    def __init__(self, model: Path, threads: int) -> None:
        import openvino

        options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        options |= {"PERFORMANCE_HINT": "LATENCY", "KV_CACHE_PRECISION": "f32"}
        self.name, core = "OpenVINO", openvino.Core()
        compiled = core.compile_model(str(model), "CPU", options)
        self.request, self.past = compiled.create_infer_request(), {}
        self.states = [port for port in compiled.inputs if port.any_name.startswith("past")]
        self.tensor = openvino.Tensor

    def prompt(self, inputs: Inputs) -> np.ndarray:
        for port in self.states:
            shape = [1, port.partial_shape[1].get_length(), 0, port.partial_shape[3].get_length()]
            self.past[port.any_name] = self.tensor(np.zeros(shape, np.float32))
        return self.step(inputs)

    def step(self, inputs: Inputs) -> np.ndarray:
        self.request.infer({**inputs, **self.past}, share_inputs=True)
        for name in self.past:
            # Its outputs' memory is its own, and written again by the next call.
            result = self.request.get_tensor(name.replace("past_key_values", "present"))
            self.past[name] = self.tensor(result.data.copy())
        return self.request.get_tensor("logits").data


Engine = _Ours | _OnnxRuntime | _OpenVino


def measure(
    name: str, model: Path, library: Path, lengths: Sequence[int], rounds: int, threads: int
) -> list[Row]:
    """All rows. Raises ``BenchmarkError`` where an engine's answer is another's no more."""
    sizes = MODELS[name]
    words, width = sizes["vocabulary"], sizes["hidden"] // sizes["heads"]
    of_token = 2 * 4 * sizes["layers"] * sizes["groups"] * width
    engines: list[Engine] = [_Ours(library, max(lengths) + 2 * rounds + 2)]
    engines += [_OnnxRuntime(model, threads), _OpenVino(model, threads)]
    rows: list[Row] = []
    for past in lengths:
        # The file is the weights: of the table of words a row is read, and all by the last product.
        nbytes = model.stat().st_size + past * of_token
        calls = {engine.name: engine.prompt for engine in engines}
        rows += _raced("prompt", past, calls, rounds, [inputs_of(0, past, words)] * rounds, nbytes)
        steps = [inputs_of(past + number, 1, words) for number in range(rounds)]
        calls = {engine.name: engine.step for engine in engines}
        rows += _raced("step", past, calls, rounds, steps, nbytes)
    return rows


def _raced(
    what: str,
    past: int,
    calls: dict[str, Callable[[Inputs], np.ndarray]],
    rounds: int,
    inputs: Sequence[Inputs],
    nbytes: float,
) -> list[Row]:
    times: dict[str, list[float]] = {name: [] for name in (*calls, "plain read")}
    read = _plain_read()
    for number in range(rounds):
        answers = {}
        order = list(calls)
        for place in range(len(order)):
            name = order[(place + number) % len(order)]
            start = time.perf_counter()
            answers[name] = calls[name](inputs[number])
            times[name].append(time.perf_counter() - start)
        times["plain read"].append(read() * nbytes / _READ_BYTES)
        right = answers["ONNX Runtime"]
        for name, answer in answers.items():
            error = np.abs(answer - right).max() / np.ptp(right)
            if not error <= _GREATEST_ERROR:
                raise BenchmarkError(f"{name}: {what} at {past} is off by {error:.1e} of the range")
    if what == "prompt":
        del times["plain read"]
    return [
        Row(what, past, name, harness.spread([1e3 * t for t in found]), nbytes * 1e-6)
        for name, found in times.items()
    ]


def _plain_read() -> Callable[[], float]:
    """What reads memory once, and tells the seconds."""
    lib = abi.load()
    memory = abi.aligned((_READ_BYTES // 4,))
    memory[...] = 1.0

    def read() -> float:
        start = time.perf_counter()
        lib.ext_bench_read(ctypes.c_int64(_READ_BYTES), ctypes.c_void_p(memory.ctypes.data))
        return time.perf_counter() - start

    return read


def checks(rows: Sequence[Row]) -> list[str]:
    """Shares of a plain read below the target, and those slower than a peer."""
    lines = []
    for row in rows:
        if row.engine != "byoc":
            continue
        others = {r.engine: r.times[1] for r in rows if r.label == row.label and r is not row}
        read = others.pop("plain read", None)
        if read is not None and read / row.times[1] < _TARGET:
            lines.append(f"{row.label}: {read / row.times[1]:.2f} of a read MISSES {_TARGET}")
        best = min(others, key=others.__getitem__)
        if row.times[1] > others[best]:
            lines.append(f"{row.label}: {row.times[1] / others[best]:.2f} of {best} MISSES 1.00")
    return lines or ["all reach their targets"]


def sheet(rows: Sequence[Row], threads: int, name: str) -> Sheet:
    """Every engine, with its time in times of ours, and the share of a plain read."""
    shown = []
    for row in rows:
        same = {r.engine: r.times[1] for r in rows if r.label == row.label}
        read = same.get("plain read")
        share = f"{read / row.times[1]:.2f}" if read else ""
        ratio = f"{same['byoc'] / row.times[1]:.2f}"
        shown.append([row.label, row.engine, *(f"{t:.2f}" for t in row.times), ratio, share])
    headings = ("what", "engine", "min ms", "p50 ms", "p90 ms", "byoc / it", "share of read")
    return Sheet(f"{name}, fp32, threads: {threads}", headings, shown, left=2)


def _versioned(package: str) -> str:
    return f"{package} {version(package)}"


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print. 1 where a target is missed, 2 for errors."""
    parser = harness.parser("generate", __doc__, markdown=True, threads=1, rounds=20)
    parser.add_argument("--model", choices=MODELS, default="qwen2-8-layers")
    parser.add_argument("--past", type=int, nargs="+", default=[100, 500, 2000], metavar="N")
    options = parser.parse_args(arguments)
    raw = harness.call_apart(
        "benchmarks.generate", options.model, options.past, options.rounds, options.threads,
        more=thread_environment(options.threads),
    )  # fmt: skip
    rows = [Row(**{**row, "times": tuple(row["times"])}) for row in raw]
    if options.json:
        harness.show_json({"cpu": cpu_name(), "rows": raw, "checks": checks(rows)})
    else:
        about = [cpu_name(), harness.versions(*map(_versioned, ("onnxruntime", "openvino")))]
        table = sheet(rows, options.threads, options.model)
        harness.show_sheets([about, table], checks(rows), options.markdown)
    return int(harness.misses(checks(rows)))


def child(name: str, past: Sequence[int], rounds: int, threads: int) -> list[dict[str, object]]:
    """The run as plain values."""
    import onnx

    import byoc
    from models.decoder import llama

    os.sched_setaffinity(0, choose_cores(threads))
    if threads > 1:
        join_pool(threads)
    with tempfile.TemporaryDirectory(prefix="byoc-generate-") as folder:
        model, library = Path(folder, "model.onnx"), Path(folder, "model.so")
        onnx.save(llama(**MODELS[name]), model)
        with warnings.catch_warnings(action="ignore", category=byoc.AxesNote):
            byoc.compile(model, library, states=True)
        rows = measure(name, model, library, past, rounds, threads)
    return [asdict(row) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
