"""Binary operators of opset 6 and older, whose attributes say how the second operand broadcasts."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, version_converter

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure, VerifyError
from byoc.frontends.onnx import import_onnx, prepare
from byoc.frontends.onnx.converters.old_broadcast import OPERATORS
from tests.ir.test_own_converters import One, model_of, normal, onnxruntime_of

#: Shapes of the second operand of one of [2, 3, 3, 3], and the axis at which it begins.
SECONDS = (
    *(((), None), ((1,), None), ((3,), None), ((3, 3), None), ((2, 3, 3, 3), None)),
    *(((2,), 0), ((3,), 1), ((3,), 2), ((3,), 3), ((2, 3), 0), ((3, 3), 1), ((3, 3), 2)),
    *(((2, 3, 3), 0), ((3, 3, 3), 1), ((2, 3, 3, 3), 0), ((1,), 1), ((1, 3, 1, 3), 0)),
)
DTYPES = {"And": "bool", "Or": "bool", "Xor": "bool", "Equal": "int32"}


def operand(operator: str, *shape: int, seed: int) -> np.ndarray:
    dtype = DTYPES.get(operator, "float32")
    if dtype == "bool":
        return np.asarray(normal(*shape, seed=seed) > 0)
    if dtype == "int32":
        return np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)
    return np.asarray(np.abs(normal(*shape, seed=seed)) + np.float32(0.1))


@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_second_operand_begins_at_the_axis(operator: str, constant: bool) -> None:
    """Against ONNX Runtime, which has opset 7 alone, with axes of 1 that the test appends."""
    old, new = [], []
    for number, (shape, axis) in enumerate(SECONDS):
        a, b = operand(operator, 2, 3, 3, 3, seed=0), operand(operator, *shape, seed=number)
        attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
        first, second = {"a": a}, {"b": b}
        inputs = (first, second) if constant else (first | second, {})
        old.append(One(operator, *inputs, 1, attributes))
        wide = b if axis is None else b.reshape(b.shape + (1,) * (4 - axis - b.ndim))
        new.append(One(operator, {"a": a, "b": wide}))
    expected = onnxruntime_of(model_of(new, 7), new)
    model = model_of(old, 6)
    got = backend.prepare(model, min_bytes=0).run([v for one in old for v in one.inputs.values()])
    for (shape, axis), result, want in zip(SECONDS, got, expected, strict=True):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(result, want, rtol=1e-5, err_msg=f"{operator} {shape} {axis}")


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_as_onnx_converts_it_to_opset_7(operator: str) -> None:
    ones = [
        One(operator, {"a": operand(operator, 3, 3, seed=1), "b": operand(operator, 3, seed=2)})
    ]
    ones[0].attributes = {"broadcast": 1, "axis": 0}
    model = model_of(ones, 6)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("0_out0", 1, [3, 3]))
    upgraded = version_converter.convert_version(model, 8)
    assert [node.op_type for node in upgraded.graph.node] == ["Unsqueeze", operator]
    del upgraded.graph.value_info[:]  # of no type
    expected = onnxruntime_of(upgraded, ones)
    rep = backend.prepare(model, min_bytes=0)
    assert rep.report.offloaded == rep.report.operators > 0
    got = rep.run(list(ones[0].inputs.values()))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)


def test_constants_are_not_folded_by_an_evaluator_that_ignores_the_axis() -> None:
    a, b = normal(3, 3, seed=1), normal(3, seed=2)
    node = helper.make_node("Sub", ["a", "b"], ["c"], broadcast=1, axis=0)
    nodes = [node, helper.make_node("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "constants",
        [helper.make_tensor_value_info("x", 1, [3, 3])],
        [helper.make_tensor_value_info("y", 1, [3, 3])],
        [numpy_helper.from_array(a, "a"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)])
    x = normal(3, 3, seed=3)
    (got,) = backend.prepare(model, min_bytes=0).run([x])
    np.testing.assert_allclose(got, x + (a - b[:, None]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((3,), 4), ((3,), -1), ((3, 3), 3)])
def test_axis_that_does_not_fit(shape: tuple[int, ...], axis: int) -> None:
    one = One("Add", {"a": normal(2, 3, 3, 3), "b": normal(*shape)}, {}, 1, {"broadcast": 1})
    one.attributes = {"broadcast": 1, "axis": axis}
    with pytest.raises(ImportFailure, match=rf"Add .*axis={axis} with operands of ranks 4 and"):
        import_onnx(prepare(model_of([one], 6)))


@pytest.mark.slow
def test_symbolic_axes() -> None:
    """A bias of channels, as converters from Caffe2 wrote it, at several sizes."""
    node = helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)
    graph = helper.make_graph(
        [node],
        "symbolic",
        [
            helper.make_tensor_value_info("x", 1, ["n", "c", "h", 4]),
            helper.make_tensor_value_info("b", 1, ["c"]),
        ],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)])
    rep = backend.prepare(model, min_bytes=0)
    for n, c, h in itertools.product((1, 2), (1, 4), (1, 4)):
        x, b = normal(n, c, h, 4, seed=1), normal(c, seed=2)
        np.testing.assert_array_equal(rep.run([x, b])[0], x + b[:, None, None])
    module = import_onnx(prepare(model, {"x": ["n", "c", "h", 4], "b": ["c"]}))
    assert str(module["main"].ret_ty.shape) == str(module["main"].params[0].ty.shape)


def test_verify_does_not_ask_an_evaluator_that_ignores_the_axis(tmp_path: Path) -> None:
    one = One("Add", {"a": normal(3, 3), "b": normal(3)}, {}, 1, {"broadcast": 1, "axis": 0})
    model = model_of([one], 6)
    onnx.save(model, tmp_path / "m.onnx")
    byoc.compile(tmp_path / "m.onnx", tmp_path / "m.so")
    with pytest.raises(VerifyError, match="does not read attribute axis"):
        byoc.verify(tmp_path / "m.onnx", tmp_path / "m.so")


@pytest.mark.parametrize("opset", [1, 6, 7, 10])
def test_dropout_of_any_ratio(opset: int) -> None:
    one = One("Dropout", {"x": normal(2, 3)}, {}, 1, {"ratio": 0.2})
    if opset < 7:
        one.attributes = {"ratio": 0.2, "is_test": 1}
    (got,) = backend.prepare(model_of([one], opset)).run([one.inputs["x"]])
    np.testing.assert_array_equal(got, one.inputs["x"])
