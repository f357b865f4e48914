"""Constant expressions that TVM evaluates, beside what it can neither evaluate nor lower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from onnx import parser
from tvm import relax, te
from tvm.relax import op

import byoc
from byoc.canonicalise import apply_rule, canonicalise
from byoc.canonicalise.fold_leftover_constants import fold_leftover_constants
from tests.reference import onnxruntime_outputs

from .graphs import constant, operators

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def module(*outputs: relax.Expr, builder: relax.BlockBuilder | None = None, x=None) -> tvm.IRModule:
    builder = builder or relax.BlockBuilder()
    with builder.function("main", [] if x is None else [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([builder.emit(out) for out in outputs]))
        builder.emit_func_output(result)
    return builder.get()


def symbolic() -> tuple[relax.Var, tvm.tirx.Var]:
    n = tvm.tirx.Var("n", "int64")
    return relax.Var("x", relax.TensorType((2, n), "float32")), n


def results(mod: tvm.IRModule, *arguments: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return [found.numpy() for found in machine["main"](*map(tvm.runtime.tensor, arguments))]


def test_extremes_of_infinities() -> None:
    # TVM begins a maximum with the lowest number.
    values = op.subtract(op.erf(constant(X)), constant(np.float32(np.inf)))
    mod = canonicalise(module(op.max(values, 1), op.min(op.negative(values), 1)))
    assert "relax.max" not in operators(mod) and "relax.min" not in operators(mod)
    least, most = results(mod)
    np.testing.assert_array_equal(least, [-np.inf] * 2)
    np.testing.assert_array_equal(most, [np.inf] * 2)


def test_prelu_along_a_symbolic_axis_beside_an_expression_of_constants(tmp_path: Path) -> None:
    given = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[2, n] x) => (float[1] z, float[2, n] y)'
        " <float[1] a = {2}, float[1] slope = {0.8}>"
        " { e = Erf(a)  z = Pow(e, a)  y = PRelu(x, slope) }"
    )
    compiled = byoc.compile(given, tmp_path / "m.so", {"x": [2, "n"]}, min_bytes=0)
    assert compiled.report.left == () and compiled.report.offloaded == 1
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    for name, want in onnxruntime_outputs(given, {"x": x}).items():
        np.testing.assert_allclose(found[name], want, rtol=1e-6)


def test_expressions_of_symbolic_shape_are_left() -> None:
    x, n = symbolic()
    wide = op.broadcast_to(constant(np.ones((2, 1), np.float32)), relax.ShapeExpr([2, n]))
    folded = apply_rule(module(op.exp(wide), op.exp(constant(X)), x=x), fold_leftover_constants)
    assert operators(folded) == ["relax.broadcast_to", "relax.exp"]
    ones, exponentials = results(folded, np.empty((2, 4), np.float32))
    np.testing.assert_allclose(ones, np.full((2, 4), np.e), rtol=1e-6)
    np.testing.assert_allclose(exponentials, np.exp(X), rtol=1e-6)


def test_functions_and_operators_with_several_results_are_evaluated() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            powers = builder.emit(op.exp(constant(X)))
            twice = builder.emit_te(lambda a: te.compute(a.shape, lambda *i: a[i] * 2), powers)
            columns = builder.emit(op.split(twice, [1], axis=1))
            result = builder.emit_output(relax.Tuple([columns[0], columns[1]]))
        builder.emit_func_output(result)
    folded = canonicalise(builder.get())
    assert operators(folded) == [] and len(folded.functions) == 1
    first, second = results(folded)
    np.testing.assert_allclose(first, 2 * np.exp(X[:, :1]), rtol=1e-6)
    np.testing.assert_allclose(second, 2 * np.exp(X[:, 1:]), rtol=1e-6)


def test_narrow_floats_are_left() -> None:
    """TVM would end the process at some of their operators; others are evaluated all the same."""
    narrow = op.astype(op.exp(relax.const(X, "bfloat16")), "float32")
    folded = apply_rule(module(narrow, op.exp(constant(X))), fold_leftover_constants)
    assert operators(folded) == ["relax.exp", "relax.astype"]
