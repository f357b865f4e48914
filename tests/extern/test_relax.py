"""Relax modules whose operators the user's function computes, by every way that is generated."""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tvm
from tvm import relax, te

import byoc
from byoc.extern.testing import run
from tests.extern.folders import built, python
from tests.reference import assert_agrees

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")

HEADER = """\
#include <stdint.h>
// byoc: a=input[m,k] b=weight[k,n] c=output[m,n] m,n,k=size op=matmul
void counted_gemm(const float* a, const float* b, float* c, int m, int n, int k);
"""
CODE = """\
__attribute__((visibility("default"))) int counted_calls = 0;

void counted_gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  ++counted_calls;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
      c[i * n + j] = sum;
    }
  }
}
"""
#: The same, but wrong by exactly 1, so that results tell who computed them.
MARKED = CODE.replace("= sum;", "= sum + 1;").replace("counted", "marked")
MARKED_HEADER = HEADER.replace("counted", "marked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("relax")
    built(path, HEADER, CODE, EXPORT="counted_calls")
    return path / "out"


@pytest.fixture
def modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """The generated modules for te and for Relax; the packed function is loaded."""
    monkeypatch.syspath_prepend(str(folder))
    found = tuple(importlib.import_module(f"counted_gemm_{kind}") for kind in ("te", "relax"))
    found[0].load()
    return found


def calls(folder: Path) -> int:
    """How often the function has been called in this process."""
    library = ctypes.CDLL(str(folder / "counted_gemm_tvm.so"))
    return ctypes.c_int.in_dll(library, "counted_calls").value


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def network(x_shape: tuple[object, ...] = (3, 4)) -> tuple[tvm.IRModule, list[np.ndarray]]:
    """relu(x w0) w1, then a product of batches that the function cannot compute."""
    weights = [numbers(4, 6, seed=1), numbers(6, 5, seed=2), numbers(2, 5, 3, seed=3)]
    x = relax.Var("x", relax.TensorType(list(x_shape), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.matmul(x, relax.const(weights[0])))
            hidden = builder.emit(relax.op.nn.relu(hidden))
            hidden = builder.emit(relax.op.matmul(hidden, relax.const(weights[1])))
            result = builder.emit(relax.op.matmul(hidden, relax.const(weights[2])))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get(), weights


def expected(x: np.ndarray, weights: list[np.ndarray], added: float = 0) -> np.ndarray:
    hidden = np.maximum(x @ weights[0] + added, 0)
    return (hidden @ weights[1] + added) @ weights[2]


def test_replaced_operators_call_the_function(
    folder: Path, modules: tuple[ModuleType, ModuleType]
) -> None:
    module, weights = network()
    module, reasons = modules[1].replace(module)
    assert module.script().count('call_dps_packed("counted_gemm"') == 2
    assert reasons == [
        "counted_gemm: b has shape [2, 5, 3]; expected [k, n] with k = 5",
    ]
    before, x = calls(folder), numbers(3, 4)
    (found,) = run(module, {"x": x})
    assert calls(folder) == before + 2
    assert_agrees({"y": found.numpy()}, {"y": expected(x, weights)})


def test_symbolic_sizes(folder: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    module, weights = network((tvm.tirx.Var("rows", "int64"), 4))
    module, reasons = modules[1].replace(module)
    assert len(reasons) == 1
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    for rows in (1, 7):
        before, x = calls(folder), numbers(rows, 4)
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        assert calls(folder) == before + 2
        assert_agrees({"y": found}, {"y": expected(x, weights)})


def test_te_operator_of_symbolic_size(folder: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    rows = tvm.tirx.Var("rows", "int64")
    a, b = te.placeholder((rows, 4), name="a"), te.placeholder((4, 6), name="b")
    function = tvm.compile(te.create_prim_func([a, b, modules[0].counted_gemm(a, b)]), "llvm")
    x, w, before = numbers(5, 4), numbers(4, 6, seed=1), calls(folder)
    y = tvm.runtime.tensor(np.zeros((5, 6), "float32"))
    function(tvm.runtime.tensor(x), tvm.runtime.tensor(w), y)
    assert calls(folder) == before + 1
    assert_agrees({"y": y.numpy()}, {"y": x @ w})


@pytest.mark.parametrize(
    ("shapes", "dtype", "error", "message"),
    [
        (((3, 4), (5, 6)), "float32", ValueError, "b has shape [5, 6]; expected [k, n] with k = 4"),
        (((3, 4, 1), (4, 6)), "float32", ValueError, "a has shape [3, 4, 1]; expected [m, k]"),
        (((3, 4), (4, 6)), "float64", TypeError, "a has dtype float64; expected float32"),
    ],
)
def test_operators_check_their_inputs(
    modules: tuple[ModuleType, ModuleType],
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    error: type[Exception],
    message: str,
) -> None:
    placed = [te.placeholder(shape, dtype) for shape in shapes]
    shapes_by_name = zip("ab", shapes, strict=True)
    variables = [relax.Var(name, relax.TensorType(s, dtype)) for name, s in shapes_by_name]
    for module, operands in zip(modules, (placed, variables), strict=True):
        with pytest.raises(error) as caught:
            module.counted_gemm(*operands)
        assert str(caught.value) == f"counted_gemm: {message}"


@pytest.mark.slow
def test_exported_library_needs_nothing_else(
    folder: Path, modules: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    module, weights = network()
    module, _ = modules[1].replace(module)
    module = modules[1].embed(module)
    tvm.compile(module, "llvm").export_library(str(tmp_path / "model.so"))
    x = numbers(3, 4)
    np.save(tmp_path / "x.npy", x)
    script = (
        "import numpy as np, tvm\n"
        "from tvm.runtime.vm import VirtualMachine\n"
        "module = tvm.runtime.load_module('model.so')\n"
        "run = VirtualMachine(module, tvm.cpu())['main']\n"
        "np.save('y.npy', run(tvm.runtime.tensor(np.load('x.npy'))).numpy())\n"
    )
    done = python(["-c", script], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_agrees({"y": np.load(tmp_path / "y.npy")}, {"y": expected(x, weights)})


def test_embedding_what_is_not_built(
    folder: Path, modules: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules[1], "OBJECT", folder / "nowhere.o")
    with pytest.raises(FileNotFoundError, match=r"nowhere.o is not built; run make -C"):
        modules[1].embed(network()[0])


def test_library_row_computes_regions(tmp_path: Path) -> None:
    built(tmp_path, MARKED_HEADER, MARKED)
    module, weights = network()
    libraries = [str(tmp_path / "out" / "marked_gemm_library.py"), "builtin"]
    module, report = byoc.partition_with_report(module, libraries=libraries, min_bytes=0)
    report.require(full=True)
    used = {use.library: use.nodes for use in report.kernels}
    assert used["marked_gemm"] == 2
    x = numbers(3, 4)
    (found,) = run(relax.transform.RunCodegen()(module), {"x": x})
    # The batched product and ReLU are the built-in library's.
    assert_agrees({"y": found.numpy()}, {"y": expected(x, weights, added=1)})


def test_library_row_folds_leading_axes(tmp_path: Path) -> None:
    built(tmp_path, MARKED_HEADER.replace("marked", "folded"), MARKED.replace("marked", "folded"))
    weight = numbers(4, 6)
    x = relax.Var("x", relax.TensorType([2, 3, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.matmul(x, relax.const(weight))))
        builder.emit_func_output(y)
    libraries = [str(tmp_path / "out" / "folded_gemm_library.py")]
    module = byoc.partition_for_ext(builder.get(), libraries=libraries, min_bytes=0)
    given = numbers(2, 3, 4)
    (found,) = run(relax.transform.RunCodegen()(module), {"x": given})
    assert_agrees({"y": found.numpy()}, {"y": given @ weight + 1})
