"""A real server and stock clients: ``python -m tests.integrations.serve_jobs FOLDER``.

The folder holds ``models``, which is served; ``new.so`` and ``broken.so``, which take the place of
a library there; and ``images.npy``. Prints one line of JSON with what each job saw. Runs where
MLServer and Triton's clients are installed, and no ONNX is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from grpc import RpcError, insecure_channel
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

_SECONDS = 60
_BODY = 2_000_000


class Server:
    """The server in a process of its own, on free ports, with these settings."""

    def __init__(self, folder: Path, **more: Any) -> None:
        places = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.rest, self.grpc, self.prometheus = (p.getsockname()[1] for p in places)
        for place in places:
            place.close()
        ports = {"http_port": self.rest, "grpc_port": self.grpc, "metrics_port": self.prometheus}
        settings = {"host": "127.0.0.1", "grpc_max_message_length": _BODY, **ports, **more}
        (folder / "settings.json").write_text(json.dumps(settings))
        command = [sys.executable, "-m", "byoc.integrations.serve", str(folder)]
        self.process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
        deadline = time.monotonic() + _SECONDS
        while self.get("/v2/health/ready") != 200:
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.05)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_SECONDS)

    def get(self, path: str) -> int:
        """The status of a GET; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}") as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def post(self, path: str, body: bytes, **more: str) -> tuple[int, str]:
        """Status and text of a POST of raw bytes."""
        headers = {"Content-Type": "application/json", **more}
        request = urllib.request.Request(f"http://127.0.0.1:{self.rest}{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:  # an answer before the whole body was read
            return 0, str(error)

    def metrics(self) -> dict[str, float]:
        """What Prometheus would see of ours."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        ours = [line.rpartition(" ") for line in lines if line.startswith("byoc_")]
        return {name: float(value) for name, _, value in ours}


def ask(kind: Any, client: Any, array: np.ndarray, version: str = "") -> np.ndarray:
    """The scores of some rows, by a client of Triton's for REST or gRPC."""
    given = kind.InferInput("image", array.shape, "FP32")
    if kind is tritonclient.http:
        given.set_data_from_numpy(array, binary_data=False)
    else:
        given.set_data_from_numpy(array)
    return client.infer("classifier", [given], model_version=version).as_numpy("scores")


def answers(server: Server, clients: dict[Any, Any], images: np.ndarray) -> dict[str, Any]:
    """Each version through each client, and the example's."""
    found: dict[str, Any] = {}
    for kind, client in clients.items():
        name = kind.__name__.rpartition(".")[2]
        assert client.is_server_ready() and client.is_model_ready("classifier", "1")
        for version in ("1", "2", ""):
            found[f"{name} {version}"] = ask(kind, client, images[:3], version).tolist()
    places = [f"127.0.0.1:{port}" for port in (server.rest, server.grpc)]
    command = [sys.executable, "examples/serve/ask.py", *places]
    found["example"] = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found["about"] = clients[tritonclient.http].get_model_metadata("classifier")
    return found


def many(server: Server, images: np.ndarray) -> dict[str, Any]:
    """48 requests of 1 to 3 rows at once: right answers, in fewer calls."""

    def one(number: int) -> list:
        rows = images[number % 20 : number % 20 + 1 + number % 3]
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
            return ask(tritonclient.grpc, client, rows, "1").tolist()

    labels = '{model="classifier",version="1"}'
    keys = [f"byoc_call_rows_{what}{labels}" for what in ("count", "sum")]
    keys.append(f"byoc_library_seconds_count{labels}")
    before = server.metrics()
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(one, range(48)))
    after = server.metrics()
    return {"scores": found, "grew": [after[key] - before.get(key, 0) for key in keys]}


def refused(server: Server, clients: dict[Any, Any], images: np.ndarray) -> dict[str, Any]:
    """Requests that are wrong, each with the status and the message."""
    path = "/v2/models/classifier/infer"
    size = images[:1].size
    good = {
        "name": "image",
        "shape": [1, *images.shape[1:]],
        "datatype": "FP32",
        "data": [0] * size,
    }

    def rest(**changed: Any) -> tuple[int, str]:
        more = {"outputs": [{"name": changed.pop("output")}]} if "output" in changed else {}
        return server.post(path, json.dumps({"inputs": [good | changed], **more}).encode())

    def grpc(array: np.ndarray, name: str, datatype: str) -> tuple[str, str]:
        given = tritonclient.grpc.InferInput(name, array.shape, datatype)
        given.set_data_from_numpy(array)
        try:
            clients[tritonclient.grpc].infer("classifier", [given])
        except InferenceServerException as error:
            return error.status(), error.message()
        return "", ""

    def raw(*contents: bytes, datatype: str = "FP32", rows: int = 1) -> tuple[str, str]:
        request = service_pb2.ModelInferRequest(model_name="classifier")
        request.inputs.add(name="image", datatype=datatype, shape=[rows, *images.shape[1:]])
        request.raw_input_contents.extend(contents)
        with insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            try:
                service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
            except RpcError as error:
                return str(error.code()), error.details()
        return "", ""

    body = json.dumps({"inputs": [good]}).encode()
    index = [{"name": "image", "shape": [1, 3, 8, 16], "datatype": "FP32", "data": [0] * 384}]
    return {
        "good": rest(),
        "name": rest(name="picture"),
        "dtype": rest(datatype="INT32"),
        "shape": server.post(path, json.dumps({"inputs": index}).encode()),
        "elements": rest(data=[0] * 5),
        "text": rest(data=["1.5"] * size),
        "rows": rest(data=[[1, 2], [3]]),
        "coded": rest(parameters={"content_type": "base64"}),
        "output": rest(output="label"),
        "no rows": rest(shape=[0, *images.shape[1:]], data=[]),
        "version": server.post("/v2/models/classifier/versions/9/infer", body),
        "json": server.post(path, b'{"inputs": ['),
        "large": server.post(path, b"0" * (_BODY + 1)),
        "packed": server.post(path, body, **{"Content-Encoding": "gzip"}),
        "grpc name": grpc(images[:1], "picture", "FP32"),
        "grpc dtype": grpc(images[:1].astype("i4"), "image", "INT32"),
        "grpc shape": grpc(images[:1, :, :8], "image", "FP32"),
        "grpc good": raw(images[:1].tobytes()),
        "grpc bytes": raw(b"12345"),
        "grpc extent": raw(b"", rows=-1),
        "grpc datatype": raw(b"12345", datatype="FP8"),
        "grpc text": raw(b"12345", datatype="BYTES"),
        "grpc contents": raw(b"12345", b"12345"),
        "grpc large": grpc(np.repeat(images, 50, 0), "image", "FP32"),
        "grpc rows": grpc(np.repeat(images, 3, 0), "image", "FP32"),
    }


