"""A server with three models of one network, and clients: what ``benchmarks/serving.py`` times.

Runs where MLServer and Triton's clients are.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc.aio as triton

from byoc.accuracy import relative_error
from byoc.errors import BenchmarkError

_TOLERANCE = 1e-4
_SECONDS = 60
_MOST_WAIT = 0.002
_OURS = "byoc.integrations.mlserver.Runtime"
MODELS = ("byoc_threads", "byoc_callers", "onnxruntime")


def child(
    folder: str, clients: int, threads: int, seconds: float, rounds: int
) -> dict[str, list[list[float]]]:
    """Seconds of every request, a list for each round, by the model. Raises ``BenchmarkError``."""
    place = Path(folder)
    ports = _write(place, clients, threads)
    command = [sys.executable, "-m", "byoc.integrations.serve", str(place / "models")]
    with (place / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            return asyncio.run(_load(place, ports, server, clients, seconds, rounds))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(_SECONDS)


def _write(place: Path, clients: int, threads: int) -> int:
    """The settings of server and models; the port of gRPC."""
    joined = {"max_batch_rows": clients, "max_batch_time": _MOST_WAIT}
    extras = {
        "byoc_threads": {**joined, "threads": threads},
        "byoc_callers": {**joined, "threads": 1, "callers": threads},
        "onnxruntime": {"threads": threads},
    }
    for name in MODELS:
        ours = name != "onnxruntime"
        uri = str(place / ("model.so" if ours else "model.onnx"))
        text = {
            "name": name,
            "implementation": _OURS if ours else "benchmarks.onnxruntime_server.Runtime",
            "parameters": {"uri": uri, "extra": extras[name]},
        }
        if not ours:
            text |= {"max_batch_size": clients, "max_batch_time": _MOST_WAIT}
        (place / "models" / name).mkdir(parents=True)
        (place / "models" / name / "model-settings.json").write_text(json.dumps(text))
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    keys = ("http_port", "grpc_port", "metrics_port")
    ports = {key: s.getsockname()[1] for key, s in zip(keys, sockets, strict=True)}
    for one in sockets:
        one.close()
    (place / "models" / "settings.json").write_text(json.dumps({"host": "127.0.0.1", **ports}))
    return ports["grpc_port"]


async def _load(
    place: Path, port: int, server: Any, clients: int, seconds: float, rounds: int
) -> dict[str, list[list[float]]]:
    rows, expected = (np.load(place / f"{name}.npy") for name in ("rows", "expected"))
    async with triton.InferenceServerClient(f"127.0.0.1:{port}") as client:
        names = {name: await _names(client, name, server, place) for name in MODELS}
        found: dict[str, list[list[float]]] = {name: [] for name in MODELS}
        for number in range(rounds + 1):  # the first one warms up
            order = list(MODELS) if number % 2 else list(reversed(MODELS))
            for name in order:
                end = time.perf_counter() + (seconds if number else min(seconds, 1.0))
                asked = [
                    _ask(client, name, names[name], (rows, expected), end, first)
                    for first in range(clients)
                ]
                times = [one for some in await asyncio.gather(*asked) for one in some]
                found[name] += [times] if number else []
        return found


async def _names(client: Any, model: str, server: Any, place: Path) -> tuple[str, str]:
    """Names of the input and the output, once the model is ready."""
    deadline = time.monotonic() + _SECONDS
    while True:
        if server.poll() is not None or time.monotonic() > deadline:
            last = (place / "server.log").read_text().splitlines()[-1:]
            raise BenchmarkError(f"the server did not start: {' '.join(last)}")
        try:
            if await client.is_model_ready(model):
                about = await client.get_model_metadata(model)
                return about.inputs[0].name, about.outputs[0].name
        except triton.InferenceServerException:
            pass
        await asyncio.sleep(0.1)


async def _ask(
    client: Any,
    model: str,
    names: tuple[str, str],
    samples: tuple[np.ndarray, np.ndarray],
    end: float,
    first: int,
) -> list[float]:
    """One client: a row at a time, the next one when it has the answer, until ``end``."""
    rows, expected = samples
    times, number = [], first
    while time.perf_counter() < end:
        sample = number % len(rows)
        number += 1
        given = triton.InferInput(names[0], [1, *rows.shape[1:]], "FP32")
        given.set_data_from_numpy(rows[sample : sample + 1])
        begin = time.perf_counter()
        answer = (await client.infer(model, [given])).as_numpy(names[1])
        times.append(time.perf_counter() - begin)
        error = relative_error([answer[0]], [expected[sample]])
        if not error <= _TOLERANCE:
            raise BenchmarkError(f"{model}: an answer differs from ONNX Runtime's by {error:.1e}")
    return times
