"""What a library needs where it runs: known when it is compiled, loaded, or brought along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import pytest
import tvm_ffi.registry
from click.testing import CliRunner
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import byoc
from byoc.cli import cli
from byoc.compiler import packed_functions
from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.tvm_runtime import CORE, EXTRAS, require_functions
from byoc.ir import packed_calls
from tests.deploy.cpp_programs import make, run, said
from tests.reference import onnxruntime_outputs

_RANDOM = np.random.default_rng(3)
_F, _I, _B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _model(
    node: onnx.NodeProto,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, tuple[int, list[int | None]]],
    **constants: np.ndarray,
) -> onnx.ModelProto:
    value = oh.make_tensor_value_info
    dtypes = {name: oh.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    graph = oh.make_graph(
        [node],
        "g",
        [value(name, dtypes[name], array.shape) for name, array in inputs.items()],
        [value(name, *kind) for name, kind in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def _boxes(count: int) -> np.ndarray:
    corner = _RANDOM.random((1, count, 2), np.float32)
    return np.concatenate([corner, corner + _RANDOM.random((1, count, 2), np.float32)], 2)


_FEW = _RANDOM.integers(-3, 4, 40).astype(np.float32)
_ROWS = _RANDOM.integers(0, 2, (20, 2)).astype(np.float32)
_HOLES = _RANDOM.integers(-1, 2, (3, 4, 5)).astype(np.float32)
_SPECIAL = np.array([np.nan, -0.0, 0.0, np.inf, np.nan, -np.inf, 1e-45], np.float32)


def _unique(x: np.ndarray, *, outputs: int = 4, **attributes: int) -> onnx.ModelProto:
    first = [None] if "axis" not in attributes else [None, *x.shape[1:]]
    kinds = {"y": (oh.np_dtype_to_tensor_dtype(x.dtype), first)}
    kinds |= {name: (_I, [None]) for name in ("index", "inverse", "counts")[: outputs - 1]}
    return _model(oh.make_node("Unique", ["x"], list(kinds), **attributes), {"x": x}, kinds)


def _nonzero(x: np.ndarray) -> onnx.ModelProto:
    return _model(
        oh.make_node("NonZero", ["x"], ["y"]), {"x": x}, {"y": (_I, [max(x.ndim, 1), None])}
    )


#: What TVM computes: no kernel of ours is chosen for it.
_TVMS = ("relax.topk",)
_SCORES = _RANDOM.random((1, 2, 30), np.float32)
_CASES: dict[str, tuple[onnx.ModelProto, dict[str, np.ndarray]]] = {
    "topk": (
        _model(
            oh.make_node("TopK", ["x", "k"], ["values", "places"]),
            {"x": _HOLES[0] + np.arange(20, dtype=np.float32).reshape(4, 5) / 64},
            {"values": (_F, [4, 3]), "places": (_I, [4, 3])},
            k=np.array([3]),
        ),
        {"x": _HOLES[0] + np.arange(20, dtype=np.float32).reshape(4, 5) / 64},
    ),
    "nms": (
        _model(
            oh.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["y"]),
            {"boxes": (boxes := _boxes(30)), "scores": _SCORES},
            {"y": (_I, [None, 3])},
            most=np.array([5]),
            overlap=np.array([0.3], np.float32),
        ),
        {"boxes": boxes, "scores": _SCORES},
    ),
    "nonzero": (_nonzero(_HOLES), {"x": _HOLES}),
    "nonzero_special": (_nonzero(_SPECIAL), {"x": _SPECIAL}),
    "nonzero_bool": (_nonzero(_HOLES > 0), {"x": _HOLES > 0}),
    "nonzero_int64": (_nonzero(_ROWS.astype(np.int64)), {"x": _ROWS.astype(np.int64)}),
    "nonzero_none": (_nonzero(0 * _HOLES), {"x": 0 * _HOLES}),
    "unique": (_unique(_FEW), {"x": _FEW}),
    "unique_values": (_unique(_FEW, outputs=1), {"x": _FEW}),
    "unique_unsorted": (_unique(_FEW, sorted=0), {"x": _FEW}),
    "unique_rows": (_unique(_ROWS, axis=0), {"x": _ROWS}),
    "unique_ints": (_unique(_ROWS.astype(np.int32), axis=0, sorted=0), {"x": _ROWS.astype("i4")}),
    "unique_all": (_unique(_HOLES), {"x": _HOLES}),
}
_SORTING = {"topk"}


@pytest.fixture(scope="module", params=_CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled model, with its inputs and the answers of the ONNX reference beside it."""
    name = request.param
    model, inputs = _CASES[name]
    folder = tmp_path_factory.mktemp(name)
    byoc.compile(model, folder / f"{name}.so", skip_ops=_TVMS)
    np.savez(folder / "in.npz", **inputs)
    for index, array in enumerate(inputs.values()):
        array.tofile(folder / f"{index}.raw")
    return folder / f"{name}.so"


