"""Arithmetic of integers, and scatters that keep extremes, through kernels and not through TVM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

DTYPES = {"int32": TensorProto.INT32, "int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
SHAPE = (6, 40)


def network(dtype: str, *nodes: onnx.NodeProto, **inputs: tuple[int | str, ...]) -> onnx.ModelProto:
    """Nodes from ``inputs`` to ``y``, all of one dtype but ``places``, which are int64."""
    info = helper.make_tensor_value_info
    kinds = {name: DTYPES["int64" if name == "places" else dtype] for name in inputs}
    given = [info(name, kinds[name], shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [info("y", DTYPES[dtype], None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def check(model: onnx.ModelProto, tmp_path: Path, **inputs: np.ndarray) -> None:
    """One region and nothing else, as ONNX Runtime."""
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1 and not made.report.left
    assert_agrees(byoc.load(made.path).run(inputs), onnxruntime_outputs(model, inputs))


def whole(dtype: str, *avoid: int) -> np.ndarray:
    """Small numbers of both signs, but for some."""
    drawn = np.random.default_rng(1).integers(-9, 9, SHAPE).astype(dtype)
    drawn[np.isin(drawn, avoid)] = 5
    return drawn


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("divisor", [None, 3, -4])
def test_quotients(tmp_path: Path, dtype: str, divisor: int | None) -> None:
    node = helper.make_node("Div", ["a", "b"], ["y"])
    if divisor is None:
        model = network(dtype, node, a=("n", 40), b=("n", 40))
        check_parts(model, tmp_path, a=whole(dtype), b=whole(dtype, 0)[::-1].copy())
        return
    model = network(dtype, node, a=("n", 40))
    number = helper.make_tensor("b", DTYPES[dtype], [], [divisor])
    model.graph.initializer.append(number)
    check(model, tmp_path, a=whole(dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("divisor", [1, 3, 7])
def test_remainders_have_the_sign_of_their_divisor(
    tmp_path: Path, dtype: str, divisor: int
) -> None:
    model = network(dtype, helper.make_node("Mod", ["a", "b"], ["y"]), a=("n", 40))
    model.graph.initializer.append(helper.make_tensor("b", DTYPES[dtype], [], [divisor]))
    a = whole(dtype)
    a[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    check(model, tmp_path, a=a)


@pytest.mark.parametrize("operator", ["Atan", "Asin", "Acos"])
def test_rare_functions(tmp_path: Path, operator: str) -> None:
    model = network("float32", helper.make_node(operator, ["a"], ["y"]), a=("n", 40))
    check(model, tmp_path, a=np.random.default_rng(6).uniform(-1, 1, SHAPE).astype(np.float32))


@pytest.mark.parametrize("operator", ["Asinh", "Acosh", "Atanh"])
def test_rare_inverse_functions(tmp_path: Path, operator: str) -> None:
    model = network("float32", helper.make_node(operator, ["a"], ["y"]), a=("n", 40))
    low, high = (1.5, 4) if operator == "Acosh" else (-0.9, 0.9)
    a = np.random.default_rng(6).uniform(low, high, SHAPE).astype(np.float32)
    check(model, tmp_path, a=a)


def check_parts(model: onnx.ModelProto, tmp_path: Path, **inputs: np.ndarray) -> None:
    """Right, where a divisor is computed; what keeps 0 and -1 away from TVM may stay with it."""
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert "relax.divide" not in {entry.op for entry in made.report.left}
    assert_agrees(byoc.load(made.path).run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("operator", ["Neg", "Abs"])
def test_signs(tmp_path: Path, dtype: str, operator: str) -> None:
    model = network(dtype, helper.make_node(operator, ["a"], ["y"]), a=("n", 40))
    check(model, tmp_path, a=whole(dtype))


def test_the_size_of_a_number_without_a_sign(tmp_path: Path) -> None:
    """It is itself: 0 less it would wrap around to more."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (uint8[n, 40] x) => (uint8[n, 40] y)
    <uint8[1] three = {3}> { size = Abs(x) y = Add(size, three) }"""
    x = np.random.default_rng(5).integers(0, 256, SHAPE).astype(np.uint8)
    check(onnx.parser.parse_model(text), tmp_path, x=x)


@pytest.mark.parametrize("shape", [("n", 40), SHAPE])
@pytest.mark.parametrize("bounds", [("low", "high"), ("low", ""), ("", "high")])
def test_clip_with_computed_bounds(
    tmp_path: Path, shape: tuple[int | str, ...], bounds: tuple[str, str]
) -> None:
    wanted = {name: () for name in bounds if name}
    model = network("float32", helper.make_node("Clip", ["a", *bounds], ["y"]), a=shape, **wanted)
    given = {"low": np.float32(-0.5), "high": np.float32(0.25)}
    a = np.random.default_rng(2).standard_normal(SHAPE, np.float32)
    check(model, tmp_path, a=a, **{name: np.array(given[name]) for name in wanted})


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_clip_of_integers(tmp_path: Path, dtype: str) -> None:
    model = network(dtype, helper.make_node("Clip", ["a", "low", "high"], ["y"]), a=("n", 40))
    for name, value in (("low", -3), ("high", 6)):
        model.graph.initializer.append(helper.make_tensor(name, DTYPES[dtype], [], [value]))
    check(model, tmp_path, a=whole(dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scatters_of_extremes(tmp_path: Path, dtype: str, reduction: str) -> None:
    node = helper.make_node(
        "ScatterElements", ["a", "places", "b"], ["y"], axis=0, reduction=reduction
    )
    model = network(dtype, node, a=(6, 40), places=("n", 40), b=("n", 40))
    places = np.random.default_rng(3).integers(0, 6, (30, 40))
    b = np.random.default_rng(4).integers(-30, 30, (30, 40)).astype(dtype)
    check(model, tmp_path, a=whole(dtype), places=places, b=b)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_products(tmp_path: Path, dtype: str) -> None:
    """Of rows that mark a place, by a table; of turned rows, with what follows; and in batches."""
    table = np.random.default_rng(2).integers(-9, 9, (40, 7)).astype(dtype)
    nodes = [
        helper.make_node("Mul", ["a", "a"], ["squares"]),
        helper.make_node("MatMul", ["squares", "table"], ["products"]),
        helper.make_node("Transpose", ["products"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["products", "turned"], ["each"]),
        helper.make_node("Add", ["each", "each"], ["twice"]),
        helper.make_node("Einsum", ["twice", "b"], ["sums"], equation="ij,hjk->hik"),
        helper.make_node("Add", ["sums", "each"], ["y"]),
    ]
    model = network(dtype, *nodes, a=("n", 40), b=(3, "n", "n"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    b = np.random.default_rng(3).integers(-9, 9, (3, 6, 6)).astype(dtype)
    check(model, tmp_path, a=whole(dtype), b=b)
