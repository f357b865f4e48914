"""Libraries of plain ``export_library``: described by their makers, or read as far as can be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from click.testing import CliRunner
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import byoc
from byoc.cli import cli
from byoc.deploy.compiled_file import read_compiled
from byoc.frontends.onnx import import_onnx, prepare
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs
from tests.test_tiny import assert_all_offloaded

_INPUTS = inputs_of_two_by_two(7)


def _generated(model: onnx.ModelProto | None = None) -> tvm.IRModule:
    module = byoc.partition_for_ext(import_onnx(prepare(model or two_by_two())))
    assert_all_offloaded(module)
    return relax.transform.RunCodegen()(module)


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """ONNX Runtime's answers."""
    return onnxruntime_outputs(two_by_two(), _INPUTS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What TVM alone exports."""
    path = tmp_path_factory.mktemp("plain") / "plain.so"
    tvm.compile(_generated(), "llvm").export_library(str(path))
    return path


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with names."""
    path = tmp_path_factory.mktemp("described") / "described.so"
    module = byoc.describe(_generated(), outputs=["a", "b"], threads=1)
    tvm.compile(module, "llvm").export_library(str(path))
    return path


@pytest.mark.slow
def test_a_plain_library_is_loaded_inspected_and_run(
    plain: Path, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    model = byoc.load(plain)
    assert [str(info) for info in model.inputs] == [
        "image: float32[1, 3, 16, 16]",
        "scale: float32[1, 8, 1, 1]",
    ]
    found = model.run(_INPUTS)
    assert list(found) == ["output0", "output1"]
    assert_agrees(dict(zip(expected, found.values(), strict=True)), expected)
    with pytest.raises(byoc.InputError, match=r"need \[1, 3, 16, 16\]"):
        model.run(_INPUTS | {"image": np.zeros((1, 3, 8, 8), np.float32)})
    printed = CliRunner().invoke(cli, ["inspect", str(plain)])
    assert printed.exit_code == 0 and "exported by TVM, without metadata" in printed.output
    assert "image: float32[1, 3, 16, 16]" in printed.output
    np.savez(tmp_path / "in.npz", **_INPUTS)
    command = [sys.executable, "-m", "byoc", "run", plain, "-i", tmp_path / "in.npz"]
    command += ["-o", tmp_path / "out.npz", "--print-time", "--repeat", "2"]
    subprocess.run(command, check=True, capture_output=True)
    results = np.load(tmp_path / "out.npz")
    assert_agrees(dict(zip(expected, results.values(), strict=True)), expected)


def test_a_described_library_is_like_any_other(
    described: Path, expected: dict[str, np.ndarray]
) -> None:
    model = byoc.load(described)
    found = model.run(_INPUTS)
    assert list(found) == ["a", "b"]
    assert_agrees(dict(zip(expected, found.values(), strict=True)), expected)
    assert model.metadata.threads == 1 and model.metadata.form == "tvm"
    told = json.loads(CliRunner().invoke(cli, ["inspect", "--json", str(described)]).output)
    assert [output["name"] for output in told["outputs"]] == ["a", "b"]
    assert told["versions"]["byoc"] == byoc.__version__


@I.ir_module
class _Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")) -> R.Tuple(
        R.Tensor(("n", 3), "float32"), R.Tensor((3, "n"), "float32")
    ):
        n = T.int64()  # noqa: F841
        with R.dataflow():
            z = R.add(x, y)
            w = R.permute_dims(z)
            R.output(z, w)
        return (z, w)


def test_symbolic_axes_are_read_from_a_plain_library(tmp_path: Path) -> None:
    tvm.compile(_Symbolic, "llvm").export_library(str(tmp_path / "s.so"))
    model = byoc.load(tmp_path / "s.so")
    assert [str(info) for info in model.inputs] == ["x: float32[n, 3]", "y: float32[n, 3]"]
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    z, w = model(x, x)
    np.testing.assert_array_equal(z, 2 * x)
    np.testing.assert_array_equal(w, 2 * x.T)
    with pytest.raises(byoc.InputError, match="where n is 4"):
        model(x, x[:2])


@pytest.mark.slow
def test_sorting_is_found_by_plain_and_by_described_libraries(tmp_path: Path) -> None:
    @I.ir_module
    class Sorts:
        @R.function
        def main(x: R.Tensor((2, 5), "float32")) -> R.Tensor((2, 5), "float32"):
            with R.dataflow():
                y = R.sort(x, axis=-1, descending=False)
                R.output(y)
            return y

    tvm.compile(Sorts, "llvm").export_library(str(tmp_path / "plain.so"))
    tvm.compile(byoc.describe(Sorts), "llvm").export_library(str(tmp_path / "described.so"))
    needs = read_compiled(tmp_path / "described.so").metadata().runtime
    assert [library.name for library in needs] == ["libtvm_runtime_extra"]
    script = """
import sys, numpy as np, byoc
x = np.random.default_rng(0).random((2, 5), np.float32)
np.testing.assert_array_equal(byoc.load(sys.argv[1])(x), np.sort(x))
assert "tvm" not in sys.modules
assert "codegen_cc.operator" not in sys.modules
"""
    for name in ("plain.so", "described.so"):
        subprocess.run([sys.executable, "-c", script, tmp_path / name], check=True)


def test_what_is_no_model_and_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    tvm_ffi_library = Path(__import__("tvm_ffi").libinfo.find_libtvm_ffi())
    (tmp_path / "ffi.so").write_bytes(tvm_ffi_library.read_bytes())
    with pytest.raises(byoc.LoadError, match=r"no library of TVM's virtual machine.*byoc.describe"):
        byoc.load(tmp_path / "ffi.so")

    @I.ir_module
    class Unknown:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
            return x

    tvm.compile(Unknown, "llvm").export_library(str(tmp_path / "unknown.so"))
    with pytest.raises(byoc.LoadError, match=r"parameter 'x' of main .*byoc\.describe"):
        byoc.load(tmp_path / "unknown.so")


def test_describe_refuses_what_it_cannot_describe() -> None:
    module = _generated()
    for options, said in (
        ({"outputs": ["one"]}, "1 names given for 2 outputs"),
        ({"inputs": ["x", "x"]}, "two inputs are called 'x'"),
        ({"inputs": 5}, "inputs is 5; need a list of texts"),
        ({"threads": 0}, "threads is 0"),
    ):
        with pytest.raises(byoc.PartitionError, match=said):
            byoc.describe(module, **options)
    with pytest.raises(byoc.PartitionError, match="metadata already"):
        byoc.describe(byoc.describe(module))
    with pytest.raises(byoc.PartitionError, match=r"apply relax.transform.RunCodegen\(\) first"):
        byoc.describe(byoc.partition_for_ext(import_onnx(prepare(two_by_two()))))
    for bad, said in ((5, "of type int"), (tvm.IRModule(), "no Relax function main")):
        with pytest.raises(byoc.PartitionError, match=said):
            byoc.describe(bad)


def test_the_hint_that_names_min_bytes_can_be_followed(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    numbers = [value(name, onnx.TensorProto.FLOAT, [4]) for name in "xyzw"]
    # Beside one of TVM's: a region that is the whole network is always called.
    nodes = [
        onnx.helper.make_node("Mul", ["x", "y"], ["z"]),
        onnx.helper.make_node("Sinh", ["x"], ["w"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", numbers[:2], numbers[2:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    shown = CliRunner().invoke(cli, ["partition", str(tmp_path / "m.onnx")]).output
    (hint,) = re.findall(r"--min-bytes (\d+) \(min_bytes in Python\) would add 1 op", shown)
    for least, regions in ((int(hint), 1), (int(hint) + 1, 0)):
        command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--json"]
        told = CliRunner().invoke(cli, [*command, "--min-bytes", str(least)])
        assert len(json.loads(told.stdout)["report"]["regions"]) == regions
    assert len(byoc.compile(tmp_path / "m.onnx", min_bytes=int(hint)).report.regions) == 1
