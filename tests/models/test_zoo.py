"""What libraries of the zoo's networks hold and need, and how they run.

That every network is offloaded and right is tested in test_one_region.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from math import prod
from pathlib import Path

import onnx
import pytest
import tvm
from tvm import relax

import byoc
from byoc import zoo
from tests.conftest import CompiledCase
from tests.models.in_process import run_in_process
from tests.reference import assert_agrees

Cases = Callable[..., CompiledCase]


@pytest.mark.slow
def test_runs_in_process_without_export(compiled_case: Cases) -> None:
    case = compiled_case("mobilenet_v2")
    compiled = byoc.compile(case.source)
    assert compiled.path is None
    machine = relax.VirtualMachine(compiled.executable, tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, case.inputs.values())).numpy()
    assert_agrees({"logits": result}, case.expected)


def winograd_growth(case: CompiledCase) -> int:
    """Bytes that weights of Winograd convolutions take more than the model's own 3 x 3."""
    model = onnx.load(case.source)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    weights = {
        node.name: shapes[node.input[1]] for node in model.graph.node if node.op_type == "Conv"
    }
    growth = 0
    for node in case.report.to_json()["nodes"]:
        found = re.fullmatch(r"Winograd F\((\d), 3\)", node["algorithm"])
        if found:
            (name,) = [part for part in node["name"].split(" + ") if part in weights]
            values = (int(found[1]) + 2) ** 2
            growth += 4 * prod(weights[name][:2]) * (values - 9)
    return growth


def test_library_is_weights_plus_two_megabytes(compiled_case: Cases) -> None:
    case = compiled_case("resnet50")
    growth = winograd_growth(case)
    assert 0 < growth < case.weight_bytes
    assert case.library.stat().st_size <= case.weight_bytes + growth + 2_000_000
    case = compiled_case("mobilenet_v2")
    assert case.library.stat().st_size <= case.weight_bytes + 2_000_000


def test_library_needs_only_libc_and_tvms_runtime(compiled_case: Cases) -> None:
    text = subprocess.run(
        ["readelf", "-dW", compiled_case("resnet50").library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line}
    allowed = ("libc.", "libm.", "libstdc++.", "libgcc_s.", "libtvm_")
    assert not [name for name in needed if not name.startswith(allowed)]


def test_stack_is_not_executable(compiled_case: Cases) -> None:
    text = subprocess.run(
        ["readelf", "-lW", compiled_case("resnet50").library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    flags = next(line for line in text.splitlines() if "GNU_STACK" in line)
    assert " RWE" not in flags


@pytest.mark.parametrize("imports", ["", "import tvm"])
def test_runs_without_tvms_compiler(compiled_case: Cases, tmp_path: Path, imports: str) -> None:
    case = compiled_case("resnet50")
    result = run_in_process(case, tmp_path, {"TVM_USE_RUNTIME_LIB": "1"}, imports)
    assert [path for path in result["mapped"] if "tvm_runtime" in path]
    assert not [path for path in result["mapped"] if "tvm_compiler" in path]
    assert_agrees(result["outputs"], case.expected)


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_every_number_of_threads_gives_the_same_answer(
    compiled_case: Cases, tmp_path: Path, threads: str
) -> None:
    case = compiled_case("mobilenet_v2")
    result = run_in_process(case, tmp_path, {"TVM_NUM_THREADS": threads})
    assert_agrees(result["outputs"], case.expected)


def test_a_file_for_any_number_of_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert zoo.main(["squeezenet", "--batch", "rows"]) == 0
    graph = onnx.load("squeezenet.onnx").graph
    for tensor in (*graph.input, *graph.output):
        assert tensor.type.tensor_type.shape.dim[0].dim_param == "rows"
    assert zoo.main(["squeezenet_int8", "--batch", "rows"]) == 2
    assert "'squeezenet_int8' cannot be built with --batch rows" in capsys.readouterr().err
    assert zoo.main(["squeezenet", "-o", "none/net.onnx"]) == 2
    assert "error: cannot write none/net.onnx: " in capsys.readouterr().err
    for wrong in ("0", "-1", "a-b"):
        with pytest.raises(SystemExit):
            zoo.main(["squeezenet", "--batch", wrong])
    assert [path.name for path in tmp_path.iterdir()] == ["squeezenet.onnx"]
