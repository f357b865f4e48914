"""Tuning and benchmarking on other machines, several at once, and what happens when one is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import helper

import byoc
from byoc.cli import main
from byoc.errors import BenchmarkError, RpcError, RpcLost, TuningError
from byoc.library import Kernel, Library, Link
from byoc.machine import cpu_name, separate_cores
from byoc.rpc import devices as rpc_devices
from byoc.rpc.address import Address
from byoc.rpc.devices import Devices, Sharing
from byoc.rpc.probe import DeviceInfo
from byoc.rpc.session import Session, connect
from byoc.tuning import remote
from byoc.tuning.database import machine_key, races_of
from codegen_cc.libraries import registry
from tests.deploy.conftest import Cluster
from tests.deploy.rpc_servers import server, without_torch
from tests.test_tiny import tiny_model
from tests.tuning.networks import convolutions, model_of, write_database

ROOT = Path(__file__).resolve().parents[2]
_TIMES = 5  # algorithms of the built-in kernels for a 3x3 convolution

HEADER = """\
#include <stdint.h>
#define PARAMETERS const float *a, const float *b, float *y, int64_t m, int64_t n, int64_t k
int right(PARAMETERS);
int wrong(PARAMETERS);
int hangs(PARAMETERS);
int crashes(PARAMETERS);
"""
SOURCE = """\
#include "kernels.h"
int right(PARAMETERS) {
  for (int64_t i = 0; i < m * n; ++i) {
    y[i] = 0;
    for (int64_t p = 0; p < k; ++p) y[i] += a[i / n * k + p] * b[p * n + i % n];
  }
  return 0;
}
int wrong(PARAMETERS) {
  (void)a, (void)b, (void)k;
  for (int64_t i = 0; i < m * n; ++i) y[i] = 1;
  return 0;
}
int hangs(PARAMETERS) {
  (void)a, (void)b, (void)y, (void)m, (void)n, (void)k;
  for (volatile int i = 0; i < 1;) {
  }
  return 0;
}
int crashes(PARAMETERS) {
  (void)a, (void)b, (void)y, (void)m, (void)n, (void)k;
  __builtin_trap();
}
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Library]:
    """A library with one right kernel and three others."""
    (tmp_path / "kernels.h").write_text(HEADER)
    (tmp_path / "kernels.c").write_text(SOURCE)
    arguments = ("lhs", "rhs", "output", "m", "n", "k")
    before = dict(registry._loaded)
    link = {"headers": ("kernels.h",), "include_dirs": (tmp_path,)}
    yield Library(
        "fake",
        version="1",
        abi=1,
        link=Link(**link, sources=(tmp_path / "kernels.c",)),
        kernels=[
            Kernel("matmul", function=name, arguments=arguments)
            for name in ("right", "wrong", "hangs", "crashes")
        ],
    )
    registry._loaded.clear()
    registry._loaded.update(before)


def product() -> onnx.ModelProto:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    return model_of([node], {"x": [5, 32]}, {"w": (32, 16)})


# ---------------------------------------------------------------- tune