def _expected(name: str) -> dict[str, np.ndarray]:
    model, inputs = _CASES[name]
    if name == "nms":  # the reference evaluator sorts otherwise
        return onnxruntime_outputs(model, inputs)
    names = [output.name for output in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, inputs), strict=True))


def test_it_runs_with_tvms_runtime_alone(case: Path) -> None:
    script = """
import sys, numpy as np, byoc
path, given, out = sys.argv[1:]
results = byoc.load(path).run(dict(np.load(given)))
assert "tvm" not in sys.modules
np.savez(out, **results)
"""
    out = case.with_name("out.npz")
    root = str(Path(byoc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script, str(case), str(case.with_name("in.npz")), str(out)],
        env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = np.load(out)
    for name, expected in _expected(case.stem).items():
        assert found[name].shape == expected.shape and found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)


def test_inspect_says_what_it_needs(case: Path) -> None:
    needs = read_compiled(case).metadata().runtime
    assert [library.name for library in needs] == (
        ["libtvm_runtime_extra"] if case.stem in _SORTING else []
    )
    printed = CliRunner().invoke(cli, ["inspect", str(case)]).output
    assert "libtvm_runtime and libtvm_ffi of TVM" in printed
    assert ("libtvm_runtime_extra, for tvm.contrib.sort." in printed) == (case.stem in _SORTING)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ example ``run`` with TVM's libraries beside it."""
    folder = tmp_path_factory.mktemp("cpp")
    make(folder, "run", "libtvm_runtime_extra.so")
    return folder / "run"


@pytest.mark.slow
def test_it_runs_in_the_cpp_example(case: Path, program: Path) -> None:
    expected = _expected(case.stem)
    inputs = [case.with_name(f"{i}.raw") for i in range(len(_CASES[case.stem][1]))]
    outputs = [case.with_name(f"out{i}.raw") for i in range(len(expected))]
    said(program, "-t", 1, case, *inputs, *outputs)
    for path, array in zip(outputs, expected.values(), strict=True):
        np.testing.assert_array_equal(np.fromfile(path, array.dtype), array.ravel())


def test_a_library_that_is_not_there_is_named(program: Path, tmp_path: Path) -> None:
    model, inputs = _CASES["topk"]
    byoc.compile(model, tmp_path / "topk.so", skip_ops=_TVMS)
    inputs["x"].tofile(tmp_path / "x.raw")
    alone = tmp_path / "run"
    for name in ("run", "libtvm_runtime.so", "libtvm_ffi.so"):
        (tmp_path / name).write_bytes((program.parent / name).read_bytes())
    alone.chmod(0o755)
    done = run(alone, tmp_path / "topk.so", tmp_path / "x.raw", tmp_path / "v", tmp_path / "i")
    assert done.returncode == 1
    assert "topk.so: it needs libtvm_runtime_extra.so, " in done.stderr
    with pytest.raises(byoc.LoadError, match="libother is none of TVM's runtime libraries"):
        require_functions("libother", ["nowhere"])
    with pytest.raises(byoc.LoadError, match="libtvm_runtime_extra lacks the function nowhere"):
        require_functions(EXTRAS[0], ["nowhere"])


def test_what_no_runtime_library_has_is_refused_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_calls, "VALUE_SIZED", ())
    model, _ = _CASES["nonzero"]
    model.graph.node[0].name = "where it is"
    with pytest.raises(
        byoc.CompileError, match=r"node 'where it is' \(relax.nonzero\): .*'relax.run.nonzero'"
    ):
        byoc.compile(model)
    model.graph.node[0].name = ""


def test_who_has_which_function() -> None:
    libraries = packed_functions.registered()
    assert "tvm.contrib.sort.topk" in libraries[EXTRAS[0]]
    builtin = {n for n in tvm_ffi.registry.list_global_func_names() if n.startswith("vm.builtin.")}
    assert len(builtin) > 40
    assert builtin - libraries[CORE] == set(packed_functions._NOT_BUILTIN)


def test_packed_calls_of_loops_and_functions_are_seen() -> None:
    @I.ir_module
    class Calls:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.call_dps_packed("of.dps", (x,), out_ty=R.Tensor((4,), "float32"))
            z: R.Tensor((4,), "float32") = R.call_pure_packed(
                "of.packed", y, ty_args=(R.Tensor((4,), "float32"),)
            )
            return z

    lowered = relax.get_pipeline("default_build")(Calls)
    assert {"of.dps", "of.packed"} <= set(packed_calls.called(lowered))


def test_the_metadata_say_it_in_json(tmp_path: Path) -> None:
    model, _ = _CASES["topk"]
    byoc.compile(model, tmp_path / "t.so", skip_ops=_TVMS)
    printed = CliRunner().invoke(cli, ["inspect", "--json", str(tmp_path / "t.so")]).output
    assert json.loads(printed)["runtime"] == [
        {"name": "libtvm_runtime_extra", "functions": ["tvm.contrib.sort.topk"]}
    ]