def crowded(server: Server) -> dict[str, int]:
    """Six requests at once to a network that is busy with one, where one may wait."""
    row = {"name": "x", "shape": [4, 8, 4, 4], "datatype": "FP32", "data": [0.5] * 512}
    body = json.dumps({"inputs": [row]}).encode()
    with ThreadPoolExecutor(6) as pool:
        said = list(pool.map(lambda _: server.post("/v2/models/slow/infer", body), range(6)))
    found: dict[str, int] = {}
    for status, text in said:
        key = f"{status} {json.loads(text).get('error', '')}"
        found[key] = found.get(key, 0) + 1
    return found


def workers(folder: Path, images: np.ndarray) -> dict[str, Any]:
    """A server whose networks run in two processes of their own."""
    places = {f"{name}_dir": str(folder / name) for name in ("metrics", "environments")}
    server = Server(folder / "workers", parallel_workers=2, **places)
    try:
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}")
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0]}]}
        found: dict[str, Any] = {
            "scores": [ask(tritonclient.grpc, client, images[:3]).tolist() for _ in range(4)],
            "refused": server.post("/v2/models/classifier/infer", json.dumps(body).encode()),
        }
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        mapped = [Path(f"/proc/{pid}/maps").read_text() for pid in children.read_text().split()]
        found["loaded"] = sum("/model.so" in text for text in mapped)
        return found | {"exit": server.stop()}
    finally:
        server.process.kill()


def not_loaded(folder: Path, server: Server) -> dict[str, tuple[int, str, str]]:
    """Of servers that have nothing to serve: exit codes, last lines, and tracebacks.

    While another server listens.
    """
    for name, kind in (("taken", "http_port"), ("taken grpc", "grpc_port")):
        (folder / name).mkdir()
        shutil.copytree(folder / "models" / "classifier", folder / name / "classifier")
        ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
        ports[kind] = server.rest if kind == "http_port" else server.grpc
        settings = {"host": "127.0.0.1", **ports}
        (folder / name / "settings.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "byoc.integrations.serve"]
    found = {}
    for name in (
        "damaged",
        "damaged workers",
        "senseless",
        "empty",
        "absent",
        "unreadable",
        "no uri",
        "taken",
        "taken grpc",
    ):
        done = subprocess.run(
            [*command, str(folder / name)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        traced = (done.stdout + done.stderr).partition("Traceback")[2]
        found[name] = (done.returncode, done.stderr.splitlines()[-1], traced)
    return found


def replaced(folder: Path, server: Server, images: np.ndarray) -> dict[str, Any]:
    """Requests without a pause, while version 2's file is replaced by a new and a broken one."""
    library = folder / "models" / "classifier" / "2" / "classifier.so"
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}")
    stop = time.monotonic() + _SECONDS
    found: list[list] = []

    def until(reached: Callable[[], bool]) -> None:
        while not reached():
            assert time.monotonic() < stop
            found.append(ask(tritonclient.grpc, client, images[:1], "2")[0].tolist())

    def outcome(name: str) -> bool:
        labels = f'model="classifier",outcome="{name}",version="2"'
        return server.metrics().get(f"byoc_reloads_total{{{labels}}}", 0) > 0

    for name, reached in (("new.so", "taken"), ("broken.so", "refused")):
        shutil.copy(folder / name, folder / "next.so")
        os.replace(folder / "next.so", library)
        until(lambda reached=reached: outcome(reached))
        last = len(found) + 3
        until(lambda last=last: len(found) >= last)
    return {"scores": found, "ready": server.get("/v2/models/classifier/versions/2/ready")}


def main() -> None:
    """Run all jobs."""
    folder = Path(sys.argv[1])
    images = np.load(folder / "images.npy")
    server = Server(folder / "models")
    clients = {
        tritonclient.http: tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.rest}"),
        tritonclient.grpc: tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}"),
    }
    result: dict[str, Any] = {}
    try:
        for name, job in {
            "answers": lambda: answers(server, clients, images),
            "many": lambda: many(server, images),
            "refused": lambda: refused(server, clients, images),
            "crowded": lambda: crowded(server),
            "repository": lambda: server.post("/v2/repository/models/classifier/load", b""),
            "many again": lambda: many(server, images),
            "replaced": lambda: replaced(folder, server, images),
            "not loaded": lambda: not_loaded(folder, server),
        }.items():
            begin = time.perf_counter()
            result[name] = job()
            print(name, time.perf_counter() - begin, file=sys.stderr)
        result["exit"] = server.stop()
        result["workers"] = workers(folder, images)
    finally:
        server.process.kill()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
