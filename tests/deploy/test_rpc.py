"""Running on other machines: TVM's own tracker and servers, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc import rpc
from byoc.cli import main
from byoc.errors import InputError, LoadError, RunError
from byoc.rpc import connection
from byoc.rpc.tracker import Tracker
from codegen_cc.link.checksum import seal
from models.builder import GraphBuilder
from models.decoder import gpt2_decoder
from tests.deploy.conftest import Cluster
from tests.deploy.rpc_servers import Peer, server, tracker, without_torch
from tests.models.test_states import SMALL, Reference, counter, drawn, with_states
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.test_tiny import tiny_input, tiny_model

ROOT = Path(__file__).parents[2]
_MACHINE = 18  # of the ELF header's e_machine
_RUNS = 100_000_000  # for hours


def compiled(model: onnx.ModelProto, folder: Path, **options: object) -> Path:
    """A library of one region, in which everything is."""
    report = byoc.compile(model, folder / "model.so", **options).report
    assert len(report.regions) == 1 and report.offloaded_macs == report.macs > 0
    return folder / "model.so"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tiny_model(), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return onnxruntime_outputs(tiny_model(), {"x": tiny_input()})


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Peer]:
    """A server that a test may ruin."""
    peer = server(tmp_path)
    yield peer
    peer.stop()


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run ``byoc``, which must fail with one line; returns it."""
    assert main(list(map(str, arguments))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
    return captured.err


# ---------------------------------------------------------------- what works


@pytest.mark.slow
def test_run_on_a_server(
    cluster: Cluster,
    tiny: Path,
    expected: dict[str, np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "in.npz", x=tiny_input())
    there = ["--rpc", cluster.direct, "--rpc-key", "secret"]
    given = ["run", str(tiny), "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]
    assert main([*given, *there, "--threads", "2", "--repeat", "7", "--print-time", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["device"] == f"RPC server {cluster.direct}"
    assert answer["outputs"] == {"y": {"shape": [1, 20, 12, 5], "dtype": "float32"}}
    times = answer["milliseconds"]
    assert times["runs"] == 7 and 0 < times["min"] <= times["p50"] <= times["max"]
    with np.load(tmp_path / "out.npz") as file:
        assert_agrees({"y": file["y"]}, expected)
    assert main(["run", str(tiny), *there, "--print-top", "1"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == (f"on RPC server {cluster.direct}", "y: float32[1, 20, 12, 5]")
    assert re.fullmatch(r"\s+\d \s+-?[\d.]+", third)


def test_a_local_run_says_nothing_of_devices(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tiny), "--json"]) == 0
    assert "device" not in json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_both_servers_of_a_tracker_at_once(
    cluster: Cluster, tiny: Path, expected: dict[str, np.ndarray]
) -> None:
    sessions = [rpc.connect_tracker(cluster.tracker, "board", timeout=30) for _ in range(2)]
    addresses = {str(session.address) for session in sessions}
    assert addresses == {board.address for board in cluster.boards}
    with pytest.raises(rpc.RpcTimeout, match="all 2 devices of key 'board' did not come free"):
        rpc.connect_tracker(cluster.tracker, "board", timeout=0.2)
    together = threading.Barrier(2, timeout=30)

    def work(session: rpc.Session) -> dict[str, np.ndarray]:
        with session:
            model = session.load(tiny, threads=1)
            together.wait()
            return model.run({"x": tiny_input()})

    with ThreadPoolExecutor(2) as pool:
        for answer in pool.map(work, sessions):
            assert_agrees(answer, expected)


def test_cli_asks_the_tracker(
    cluster: Cluster, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--rpc-tracker", cluster.tracker, "--rpc-key", "board"]
    assert main(["run", str(tiny), *there, "--json"]) == 0
    named = json.loads(capsys.readouterr().out)["device"]
    assert named in {f"device board at {board.address}" for board in cluster.boards}


def test_several_outputs_integers_and_symbolic_sizes(cluster: Cluster, tmp_path: Path) -> None:
    graph = GraphBuilder("several", seed=3)
    x, ids = graph.input("x", ("n", 6)), graph.input("ids", ("n",), "int64")
    rows = graph.op("Gather", graph.normal((9, 4), 1.0), ids)
    total = graph.op("Add", graph.linear(x, (6, 4)), rows)
    graph.output(total, "total", ("n", 4))
    graph.output(graph.op("Softmax", total, axis=1), "shares", ("n", 4))
    library = compiled(graph.build(), tmp_path, input_shapes={"x": ["n", 6], "ids": ["n"]})
    with rpc.connect(cluster.direct, "secret", timeout=30) as session:
        model = session.load(library)
        for size in (1, 5):
            draw = np.random.default_rng(size)
            inputs = {
                "x": draw.standard_normal((size, 6), np.float32),
                "ids": draw.integers(0, 9, size),
            }
            assert_agrees(model.run(inputs), onnxruntime_outputs(graph.build(), inputs))
        inputs["ids"] = inputs["ids"][1:]
        with pytest.raises(InputError, match=r"'ids' has shape \[4\]; need \[n\] where n is 5"):
            model.run(inputs)
        with pytest.raises(InputError, match="unknown input 'z'"):
            model.time(inputs | {"z": inputs["x"]})
        inputs["ids"] = np.full(5, 1000)
        with pytest.raises(rpc.RpcError, match=r"cannot run model\.so: .* index lies outside"):
            model.run(inputs)


def test_states_stay_on_the_server(cluster: Cluster, tmp_path: Path) -> None:
    """A decoder's keys and values: prompt and steps, a clone, a reset, and back to what was."""
    model, made, _ = with_states(gpt2_decoder(**SMALL | {"groups": 4, "layers": 1}), tmp_path)
    assert len(made.report.regions) == 1 and made.report.offloaded_macs == made.report.macs > 0
    prompt, step = drawn(2, 5, 0, 1), drawn(2, 1, 5, 2)
    reference = Reference(model, 2)
    with rpc.connect(cluster.direct, "secret") as session:
        there = session.load(made.path, capacity=8)
        assert there.states == {}
        assert_agrees(there.run(prompt), {"logits": reference.step(prompt)})
        before = there.states
        assert_agrees(before, reference.past)
        clone = there.clone()
        clone.run(drawn(2, 2, 5, 3))
        want = {"logits": reference.step(step)}
        assert_agrees(there.run(step), want)
        assert_agrees(there.states, reference.past)
        there.restore(before)
        assert_agrees(there.run(step), want)
        with pytest.raises(RunError, match="is full: it has 7 of 8 rows, and this call adds 2"):
            clone.run(drawn(2, 2, 7, 4))
        there.reset()
        assert there.states == {}
        with byoc.load(made.path) as here:
            here.restore(before)  # what was there goes on here
            assert_agrees(here.run(step), want)


def test_replaced_states_stay_on_the_server(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "counter.so"
    report = byoc.compile(counter(2), path, states={"h": "hn"}, min_bytes=0).report
    assert len(report.regions) == 1 and not report.left
    state = np.zeros((2, 64), np.float32)
    with rpc.connect(cluster.direct, "secret") as session:
        there = session.load(path)
        for seed in range(3):
            x = np.random.default_rng(seed).standard_normal(state.shape, np.float32)
            want = onnxruntime_outputs(counter(2), {"x": x, "h": state})
            state = want.pop("hn")
            assert_agrees(there.run({"x": x}), want)
            assert_agrees(there.states, {"h": state})


def test_nothing_stays_on_the_server(cluster: Cluster, tiny: Path) -> None:
    with rpc.connect(cluster.direct, "secret", timeout=30) as session:
        session.load(tiny)
        folder = Path(str(session.function("tvm.rpc.server.workpath")("")))
        assert folder.is_dir() and not list(folder.iterdir())  # the server is on this machine
    end = time.monotonic() + 10
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert not folder.exists()


def test_tvms_python_package_is_not_needed(cluster: Cluster, tiny: Path, tmp_path: Path) -> None:
    code = (
        "import sys, byoc.rpc; "
        f"model = byoc.rpc.connect({cluster.direct!r}, 'secret').load({str(tiny)!r}); "
        "import numpy as np; model.run({'x': np.zeros((1, 3, 12, 10), np.float32)}); "
        "assert 'tvm' not in sys.modules, 'TVM was imported'"
    )
    subprocess.run(
        [sys.executable, "-c", code], env=os.environ | without_torch(tmp_path, ROOT), check=True
    )


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "deploy_rpc" / "deploy_rpc.py")],
        env=os.environ | without_torch(tmp_path, ROOT),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *devices = done.stdout.splitlines()
    assert first == "1 region, 0 operators outside"
    found = [re.fullmatch(r"device board at (\S+): \S+ ms; class (\d+); .*", d) for d in devices]
    assert len(found) == 2 and all(found), done.stdout
    assert found[0][1] != found[1][1] and found[0][2] == found[1][2]


# ---------------------------------------------------------------- who is not there, or says no


def test_refused(cluster: Cluster, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--rpc", cluster.direct, "--rpc-key", "wrong"]
    assert f"RPC server {cluster.direct} refused the key 'wrong'" in error_of(
        capsys, "run", tiny, *wrong
    )
    owned = cluster.boards[0].address  # a tracker's server takes only whom the tracker sends
    assert "belongs to a tracker" in error_of(capsys, "run", tiny, "--rpc", owned)
    unknown = ["--rpc-tracker", cluster.tracker, "--rpc-key", "phone"]
    assert error_of(capsys, "run", tiny, *unknown) == (
        f"error: tracker {cluster.tracker} has no device of key 'phone'; it has board (2)\n"
    )


def test_nobody_there(cluster: Cluster, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = f"127.0.0.1:{closed.getsockname()[1]}"
    assert f"cannot connect to RPC server {free}: nothing listens" in error_of(
        capsys, "run", tiny, "--rpc", free
    )
    key = ["--rpc-key", "board"]
    assert f"cannot connect to RPC tracker {free}: Connection refused" in error_of(
        capsys, "run", tiny, "--rpc-tracker", free, *key
    )
    assert f"{cluster.direct} is no RPC tracker" in error_of(
        capsys, "run", tiny, "--rpc-tracker", cluster.direct, *key
    )
    unknown = "host.invalid:9090"
    assert f"cannot find the host of {unknown}" in error_of(capsys, "run", tiny, "--rpc", unknown)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            peer.recv(100)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n")
            peer.close()

        threading.Thread(target=answer, daemon=True).start()
        other = f"127.0.0.1:{listener.getsockname()[1]}"
        assert f"{other} is no RPC server of TVM" in error_of(capsys, "run", tiny, "--rpc", other)


def test_busy(cluster: Cluster, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["--rpc", cluster.direct, "--rpc-key", "secret", "--rpc-timeout"]
    with rpc.connect(cluster.direct, "secret", timeout=30):
        message = error_of(capsys, "run", tiny, *there, 0.3)
        assert f"RPC server {cluster.direct} did not answer within 0.3 s: it serves" in message
    assert main(["run", str(tiny), *there, "30"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rpc", "board"], "cannot read the address 'board'; need HOST:PORT"),
        (["--rpc", "board:99999"], "cannot read the address 'board:99999'"),
        (["--rpc-tracker", "board:9190"], "--rpc-tracker needs --rpc-key"),
        (["--rpc-key", "x"], "--rpc-key needs --rpc-tracker or --rpc"),
        (["--rpc", "a:1", "--rpc-tracker", "b:2", "--rpc-key", "x"], "give one"),
        (["--rpc", "a:1", "--rpc", "b:2"], "give --rpc once"),
        (["--rpc", "a:1", "--rpc-timeout", "0"], "--rpc-timeout"),
    ],
)
def test_usage(
    tiny: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert message in error_of(capsys, "run", tiny, *options)


def test_arguments_from_python(cluster: Cluster, tiny: Path) -> None:
    for call, match in (
        (partial(rpc.connect, None), "address is None; need a text"),
        (partial(rpc.connect, cluster.direct, 5), "key is 5; need a text"),
        (partial(rpc.connect, cluster.direct, timeout="30"), "timeout is '30'; need seconds"),
        (partial(rpc.connect_tracker, cluster.tracker, None), "key is None; need a text"),
        (partial(rpc.connect_tracker, cluster.tracker, "board", -1), "timeout is -1; need"),
    ):
        with pytest.raises(rpc.RpcError, match=match):
            call()
    with rpc.connect(cluster.direct, "secret", timeout=30) as session:
        with pytest.raises(LoadError, match="the library is 3; need a path"):
            session.load(3)
        with pytest.raises(LoadError, match="threads is 0; need a whole number from 1"):
            session.load(tiny, threads=0)
        model = session.load(str(tiny))
        for runs in (0, "a", True):
            with pytest.raises(InputError, match="need a whole number from 1 to"):
                model.time({"x": tiny_input()}, runs=runs)
        assert len(model.time({"x": tiny_input()}, runs=2)) == 2


def test_what_cannot_be_uploaded(cluster: Cluster, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "cut.so").write_bytes(tiny.read_bytes()[:5000])
    foreign = bytearray(tiny.read_bytes())
    struct.pack_into("<H", foreign, _MACHINE, 183)
    (tmp_path / "foreign.so").write_bytes(foreign)
    seal(tmp_path / "foreign.so")
    with rpc.connect(cluster.direct, "secret", timeout=30) as session:
        for name, message in (
            ("absent.so", "no such file"),
            ("text.so", "it is not a 64-bit ELF library"),
            ("cut.so", "it is cut off"),
        ):
            with pytest.raises(LoadError, match=message):
                session.load(tmp_path / name)
        with pytest.raises(rpc.RpcError) as caught:
            session.load(tmp_path / "foreign.so")
        said = str(caught.value)
        assert f"RPC server {cluster.direct} cannot load foreign.so" in said
        assert said.endswith("it is for aarch64, is the device one?") and "\n" not in said
        folder = Path(str(session.function("tvm.rpc.server.workpath")("")))
        assert not list(folder.iterdir())
        session.load(tiny).run({"x": tiny_input()})  # the session goes on


# ---------------------------------------------------------------- who goes away


@pytest.mark.slow
def test_the_time_of_a_session_is_over(cluster: Cluster, tiny: Path) -> None:
    with rpc.connect(cluster.direct, "secret", timeout=1) as session:
        model = session.load(tiny)
        with pytest.raises(rpc.RpcTimeout, match=r"time model\.so within the time of 1 s of its"):
            model.time({"x": tiny_input()}, _RUNS)
        with pytest.raises(rpc.RpcTimeout, match="the session is over"):
            model.run({"x": tiny_input()})
    with rpc.connect(cluster.direct, "secret", timeout=30) as session:  # the server is free again
        session.load(tiny).run({"x": tiny_input()})


@pytest.mark.slow
def test_a_lost_server(doomed: Peer, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> None:
        doomed.wait_for("load_module")
        time.sleep(0.2)
        doomed.stop()

    address = doomed.address
    threading.Thread(target=stop, daemon=True).start()
    message = error_of(capsys, "run", tiny, "--rpc", address, "--repeat", _RUNS)
    assert f"RPC server {address} was lost when it was to time model.so" in message


@pytest.mark.slow
def test_a_silent_server(doomed: Peer, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power cut, nobody says that the connection has ended."""
    monkeypatch.setattr(connection, "GRACE", 0.2)
    with rpc.connect(doomed.address, timeout=0.8) as session:
        model = session.load(tiny)
        doomed.pause()
        begin = time.monotonic()
        with pytest.raises(rpc.RpcTimeout, match="could not take the inputs"):
            model.run({"x": tiny_input()})
        del model  # frees what is there, in vain
        assert time.monotonic() - begin < 10


@pytest.mark.slow
def test_a_lost_tracker(tmp_path: Path) -> None:
    peer = tracker(tmp_path)
    try:
        asked = Tracker(peer.address)
        assert not asked.devices()
        with pytest.raises(rpc.RpcRefused, match="it has none at all"):
            rpc.connect_tracker(peer.address, "board")
    finally:
        peer.stop()
    with pytest.raises(rpc.RpcError, match="cannot connect to RPC tracker"):
        asked.devices()
