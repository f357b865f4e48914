"""Another architecture as a device: a server for 64-bit ARM under QEMU, with TVM's runtime alone.

The libraries of TVM's aarch64 wheel are those that ``make aarch64-libraries`` fetched.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi.libinfo

import byoc
from byoc import rpc
from byoc.cli import main
from byoc.tuning.database import machine_key
from tests.deploy.aarch64 import LIBRARIES, QEMU, TARGET, missing
from tests.deploy.rpc_servers import Peer
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.test_tiny import tiny_input, tiny_model
from tests.tuning.networks import convolutions

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("board")
    found = (tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path())
    includes = [text for path in found for text in ("-isystem", path)]
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", *includes]
    source, program = Path(__file__).with_name("rpc_server.cc"), folder / "rpc_server"
    libraries = [f"-L{LIBRARIES}", "-ltvm_runtime", "-ltvm_ffi", f"-Wl,-rpath,{LIBRARIES}"]
    command = [f"{TARGET}-g++", *flags, str(source), "-o", str(program), *libraries]
    subprocess.run(command, check=True)
    (folder / "uploads").mkdir()
    emulated = [*QEMU, str(program), f"{folder}/uploads/"]
    peer = Peer(emulated, folder / "board.log", {})
    yield peer
    peer.stop()


@pytest.mark.slow
def test_a_library_for_the_device_runs_there(board: Peer, tmp_path: Path) -> None:
    compiled = byoc.compile(tiny_model(), tmp_path / "arm.so", target=TARGET)
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with rpc.connect(board.address, timeout=60) as session:
        model = session.load(tmp_path / "arm.so", threads=2)
        expected = onnxruntime_outputs(tiny_model(), {"x": tiny_input()})
        assert_agrees(model.run({"x": tiny_input()}), expected)
        assert len(model.time({"x": tiny_input()}, 3)) == 3
        byoc.compile(tiny_model(), tmp_path / "here.so")
        with pytest.raises(rpc.RpcError, match="it is for x86_64, is the device one"):
            session.load(tmp_path / "here.so")
    assert board.said().count("\n") == 1, board.said()


@pytest.mark.slow
def test_tuned_there_and_compiled_by_its_times(
    board: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(convolutions(), tmp_path / "m.onnx")
    there = ["--rpc", board.address, "--target", TARGET]
    database = tmp_path / "db.json"
    tune = ["tune", str(tmp_path / "m.onnx"), "--db", str(database), *there]
    assert main([*tune, "--rounds", "1", "--library", "builtin", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["machines"]["1"].endswith(", neon, 1 thread")
    assert tuned["machines"]["1"] != machine_key(1)
    (layer,) = tuned["layers"]
    assert all(candidate["min_ms"] > 0 for candidate in layer["candidates"])
    # QEMU's times mean nothing: let the algorithm win that is not the untuned choice.
    raw = json.loads(database.read_text())
    (race,) = raw["machines"][tuned["machines"]["1"]].values()
    race["builtin"]["ms"]["implicit GEMM"] = [1e-3, 1e-3]
    database.write_text(json.dumps(raw))
    output = ["-o", str(tmp_path / "arm.so"), "--target", TARGET, "--tuning-db", str(database)]
    named = ["--tuning-machine", "neon", "--json"]
    assert main(["compile", str(tmp_path / "m.onnx"), *output, *named]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert len(report["regions"]) == 1
    measured = [n["algorithm"] for n in report["nodes"] if n["chosen_by"].startswith("measured")]
    assert measured == ["implicit GEMM", "implicit GEMM"]
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 32, 20, 20), np.float32)}
    with rpc.connect(board.address, timeout=60) as session:
        found = session.load(tmp_path / "arm.so").run(inputs)
    assert_agrees(found, onnxruntime_outputs(convolutions(), inputs))


@pytest.mark.slow
def test_benchmarked_there(board: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    there = ["--rpc", board.address, "--target", TARGET, "--threads", "1", "--rounds", "1"]
    assert main(["bench", str(tmp_path / "tiny.onnx"), *there, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["engine"] for row in answer["rows"]] == ["byoc", "tvm"]
    assert all(row["error"] <= 1e-4 and row["device"] == board.address for row in answer["rows"])
    assert answer["machine"]["devices"][board.address]["isa"] == "neon"
    assert main(["bench", str(tmp_path / "tiny.onnx"), "--target", TARGET]) == 2
    assert "--target needs --rpc or --rpc-tracker" in capsys.readouterr().err
