"""From ONNX to regions: everything offloaded first, then values against ONNX Runtime.

Node descriptors are interpreted in numpy, so no kernel and no compiler takes part.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import helper
from tvm import relax
from tvm.relax import op

from byoc.compiler.partition import partition_for_ext, partition_with_report
from byoc.frontends.onnx import import_onnx, prepare
from tests.reference import assert_agrees, onnxruntime_outputs

from .graphs import onnx_model, random, regions, relax_module
from .interpret import Interpreter, run_with_tvm

node = helper.make_node

BOOLEAN = relax.TensorType([], "bool")


def _scale(*shape: int, seed: int) -> np.ndarray:
    return np.abs(random(*shape, seed=seed)) + 0.5


def mobile_block() -> onnx.ModelProto:
    """Depthwise convolution, batch norm, ReLU6, squeeze and excitation, hard swish."""
    nodes = [
        node("Conv", ["x", "dw"], ["d"], group=6, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["d", "s", "b", "m", "v"], ["n"]),
        node("Clip", ["n", "zero", "six"], ["c"]),
        node("GlobalAveragePool", ["c"], ["g"]),
        node("Conv", ["g", "w1", "b1"], ["h"], kernel_shape=[1, 1]),
        node("HardSigmoid", ["h"], ["gate"], alpha=0.2, beta=0.5),
        node("Mul", ["c", "gate"], ["e"]),
        node("Conv", ["e", "w2"], ["p"], kernel_shape=[1, 1]),
        node("Add", ["p", "x"], ["r"]),
        node("HardSwish", ["r"], ["y"]),
    ]
    weights = {
        "dw": random(6, 1, 3, 3),
        "s": _scale(6, seed=1),
        "b": random(6, seed=2),
        "m": random(6, seed=3),
        "v": _scale(6, seed=4),
        "zero": np.float32(0),
        "six": np.float32(6),
        "w1": random(6, 6, 1, 1, seed=5),
        "b1": random(6, seed=6),
        "w2": random(6, 6, 1, 1, seed=7),
    }
    return onnx_model(nodes, {"x": [1, 6, 5, 5]}, ["y"], weights)


def attention_block() -> onnx.ModelProto:
    """Projections, softmax attention, layer norm and GELU in the pieces that exporters write."""
    nodes = [
        *(node("MatMul", ["x", f"w{i}"], [f"p{i}"]) for i in range(3)),
        *(node("Add", [f"p{i}", f"b{i}"], [f"q{i}"]) for i in range(3)),
        *(node("Reshape", [f"q{i}", "heads"], [f"h{i}"]) for i in range(3)),
        node("Transpose", ["h0"], ["t0"], perm=[0, 2, 1, 3]),
        node("Transpose", ["h1"], ["t1"], perm=[0, 2, 3, 1]),
        node("Transpose", ["h2"], ["t2"], perm=[0, 2, 1, 3]),
        node("MatMul", ["t0", "t1"], ["scores"]),
        node("Div", ["scores", "two"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "t2"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "flat"], ["joined"]),
        node("Add", ["joined", "x"], ["r"]),
        node("ReduceMean", ["r"], ["mean"], axes=[-1]),
        node("Sub", ["r", "mean"], ["d"]),
        node("Pow", ["d", "two"], ["sq"]),
        node("ReduceMean", ["sq"], ["var"], axes=[-1]),
        node("Add", ["var", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["dev"]),
        node("Div", ["d", "dev"], ["n"]),
        node("Mul", ["n", "gamma"], ["ng"]),
        node("Add", ["ng", "beta"], ["ln"]),
        node("MatMul", ["ln", "w3"], ["f"]),
        node("Div", ["f", "root2"], ["fd"]),
        node("Erf", ["fd"], ["fe"]),
        node("Add", ["fe", "one"], ["f1"]),
        node("Mul", ["f", "f1"], ["fm"]),
        node("Mul", ["fm", "half"], ["y"]),
    ]
    weights = {
        **{f"w{i}": random(8, 8, seed=i, scale=0.5) for i in range(4)},
        **{f"b{i}": random(8, seed=i + 4) for i in range(3)},
        "heads": np.array([1, 5, 2, 4]),
        "flat": np.array([1, 5, 8]),
        "gamma": random(8, seed=8),
        "beta": random(8, seed=9),
        "eps": np.float32(1e-5),
        "one": np.float32(1),
        "two": np.float32(2),
        "half": np.float32(0.5),
        "root2": np.float32(2**0.5),
    }
    return onnx_model(nodes, {"x": [1, 5, 8]}, ["y"], weights, opset=13)


def misc() -> onnx.ModelProto:
    """Sum, Split, LRN, nearest Resize, ConvTranspose, two results."""
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        node("Sum", ["a", "b", "a"], ["s"]),
        node("LRN", ["s"], ["l"], size=3),
        node("Resize", ["l", "", "scales"], ["z"], **_nearest()),
        node("ConvTranspose", ["z", "w", "wb"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Relu", ["t"], ["u"]),
        node("MaxPool", ["u"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        node("Flatten", ["l"], ["f"]),
        node("LogSoftmax", ["f"], ["w2"], axis=-1),
    ]
    weights = {
        "sizes": np.array([3, 3]),
        "scales": np.array([1, 1, 2, 2], "float32"),
        "w": random(3, 2, 2, 2),
        "wb": random(2, seed=1),
    }
    return onnx_model(nodes, {"x": [1, 6, 3, 4]}, ["y", "w2"], weights)


def _nearest() -> dict[str, str]:
    return {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            mobile_block,
            [
                "conv2d_bias_clip",
                "reduce_mean",
                "conv2d_bias_clip",
                "mul",
                "conv2d_residual_hard_swish",
            ],
        ),
        (attention_block, None),
        (misc, None),
    ],
)
def test_whole_graphs(build, expected: list[str] | None) -> None:
    model = build()
    out, report = partition_with_report(import_onnx(prepare(model)))
    relax.analysis.well_formed(out)
    assert report.left == ()
    assert len(report.regions) == 1
    assert report.offloaded == report.operators
    if expected is not None:
        assert list(regions(out).values()) == [[f"ext.{name}" for name in expected]]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    x = random(*(dim.dim_value for dim in dims), seed=5)
    want = onnxruntime_outputs(model, {"x": x})
    results = [value.astype("float32") for value in Interpreter(out)(x)]
    assert_agrees(dict(zip(want, results, strict=True)), want)


def test_attention_is_recognised() -> None:
    out = partition_for_ext(import_onnx(prepare(attention_block())))
    ((_, names),) = regions(out).items()
    assert names.count("ext.layer_norm") == 1
    assert names.count("ext.matmul_bias") == 3
    assert names[-1] == "ext.matmul_gelu"
    assert "ext.erf" not in names


def test_the_given_module_is_not_changed() -> None:
    mod = import_onnx(prepare(mobile_block()))
    before = mod.script(show_meta=False)
    partition_for_ext(mod)
    assert mod.script(show_meta=False) == before


def test_constants_are_not_region_inputs() -> None:
    out = partition_for_ext(import_onnx(prepare(mobile_block())))
    assert [param.name for param in out["ext_main_0"].params] == ["x"]


def test_leftovers_still_run() -> None:
    """Regions that are compiled by someone else leave a module that TVM compiles."""

    def build(emit, x):
        return emit(op.cosh(emit(op.nn.relu(x))))

    seen: list[str] = []

    def codegen(functions, options, names):
        seen.extend(str(func.attrs["global_symbol"]) for func in functions)
        return []

    def relu(x, y):
        y.copyfrom(np.maximum(x.numpy(), 0))

    out = partition_for_ext(relax_module(build, (16, 16)))
    saved = tvm_ffi.get_global_func("relax.ext.ext", allow_missing=True)
    tvm_ffi.register_global_func("relax.ext.ext", codegen, override=True)
    tvm_ffi.register_global_func("ext_main_0", relu, override=True)
    try:
        compiled = relax.transform.RunCodegen()(out)
        x = random(16, 16)
        got = run_with_tvm(compiled, x)[0]
    finally:
        tvm_ffi.registry.remove_global_func("ext_main_0")
        tvm_ffi.registry.remove_global_func("relax.ext.ext")
        if saved is not None:
            tvm_ffi.register_global_func("relax.ext.ext", saved, override=True)
    assert seen == ["ext_main_0"]
    np.testing.assert_allclose(got, np.cosh(np.maximum(x, 0)), rtol=1e-5)


def test_code_without_dataflow_is_not_missed() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 8], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.nn.relu(builder.emit(op.tanh(x)))))
    out, report = partition_with_report(builder.get())
    assert regions(out) == {"ext_main_0": ["ext.tanh", "ext.relu"]}
    assert report.left == ()


def test_branches_stay_with_a_reason() -> None:
    """In a module that did not come from ONNX, whose branches would be functions."""
    x, flag = relax.Var("x", relax.TensorType([4, 8], "float32")), relax.Var("c", BOOLEAN)
    builder = relax.BlockBuilder()
    with builder.function("main", [x, flag]):
        one, other = (relax.SeqExpr([], f(x)) for f in (relax.op.nn.relu, relax.op.tanh))
        builder.emit_func_output(builder.emit(relax.If(flag, one, other)))
    out, report = partition_with_report(builder.get())
    relax.analysis.well_formed(out)
    reasons = {entry.op: entry.reason for entry in report.left}
    assert reasons["relax.nn.relu"] == "relax.nn.relu is inside a branch; need straight-line code"
    assert reasons["relax.tanh"] == "relax.tanh is inside a branch; need straight-line code"


def test_dumps_follow_the_pipeline(tmp_path: Path) -> None:
    partition_for_ext(import_onnx(prepare(mobile_block())), dump_ir=tmp_path)
    names = [path.stem for path in sorted(tmp_path.glob("*.py"))]
    assert names[0] == "00_imported"
    assert [name[3:] for name in names if name[3:] in ("annotate", "merge", "prune")] == [
        "annotate",
        "merge",
        "prune",
    ]
    assert any(name.endswith("clip_from_call_tir") for name in names)


def test_report_in_json() -> None:
    _, report = partition_with_report(import_onnx(prepare(mobile_block())))
    data = json.loads(json.dumps(report.to_json()))
    counts = {"operators", "offloaded", "macs", "offloaded_macs"}
    tables = {"regions", "left", "libraries", "asked_libraries", "kernels", "machines", "nodes"}
    assert set(data) == counts | tables | {"shortfall", "exact", "axes", "multiplied_in"}
    assert data["multiplied_in"] == {"float32": data["macs"]}
    assert data["macs"] == data["offloaded_macs"] == 6 * 25 * 9 + 36 + 36 * 25
    (region,) = data["regions"]
    assert region["bytes_in"] == region["bytes_out"] == 4 * 6 * 25
    assert region["name"] == "ext_main_0"
