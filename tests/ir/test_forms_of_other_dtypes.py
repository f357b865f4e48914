"""Dtypes, scales and symbolic extents that TVM's converters have no words for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import byoc
import byoc.frontends.onnx.backend as backend
from byoc.errors import ImportFailure
from byoc.frontends.onnx import import_onnx, prepare
from tests.ir.test_own_converters import One, check, model_of, normal

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}


def check_by_evaluator(ones: list[One], opset: int, dtype: str) -> None:
    """All in one model, against ONNX's evaluator, with as many digits as the dtype has."""
    model = model_of(ones, opset)
    values = [value for one in ones for value in one.inputs.values()]
    names = [value.name for value in model.graph.input]
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, values, strict=True)))
    got = backend.prepare(model, min_bytes=0).run(values)
    for one, result, want in zip(ones, got, expected, strict=True):
        assert (str(result.dtype), result.shape) == (dtype, want.shape)
        exact = want.astype(dtype)
        # The evaluator divides LRN's alpha as a float32.
        limit = max(TOLERANCE[dtype], 1e-7 if one.operator == "LRN" else 0)
        np.testing.assert_allclose(result, exact, rtol=limit, atol=limit, err_msg=str(one))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_elu_selu_and_lrn(dtype: str) -> None:
    x = normal(5, 5, 3, 4, dtype=dtype)  # the evaluator's LRN takes the batch for the channels
    forms: list[tuple[str, dict[str, Any]]] = [
        ("Elu", {}),
        ("Elu", {"alpha": 0.3}),
        ("Selu", {}),
        ("Selu", {"alpha": 1.5, "gamma": 0.75}),
        ("LRN", {"size": 3}),
        ("LRN", {"size": 5, "alpha": 0.5, "beta": 0.5, "bias": 2.0}),
    ]
    if dtype != "float64":  # TVM's pooling shares an even window out otherwise
        forms = [form for form in forms if form[1].get("size", 1) % 2]
    else:
        forms.append(("LRN", {"size": 4, "alpha": 0.25}))
    ones = [One(operator, {"x": x}, {}, 1, attributes) for operator, attributes in forms]
    check_by_evaluator(ones, 17, dtype)


def test_lrn_of_float64_has_all_its_digits() -> None:
    x = normal(2, 5, 3, 4, dtype="float64")
    model = model_of([One("LRN", {"x": x}, {}, 1, {"size": 4, "alpha": 0.25, "beta": 0.5})], 17)
    padded = np.pad(x * x, [(0, 0), (1, 2), (0, 0), (0, 0)])
    total = sum(padded[:, shift : shift + 5] for shift in range(4))
    (got,) = backend.prepare(model).run([x])
    np.testing.assert_allclose(got, x / (1 + 0.25 / 4 * total) ** 0.5, rtol=1e-12)


def test_exponentials_are_offloaded_in_float32() -> None:
    ones = [One(operator, {"x": normal(2, 5)}) for operator in ("Elu", "Selu")]
    report = backend.prepare(model_of(ones, 17), min_bytes=0).report
    assert report.offloaded == report.operators > 0


def test_scales_of_root_mean_squares() -> None:
    """Of other extents than those that are normalised, with one axis and with all of them."""
    x, ones = normal(2, 3, 4), []
    for axis in (-1, 1, 0):
        for shape in ((1,), (4,), (3, 4), (3, 1), (2, 3, 4), (2, 1, 1), (1, 1, 4)):
            scale = {"s": normal(*shape, seed=len(ones))}
            ones.append(One("RMSNormalization", {"x": x}, scale, 1, {"axis": axis}))
    check_by_evaluator(ones, 23, "float32")


def symbolic(
    node: onnx.NodeProto, inputs: dict[str, tuple[int, list[int | str]]], opset: int
) -> Any:
    graph = helper.make_graph(
        [node],
        "symbolic",
        [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return model, {name: shape for name, (_, shape) in inputs.items()}


@pytest.mark.parametrize(("shape", "scale"), [([2, "n"], [1]), (["n", 4], [1])])
def test_scale_beside_a_symbolic_axis(
    shape: list[int | str], scale: list[int], tmp_path: Path
) -> None:
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"])
    model, shapes = symbolic(node, {"x": (1, shape), "s": (1, scale)}, 23)
    compiled = byoc.compile(model, tmp_path / "m.so", shapes, min_bytes=0)
    assert compiled.report.offloaded > 0
    loaded = byoc.load(tmp_path / "m.so")
    for size in (1, 5):
        x = normal(*(size if extent == "n" else extent for extent in shape), seed=1)
        s = normal(*scale, seed=2)
        (want,) = ReferenceEvaluator(model).run(None, {"x": x, "s": s})
        np.testing.assert_allclose(loaded.run({"x": x, "s": s})["y"], want, rtol=1e-5, atol=1e-6)


def test_scatter_of_a_symbolic_number_of_updates(tmp_path: Path) -> None:
    node = helper.make_node("ScatterND", ["d", "i", "u"], ["y"])
    inputs = {"d": (1, [4, 5]), "i": (7, ["k", 2]), "u": (1, ["k"])}
    model, shapes = symbolic(node, inputs, 18)
    byoc.compile(model, tmp_path / "m.so", shapes)
    loaded = byoc.load(tmp_path / "m.so")
    for count in (1, 3):
        rows = np.array([[0, 1], [-1, 4], [2, -5]])[:count]
        given = {"d": normal(4, 5), "i": rows, "u": normal(count, seed=1)}
        (want,) = ReferenceEvaluator(model).run(None, given)
        np.testing.assert_array_equal(loaded.run(given)["y"], want)


@pytest.mark.parametrize("operator", ["ScatterND", "GatherND"])
def test_number_of_coordinates_must_be_known(operator: str) -> None:
    updates = {"u": (1, ["k"])} if operator == "ScatterND" else {}
    inputs = {"d": (1, [4, 5]), "i": (7, ["k", "c"]), **updates}
    model, shapes = symbolic(helper.make_node(operator, list(inputs), ["y"]), inputs, 18)
    expected = rf"{operator} .*indices \[k, c\]; need a known last extent, the number of coord"
    with pytest.raises(ImportFailure, match=expected):
        import_onnx(prepare(model, shapes))


def test_gather_by_coordinates_is_as_ever() -> None:
    rows = np.array([[0, 1], [-1, 4]])
    check([One("GatherND", {"d": normal(4, 5), "i": rows})], 17)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_roots_and_logarithms_of_integers_are_cut_off(dtype: str) -> None:
    """Of sums, of zeros and of a negative sum, whose logarithm is the least number there is."""
    operators = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    drawn = np.random.default_rng(3).integers(-9, 9, (4, 5, 3))
    arrays = [x.astype(dtype) for x in (drawn, np.abs(drawn), 0 * drawn)]
    check(
        [
            One(operator, {"x": x}, {"axes": np.array([1])}, 1, {"keepdims": keep})
            for operator in operators
            for x in arrays
            for keep in (0, 1)
        ],
        18,
    )
