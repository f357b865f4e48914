"""Operators of ai.onnx.ml on numbers, and the inverse of matrices, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import byoc
from tests.reference import onnxruntime_outputs

NAN = float("nan")
X = np.random.default_rng(3).standard_normal((300, 3)).astype("float32")
X[1] = 0
LABELS = np.random.default_rng(4).integers(0, 9, (40, 30))
#: Half numbers, so that keys are hit.
HALVES = (LABELS / 2).astype("float32")
HALVES[0, 0] = NAN

CASES: dict[str, tuple[str, list[np.ndarray], dict[str, Any], int]] = {
    "features of one": ("FeatureVectorizer", [LABELS], {"inputdimensions": [30]}, 1),
    "features of two": (
        "FeatureVectorizer",
        [HALVES[:, :7], HALVES[:, 7:]],
        {"inputdimensions": [7, 23]},
        1,
    ),
    "scaler": ("Scaler", [X], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.1, 3.0]}, 3),
    "scaler of all": ("Scaler", [X], {"offset": [0.5], "scale": [0.25]}, 3),
    "scaler of integers": ("Scaler", [LABELS], {"offset": [3.0], "scale": [0.25]}, 3),
    "scaler of a vector": (
        "Scaler",
        [X[0]],
        {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 3.0, 4.0]},
        3,
    ),
    "max": ("Normalizer", [X], {"norm": "MAX"}, 3),
    "l1": ("Normalizer", [X], {"norm": "L1"}, 3),
    "l2": ("Normalizer", [X], {"norm": "L2"}, 3),
    "l2 of integers": ("Normalizer", [LABELS], {"norm": "L2"}, 3),
    "binarizer": ("Binarizer", [X], {"threshold": 0.25}, 3),
    "imputer": (
        "Imputer",
        [HALVES[:, :3].copy()],
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": NAN},
        3,
    ),
    "imputer of a number": (
        "Imputer",
        [HALVES],
        {"imputed_value_floats": [7.5], "replaced_value_float": 1.5},
        3,
    ),
    "imputer of integers": (
        "Imputer",
        [LABELS],
        {"imputed_value_int64s": [70], "replaced_value_int64": 3},
        3,
    ),
    "features": ("ArrayFeatureExtractor", [X, np.array([[2, 0]])], {}, 3),
    "features of a vector": ("ArrayFeatureExtractor", [X[0], np.array([2, 0, 1, 1])], {}, 3),
    "integers to integers": (
        "LabelEncoder",
        [LABELS],
        {"keys_int64s": [7, 3, 5], "values_int64s": [70, 30, 50], "default_int64": -7},
        2,
    ),
    "integers to numbers": (
        "LabelEncoder",
        [LABELS],
        {"keys_int64s": [8, 3], "values_floats": [0.5, 0.25]},
        2,
    ),
    "numbers to integers": (
        "LabelEncoder",
        [HALVES],
        {"keys_floats": [0.5, 2.5], "values_int64s": [1, 3]},
        2,
    ),
    "NaN": (
        "LabelEncoder",
        [HALVES],
        {
            "keys_tensor": numpy_helper.from_array(np.array([0.5, NAN, 2.5], "float32")),
            "values_tensor": numpy_helper.from_array(np.array([1, 2, 3])),
            "default_tensor": numpy_helper.from_array(np.array([-1])),
        },
        4,
    ),
    "tensors": (
        "LabelEncoder",
        [LABELS],
        {
            "keys_tensor": numpy_helper.from_array(np.array([1, 2])),
            "values_tensor": numpy_helper.from_array(np.array([5, 4])),
            "default_tensor": numpy_helper.from_array(np.array([9])),
        },
        4,
    ),
}


def _model(
    operator: str, values: list[np.ndarray], attributes: dict[str, Any], domain: str, version: int
) -> ModelProto:
    """One node; the first input's first axis is open where it has several."""
    inputs = []
    for number, value in enumerate(values):
        shape = ["n", *value.shape[1:]] if value.ndim > 1 and not number else list(value.shape)
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        inputs.append(helper.make_tensor_value_info(f"x{number}", dtype, shape))
    node = helper.make_node(operator, [v.name for v in inputs], ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("alone", [False, True], ids=["", "alone"])
@pytest.mark.parametrize("case", CASES)
def test_features(case: str, alone: bool, tmp_path: Path) -> None:
    """A model may name no opset but that of its ``alone`` domain."""
    operator, values, attributes, version = CASES[case]
    model = _model(operator, values, attributes, "ai.onnx.ml", version)
    if alone:
        del model.opset_import[0]
    feeds = {f"x{number}": value for number, value in enumerate(values)}
    want = onnxruntime_outputs(model, feeds)["y"]
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    got = byoc.load(tmp_path / "m.so").run(feeds)["y"]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_texts_and_trees_without_nodes_are_refused_by_name() -> None:
    texts = _model("LabelEncoder", [LABELS], {}, "ai.onnx.ml", 2)
    texts.graph.node[0].attribute.extend(
        [
            helper.make_attribute("keys_int64s", [1]),
            helper.make_attribute("values_strings", ["one"]),
        ]
    )
    trees = _model("TreeEnsembleRegressor", [X], {"n_targets": 1}, "ai.onnx.ml", 3)
    for model, name in ((texts, "LabelEncoder"), (trees, "TreeEnsembleRegressor")):
        with pytest.raises(byoc.ByocError, match=f"operator {name} of domain 'ai.onnx.ml'"):
            byoc.compile(model)
    texts.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(byoc.ByocError, match="input 'x0' is of strings"):
        byoc.compile(texts)


@pytest.mark.parametrize("rows", [1, 2, 4, 9])
def test_inverse(rows: int, tmp_path: Path) -> None:
    x = np.random.default_rng(rows).standard_normal((5, 2, rows, rows)).astype("float32")
    x[0, 0] = np.eye(rows)[::-1]  # nothing on the diagonal
    model = _model("Inverse", [x], {}, "com.microsoft", 1)
    made = byoc.compile(model, tmp_path / "m.so", min_bytes=0)
    assert made.report.regions and not made.report.left
    got = byoc.load(tmp_path / "m.so").run({"x0": x})["y"]
    want = onnxruntime_outputs(model, {"x0": x})["y"]
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max((2, 3)).min())
    np.testing.assert_allclose(got @ x, np.broadcast_to(np.eye(rows), x.shape), atol=2e-3)