@pytest.mark.slow
def test_tune_on_two_devices(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("Conv", ["x" if i == 0 else f"a{i - 1}", f"w{i}"], [name], f"c{i}")
        for i, name in enumerate(["a0", "a1", "y"])
    ]
    weights = {"w0": (32, 32, 3, 3), "w1": (48, 32, 3, 3), "w2": (32, 48, 3, 3)}
    onnx.save(model_of(nodes, {"x": [1, 32, 20, 20]}, weights), tmp_path / "m.onnx")
    loaded = [board.said().count("load_module") for board in cluster.boards]
    there = ["--rpc-tracker", cluster.tracker, "--rpc-key", "board", "--rpc-devices", "2"]
    arguments = ["tune", str(tmp_path / "m.onnx"), "--db", str(tmp_path / "db.json"), *there]
    assert main([*arguments, "--rounds", "1", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert len(tuned["layers"]) == 3 and not tuned["lost"]
    for layer in tuned["layers"]:
        assert layer["checked_by"] == "ONNX Runtime" and not layer["known"]
        assert len(layer["candidates"]) == _TIMES
        for candidate in layer["candidates"]:
            assert candidate["failed"] == "" and 0 < candidate["min_ms"] <= candidate["p50_ms"]
    # Both looked at themselves and then timed something.
    for board, before in zip(cluster.boards, loaded, strict=True):
        assert board.said().count("load_module") >= before + 2
    # The servers are on this machine, so that this is its name for them as well.
    races = races_of(tmp_path / "db.json", machine_key(1))
    assert tuned["machines"] == {"1": machine_key(1)} and len(races) == 3
    assert main([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert all(layer["known"] for layer in again["layers"]) and len(again["layers"]) == 3


def test_compiled_by_the_times_of_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = convolutions(), tmp_path / "db.json"
    onnx.save(model, tmp_path / "m.onnx")
    write_database(path, model, {"Winograd F(4, 3)": 2.0, "implicit GEMM": 1.0})
    path.write_text(path.read_text().replace(machine_key(1), "CPU 0x41 0xd08, neon, 1 thread"))
    arguments = ["partition", str(tmp_path / "m.onnx"), "--tuning-db", str(path)]
    for machine in ("0XD08", "CPU 0x41 0xd08, neon"):
        assert main([*arguments, "--tuning-machine", machine, "--json"]) == 0
        nodes = json.loads(capsys.readouterr().out)["nodes"]
        found = [n["algorithm"] for n in nodes if n["chosen_by"].startswith("measured")]
        assert found == ["implicit GEMM", "implicit GEMM"]
    assert main([*arguments, "--tuning-machine", "0xd09"]) == 2
    assert "has no machine like '0xd09' with 1 thread; it has" in capsys.readouterr().err
    assert main(["partition", str(tmp_path / "m.onnx"), "--tuning-machine", "x"]) == 2
    assert "needs --tuning-db (tuning_db) with the times" in capsys.readouterr().err


@pytest.mark.slow
def test_a_candidate_that_hangs_or_crashes(
    fake: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's end frees the server of one that hangs; one that crashes takes it along."""
    monkeypatch.setattr(rpc_devices, "RECOVERY", 1.5)
    peers = [server(tmp_path) for _ in range(2)]
    try:
        servers = tuple(Address.parse(peer.address) for peer in peers)
        devices = Devices(servers, timeout=3)
        path = tmp_path / "db.json"
        tuned = byoc.tune(product(), path, libraries=[fake, "builtin"], rounds=1, devices=devices)
        (choice,) = tuned.choices
        reasons = {algorithm: reason for (_, algorithm), reason in choice.failed.items()}
        assert set(reasons) == {"wrong", "hangs", "crashes"}
        assert "of the range (limit 0.0001)" in reasons["wrong"]
        assert "could not run candidate fake: hangs within the time of 3 s" in reasons["hangs"]
        assert "was lost when it was to run candidate fake: crashes" in reasons["crashes"]
        assert set(choice.times) == {("fake", "right"), ("builtin", "matmul")}
        assert choice.decision is not None
        (race,) = races_of(path, machine_key(1)).values()
        assert race.times["fake"]["crashes"] is None and race.times["fake"]["right"] is not None
        # One of the two is left, and not after another crash.
        fake.kernels = [kernel for kernel in fake.kernels if kernel.function != "hangs"]
        dead = [str(a) for a, p in zip(servers, peers, strict=True) if "exited unsucc" in p.said()]
        (alive,) = [address for address in servers if str(address) not in dead]
        with pytest.raises(TuningError, match="no device is left for 1 more") as caught:
            byoc.tune(
                product(),
                path,
                libraries=[fake, "builtin"],
                again=True,
                devices=Devices((alive,), timeout=3),
            )
        assert "run candidate fake: crashes" in str(caught.value)
    finally:
        for peer in peers:
            peer.stop()


@pytest.mark.slow
def test_interrupted(cluster: Cluster, tmp_path: Path) -> None:
    """What the server does comes to its end first, or it would serve nobody any more."""
    onnx.save(convolutions(), tmp_path / "m.onnx")
    loaded = cluster.direct_server.said().count("load_module")
    there = ["--rpc", cluster.direct, "--rpc-key", "secret", "--db", str(tmp_path / "db.json")]
    tune = subprocess.Popen(
        [sys.executable, "-m", "byoc", "tune", "m.onnx", *there, "--rounds", "1000000"],
        cwd=tmp_path,
        env=os.environ | without_torch(tmp_path, ROOT),
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while cluster.direct_server.said().count("load_module") < loaded + 2:  # probe, candidates
        assert time.monotonic() < end and tune.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    try:
        # Python drops the exception of a signal that arrives while an object is being deleted.
        for _ in range(6):
            tune.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                tune.wait(timeout=10)
                break
        _, said = tune.communicate(timeout=1)
    finally:
        tune.kill()  # or the server would serve nobody else
    assert (tune.returncode, said.strip()) == (130, "error: interrupted"), said
    connect(cluster.direct, "secret", timeout=30).close()


def test_devices_of_two_kinds(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([DeviceInfo("Cortex-A72", "neon", 4), DeviceInfo("Cortex-A53", "neon", 4)])
    monkeypatch.setattr(remote, "describe", lambda session, probe: next(found))
    devices = Devices(tracker=Address.parse(cluster.tracker), key="board", count=2, timeout=30)
    with pytest.raises(TuningError, match="cannot tune for devices of two kinds: device board at"):
        byoc.tune(convolutions(), tmp_path / "db.json", libraries="builtin", devices=devices)


def test_more_threads_than_cores(cluster: Cluster, tmp_path: Path) -> None:
    devices = Devices((Address.parse(cluster.direct),), key="secret", timeout=30)
    with pytest.raises(TuningError, match=r"cannot time 1000 threads: RPC server .* may use \d+"):
        byoc.tune(convolutions(), tmp_path / "db.json", threads=[1000], devices=devices)


def test_names_of_processors() -> None:
    arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n"
    big_and_little = f"{arm}\nprocessor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n"
    assert cpu_name(lambda path: "processor : 0\nmodel name\t: Some CPU @ 2 GHz\n") == (
        "Some CPU @ 2 GHz"
    )
    assert cpu_name(lambda path: arm) == "CPU 0x41 0xd08"
    assert cpu_name(lambda path: big_and_little) == "CPU 0x41 0xd08+0xd03"
    assert cpu_name(lambda path: "") == "unknown CPU"
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    cores = separate_cores([3, 2, 1], lambda path: siblings[int(path.split("cpu")[2][0])])
    assert cores == [1, 2]


# ---------------------------------------------------------------- bench


@pytest.mark.slow
def test_bench_on_each_device(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    there = ["--rpc-tracker", cluster.tracker, "--rpc-key", "board", "--rpc-devices", "2"]
    quick = ["--rounds", "1", "--threads", "1"]
    assert main(["bench", str(tmp_path / "tiny.onnx"), *there, *quick, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    boards = {board.address for board in cluster.boards}
    rows = {(row["device"], row["engine"]): row for row in answer["rows"]}
    assert rows.keys() == {(board, engine) for board in boards for engine in ("byoc", "tvm")}
    for row in rows.values():
        assert row["error"] <= 1e-4 and 0 < row["min_ms"] <= row["p50_ms"] and row["runs"] > 1
        assert row["gflops"] > 0 and row["share_of_peak"] is None
    described = answer["machine"]["devices"]
    assert described.keys() == boards and all(info["isa"] for info in described.values())
    assert {info["cpu"] for info in described.values()} == {cpu_name()}
    assert not answer["failures"] and not answer["comparisons"]


@pytest.mark.slow
def test_several_networks_are_shared_out(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    onnx.save(product(), tmp_path / "product.onnx")
    models = [str(tmp_path / "tiny.onnx"), str(tmp_path / "product.onnx")]
    there = ["--rpc-tracker", cluster.tracker, "--rpc-key", "board", "--rpc-devices", "2"]
    quick = ["--rounds", "1", "--threads", "1", "--engines", "byoc"]
    assert main(["bench", *models, *there, *quick]) == 0
    said = capsys.readouterr()
    for title in ("tiny.onnx", "product.onnx"):
        assert (
            sum(f"{title}, fp32, 1 thread, on {b.address}" in said.out for b in cluster.boards) == 1
        )
        assert f"{title}, 1 thread, on 127.0.0.1:" in said.err and "byoc takes" in said.err


@pytest.mark.slow
def test_a_device_is_lost_while_it_measures(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    time_there = Session.time
    lost, alive = (board.address for board in cluster.boards)

    def time(session: Session, *arguments: object) -> list[float]:
        if str(session.address) == lost:
            raise RpcLost("it was lost")
        return time_there(session, *arguments)

    monkeypatch.setattr(Session, "time", time)
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    there = ["--rpc-tracker", cluster.tracker, "--rpc-key", "board", "--rpc-devices", "2"]
    quick = ["--rounds", "1", "--threads", "1", "--json"]
    assert main(["bench", str(tmp_path / "tiny.onnx"), *there, *quick]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {row["device"] for row in answer["rows"]} == {alive}
    failed = {(f["engine"], f["device"], f["reason"]) for f in answer["failures"]}
    assert failed == {(engine, lost, "it was lost") for engine in ("byoc", "tvm")}


def test_other_engines_cannot_be_measured_there(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    there = ["bench", str(tmp_path / "tiny.onnx"), "--rpc", cluster.direct, "--rpc-key", "secret"]
    assert main([*there, "--engines", "byoc", "onnxruntime"]) == 2
    assert "ONNX Runtime cannot be measured on a device" in capsys.readouterr().err
    assert main([*there, "--plot", str(tmp_path / "plot.svg")]) == 2
    assert "--plot needs other engines" in capsys.readouterr().err
    assert main([*there, "--rpc", cluster.direct]) == 2
    assert "--rpc names a server twice" in capsys.readouterr().err
    assert main([*there, "--threads", "1000"]) == 1
    assert "cannot time 1000 threads: it may use" in capsys.readouterr().out


# ---------------------------------------------------------------- sharing out


class _Session:
    def __init__(self, number: int) -> None:
        self.number = number

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


#: Set when the device that is not there was asked.
missed = threading.Event()


class _FakeDevices(Devices):
    def __len__(self) -> int:
        return 2

    def open(self, number: int = 0, wait: float | None = None) -> _Session:
        if number == 1:
            missed.set()
            raise RpcLost("device 1 is not there")
        return _Session(number)


def test_jobs_go_on_without_a_device() -> None:
    done: list[tuple[int, int]] = []
    told: list[str] = []

    def work(job: int, open_session) -> None:
        session = open_session()
        assert missed.wait(10)
        if job == 3 and not told:
            raise RpcError("job 3 failed once")
        done.append((job, session.number))

    def failed(job: int, error: RpcError) -> bool:
        told.append(str(error))
        return True

    sharing = Sharing(_FakeDevices(), work, failed)
    sharing.run(range(6))
    assert sorted(done) == [(job, 0) for job in range(6)] and told == ["job 3 failed once"]
    assert list(map(str, sharing.gone)) == ["device 1 is not there"]


def test_an_error_of_ours_ends_all() -> None:
    def work(job: int, open_session) -> None:
        open_session()
        raise BenchmarkError("broken")

    with pytest.raises(BenchmarkError, match="broken"):
        Sharing(_FakeDevices(), work, lambda job, error: True).run(range(6))
