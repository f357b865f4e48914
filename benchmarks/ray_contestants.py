"""The jobs that ``benchmarks/ray_data.py`` times, in a process that finds Ray."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_TOLERANCE = 1e-4
_BATCHES = 8  # of a block, which is a task
_sessions: dict[str, Any] = {}


class Timed:
    """A function of ``map_batches`` that says when it began and ended."""

    def __init__(self, function: Callable[[Any], dict[str, np.ndarray]]) -> None:
        self.function = function

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        begin = time.perf_counter()
        (answer,) = (v for k, v in self.function(rows).items() if k not in ("id", "error"))
        end = time.perf_counter()
        times = {"begin": np.full(len(answer), begin), "end": np.full(len(answer), end)}
        return {"id": rows["id"], "answer": answer, **times}


class OnnxRuntime:
    """What one writes for ONNX Runtime: a session in each worker, one thread for its CPU."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, rows: Any) -> dict[str, np.ndarray]:
        if self.path not in _sessions:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            _sessions[self.path] = onnxruntime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        session = _sessions[self.path]
        return {"answer": session.run(None, {session.get_inputs()[0].name: rows["row"]})[0]}


def bare_loop(library: str, rows: np.ndarray, batch: int) -> float:
    """Seconds of calling the library on all rows, with nothing around."""
    from byoc.deploy.loader import load

    if library not in _sessions:
        _sessions[library] = load(library, 1)
    model = _sessions[library]
    name = model.inputs[0].name
    model.run({name: rows[:batch]})
    begin = time.perf_counter()
    for start in range(0, len(rows), batch):
        model.run({name: rows[start : start + batch]})
    return time.perf_counter() - begin


def child(folder: str, count: int, batch: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, from the first row's begin to the last one's end.

    Raises ``BenchmarkError`` where an answer is wrong.
    """
    import ray
    import ray.data

    from byoc.integrations.ray import Predictor

    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    rows = np.load(Path(folder, "rows.npy"))
    rows = rows[np.arange(count) % len(rows)]
    expected = np.load(Path(folder, "expected.npy"))
    store = 2 * rows.nbytes + (256 << 20)
    ray.init(
        num_cpus=1,
        object_store_memory=store,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    step = _BATCHES * batch
    parts = [
        {"id": np.arange(start, min(start + step, count)), "row": rows[start : start + step]}
        for start in range(0, count, step)
    ]
    data = ray.data.from_blocks([_block(part) for part in parts]).materialize()
    library, source = (str(Path(folder, name)) for name in ("model.so", "model.onnx"))
    name = _input_name(library)
    jobs = {
        "byoc": Predictor(library, inputs={name: "row"}),
        "ONNX Runtime": OnnxRuntime(source),
    }
    found: dict[str, list[float]] = {key: [] for key in (*jobs, "bare loop")}
    shared, alone = ray.put(rows), ray.remote(num_cpus=1)(bare_loop)
    for number in range(rounds + 1):  # the first one warms up
        for key, function in jobs.items():
            timed = data.map_batches(Timed(function), batch_size=batch, num_cpus=1)
            seconds = _seconds(timed.take_all(), expected, count)
            found[key] += [seconds] if number else []
        seconds = ray.get(alone.remote(library, shared, batch))
        found["bare loop"] += [seconds] if number else []
    ray.shutdown()
    return found


def _block(part: dict[str, np.ndarray]) -> Any:
    from ray.data.block import BlockAccessor

    return BlockAccessor.batch_to_block(part)


def _input_name(library: str) -> str:
    from byoc.deploy.compiled_file import read_compiled

    return read_compiled(Path(library)).metadata().inputs[0].name


def _seconds(rows: list[dict[str, Any]], expected: np.ndarray, count: int) -> float:
    from byoc.accuracy import relative_error
    from byoc.errors import BenchmarkError

    if sorted(int(row["id"]) for row in rows) != list(range(count)):
        raise BenchmarkError("a row is missing or there twice")
    for row in rows[:: max(1, count // 16)]:
        wanted = expected[int(row["id"]) % len(expected)]
        error = relative_error([np.asarray(row["answer"])], [wanted])
        if not error <= _TOLERANCE:
            raise BenchmarkError(f"an answer differs from ONNX Runtime's by {error:.1e}")
    return max(float(row["end"]) for row in rows) - min(float(row["begin"]) for row in rows)
