"""Linear and support vector models of ai.onnx.ml, as scikit-learn's exporter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

RNG = np.random.default_rng(5)
X = (4 * RNG.standard_normal((40, 3))).astype("float32")
LABELS = RNG.integers(-2, 5, (40, 4))
#: No score is between two labels by a rounding error.
WEIGHTS = RNG.standard_normal(9).tolist()
VECTORS = RNG.standard_normal(15).tolist()


def _model(operator: str, x: np.ndarray, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    shape = ["n", *x.shape[1:]] if x.ndim > 1 else list(x.shape)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)
    names = ["y", "scores"][:outputs]
    node = helper.make_node(operator, ["x"], names, domain="ai.onnx.ml", **attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "one", [given], results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _check(model: onnx.ModelProto, x: np.ndarray, folder: Path) -> None:
    made = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    got = byoc.load(folder / "m.so").run({"x": x})
    assert_agrees(got, onnxruntime_outputs(model, {"x": x}))


@pytest.mark.parametrize(
    ("targets", "transform"), [(1, "SOFTMAX"), (3, "NONE"), (3, "LOGISTIC"), (3, "SOFTMAX")]
)
def test_regressors(targets: int, transform: str, tmp_path: Path) -> None:
    model = _model(
        "LinearRegressor",
        X,
        coefficients=WEIGHTS[: 3 * targets],
        intercepts=WEIGHTS[:targets],
        targets=targets,
        post_transform=transform,
    )
    _check(model, X, tmp_path)


def test_a_regressor_of_one_row_without_intercepts(tmp_path: Path) -> None:
    _check(_model("LinearRegressor", X[0], coefficients=WEIGHTS[:3]), X[0], tmp_path)


@pytest.mark.parametrize(
    ("labels", "dtype", "transform"),
    [
        ([], "float32", "LOGISTIC"),
        ([7, 3], "float32", "NONE"),
        ([7, 3], "int64", "LOGISTIC"),
        ([7, 3], "float32", "SOFTMAX"),
        ([5, -1, 9], "int64", "NONE"),
        ([5, -1, 9], "float32", "LOGISTIC"),
        ([5, -1, 9], "float32", "SOFTMAX"),
    ],
    ids=str,
)
def test_classifiers(labels: list[int], dtype: str, transform: str, tmp_path: Path) -> None:
    classes = max(1, len(labels) if len(labels) > 2 else 1)
    named = {"classlabels_ints": labels} if labels else {}
    x = X.astype(dtype)
    model = _model(
        "LinearClassifier",
        x,
        2,
        coefficients=WEIGHTS[: 3 * classes],
        intercepts=WEIGHTS[:classes],
        post_transform=transform,
        **named,
    )
    _check(model, x, tmp_path)


@pytest.mark.parametrize(
    ("kernel", "one_class"), [("LINEAR", 0), ("RBF", 1), ("RBF", 0), ("POLY", 0), ("SIGMOID", 0)]
)
def test_support_vectors(kernel: str, one_class: int, tmp_path: Path) -> None:
    model = _model(
        "SVMRegressor",
        X,
        coefficients=WEIGHTS[:5],
        support_vectors=VECTORS,
        rho=[0.25],
        n_supports=5,
        kernel_type=kernel,
        kernel_params=[0.125, 0.5, 3.0],
        one_class=one_class,
    )
    _check(model, X, tmp_path)


def test_support_vectors_as_one_weight(tmp_path: Path) -> None:
    model = _model("SVMRegressor", X, coefficients=WEIGHTS[:3], rho=[0.5], n_supports=0,
                   kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0])  # fmt: skip
    _check(model, X, tmp_path)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(("classes", "kernel"), [(2, "RBF"), (3, "POLY"), (4, "LINEAR")])
def test_votes_of_support_vectors(
    classes: int, kernel: str, transform: str, tmp_path: Path
) -> None:
    """One score for each pair of classes."""
    rng = np.random.default_rng(classes)
    supports = [2, 1, 3, 2][:classes]
    count = sum(supports)
    model = _model(
        "SVMClassifier",
        X,
        2,
        coefficients=rng.standard_normal((classes - 1) * count).tolist(),
        support_vectors=rng.standard_normal(3 * count).tolist(),
        vectors_per_class=supports,
        rho=rng.standard_normal(classes * (classes - 1) // 2).tolist(),
        kernel_type=kernel,
        kernel_params=[0.25, 0.5, 2.0],
        classlabels_ints=[5, -1, 9, 3][:classes],
        post_transform=transform,
    )
    _check(model, X, tmp_path)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_without_support_vectors(classes: int, positive: bool, tmp_path: Path) -> None:
    weights = np.random.default_rng(4).standard_normal(3 * classes) / 2
    model = _model(
        "SVMClassifier",
        X,
        2,
        coefficients=(np.abs(weights) if positive else weights).tolist(),
        rho=[0.125],
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        classlabels_ints=[5, -1, 9][:classes],
    )
    _check(model, X, tmp_path)


def _probable(classes: int, transform: str = "NONE") -> onnx.ModelProto:
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    return _model(
        "SVMClassifier",
        X,
        2,
        coefficients=rng.standard_normal((classes - 1) * 2 * classes).tolist(),
        support_vectors=rng.standard_normal(6 * classes).tolist(),
        vectors_per_class=[2] * classes,
        rho=rng.standard_normal(pairs).tolist(),
        prob_a=(-8 * rng.random(pairs)).tolist(),
        prob_b=rng.standard_normal(pairs).tolist(),
        kernel_type="RBF",
        kernel_params=[0.25, 0.0, 0.0],
        classlabels_ints=list(range(classes, 0, -1)),
        post_transform=transform,
    )


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_probabilities_of_support_vectors(classes: int, transform: str, tmp_path: Path) -> None:
    _check(_probable(classes, transform), X, tmp_path)


def test_loops_where_no_kernel_takes_pairs(tmp_path: Path) -> None:
    model = _probable(4)
    made = byoc.compile(model, tmp_path / "m.so", skip_ops=["coupling"])
    assert "coupling" in " ".join(str(left) for left in made.report.left)
    got = byoc.load(tmp_path / "m.so").run({"x": X})
    assert_agrees(got, onnxruntime_outputs(model, {"x": X}))


def test_a_pair_without_its_factor_is_refused() -> None:
    model = _model(
        "SVMClassifier", X, 2, coefficients=[1.0, 1.0], support_vectors=VECTORS[:6], rho=[0.0],
        vectors_per_class=[1, 1], prob_a=[1.0], classlabels_ints=[0, 1],
    )  # fmt: skip
    with pytest.raises(byoc.ByocError, match="coefficients that do not go together"):
        byoc.compile(model)


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_categories(dtype: str, tmp_path: Path) -> None:
    x = LABELS.astype(dtype) + (np.array(0.25, dtype) if dtype == "float32" else 0)
    _check(_model("OneHotEncoder", x, cats_int64s=[3, 0, -1, 1], zeros=1), x, tmp_path)


def test_results_that_are_no_numbers_are_refused_by_name() -> None:
    texts = _model("LabelEncoder", LABELS)
    texts.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(byoc.ByocError, match=r"output 'y' is of strings; export .* as labels"):
        byoc.compile(texts)
