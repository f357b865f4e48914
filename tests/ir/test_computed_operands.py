"""Axes, sizes, widths and scales that are computed while a model runs, against ONNX Runtime.

All nodes of one test are one model, which is compiled once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import byoc
from byoc.errors import ImportFailure, ModelError
from byoc.frontends.onnx import prepare
from tests.ir.graphs import onnx_model
from tests.ir.test_own_converters import One, check

DRAW = np.random.default_rng(3)
X = DRAW.standard_normal((3, 4, 5)).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.slow
def test_reductions_along_computed_axes() -> None:
    ones = [
        One(f"Reduce{kind}", {"x": X, "axes": integers(-1, 0)}, attributes={"keepdims": keep})
        for kind, keep in zip(
            ("Sum", "Mean", "Max", "LogSumExp", "L2", "Prod"), (0, 1, 0, 1, 0, 1), strict=True
        )
    ]
    bools = X > 1
    ones += [
        One("ReduceMin", {"x": bools, "axes": integers(1)}),
        One("ReduceMax", {"x": np.zeros((2, 0, 3), "f4"), "axes": integers(1)}),
        One("ReduceSum", {"x": X, "axes": integers()}, attributes={"noop_with_empty_axes": 1}),
        One(
            "ReduceSum",
            {"x": (X * 4).astype(np.int32), "axes": integers(0, 1, 2)},
            attributes={"keepdims": 0},
        ),
    ]
    check(ones, 20)


@pytest.mark.slow
def test_computed_sizes() -> None:
    image = X[None]
    widths = integers(1, 0, -1, 2)
    ones = [
        One("CumSum", {"x": X, "axis": np.array(-2)}, attributes={"reverse": 1}),
        One("TopK", {"x": X, "k": integers(2)}, outputs=2, attributes={"axis": 1}),
        One("OneHot", {"i": integers(1, -1), "d": np.array(3), "v": np.array([2, 5], "f4")}),
        One("Reshape", {"x": X, "shape": integers(0, -1, 2)}),
        One("Split", {"x": X, "sizes": integers(1, 0, 3)}, outputs=3, attributes={"axis": 1}),
        *(
            One(
                "Pad",
                {"x": X, "pads": widths, "v": np.array(3, "f4"), "axes": integers(1, -1)},
                attributes={"mode": mode},
            )
            for mode in ("constant", "edge", "reflect", "wrap")
        ),
        One("Resize", {"x": image, "roi": np.zeros(0, "f4")}, attributes={"mode": "nearest"}),
        One("AffineGrid", {"t": X[:2, :2, :3], "size": integers(2, 1, 3, 4)}),
        One(
            "Col2Im", {"x": DRAW.random((1, 8, 4), "f4"), "i": integers(3, 3), "b": integers(2, 2)}
        ),
    ]
    ones[9].inputs["scales"] = np.array([1, 1, 1.7, 0.6], np.float32)
    for mode in ("linear", "cubic"):
        named = {"mode": mode, "antialias": 1, "axes": [3, 2]}
        region, scales = np.zeros(0, np.float32), np.array([0.6, 1.5], np.float32)
        ones.append(One("Resize", {"x": image, "roi": region, "s": scales}, attributes=named))
    check(ones, 20)


@pytest.mark.slow
def test_operators_with_tensors_of_their_own() -> None:
    """Converters of single operators, of constants and of inputs."""
    image = DRAW.standard_normal((1, 2, 6, 6)).astype(np.float32)
    square = {"kernel_shape": [2, 2], "strides": [2, 2]}
    ties = np.sign(image[:, :, ::-1])
    weight = DRAW.standard_normal((3, 2, 2, 2)).astype(np.float32)
    offset = DRAW.standard_normal((1, 8, 5, 5)).astype(np.float32)
    ones = [
        One("MaxPool", {"x": image}, outputs=2, attributes=square),
        One("MaxPool", {"x": ties}, outputs=2, attributes={**square, "storage_order": 1}),
        One(
            "MaxUnpool",
            {"x": image, "i": DRAW.permutation(288)[:72].reshape(1, 2, 6, 6)},
            attributes=square,
        ),
        One(
            "DeformConv",
            {"x": image, "w": weight, "o": offset},
            attributes={"kernel_shape": [2, 2]},
        ),
        One("LayerNormalization", {"x": X.astype("f8"), "g": X[0, 0].astype("f8")}, outputs=1),
        One("EyeLike", {"x": X[0]}, attributes={"k": 1, "dtype": 7}),
        One("LpNormalization", {"x": X * (X > 0)}, attributes={"axis": 1}),
        One("ReverseSequence", {"x": X, "n": integers(1, 2, 3, 2)}),
        One(
            "STFT",
            {"x": DRAW.random((1, 20, 1), "f4")},
            {"step": np.array(4), "w": np.hanning(8).astype("f4")},
        ),
        One(
            "DFT",
            {"x": DRAW.random((2, 6, 2), "f4")},
            {"n": np.array(5), "axis": np.array(1)},
            attributes={"inverse": 1},
        ),
    ]
    ones += [
        One("Det", {"x": DRAW.standard_normal((2, 4, 4)).astype(np.float32)}),
        One("Trilu", {"x": np.zeros((2, 0, 3), "f4"), "k": np.array(1)}),
        One(
            "TfIdfVectorizer",
            {"x": DRAW.integers(0, 4, (2, 9)).astype(np.int32)},
            attributes={
                "mode": "TFIDF",
                "min_gram_length": 1,
                "max_gram_length": 2,
                "max_skip_count": 2,
                "ngram_counts": [0, 2],
                "ngram_indexes": [3, 0, 1, 2],
                "weights": [1.0, 2.0, 0.5, 3.0],
                "pool_int64s": [1, 2, 0, 1, 3, 2],
            },
        ),
    ]
    check(ones, 20)


def test_places_of_maxima_that_are_no_numbers(tmp_path: Path) -> None:
    """Of NaN, and of minus infinity alone: they lie in their windows, and can be put back."""
    nan, inf = np.nan, np.inf
    rows = [[nan, 5, 1, 2], [7, nan, 3, nan], [-inf, -inf, 4, 1], [-inf, -inf, 2, 0]]
    x = np.array(rows, np.float32).reshape(1, 1, 4, 4)
    model = onnx_model(
        [
            helper.make_node("MaxPool", ["x"], ["m", "i"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("MaxUnpool", ["m", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Cast", ["i"], ["places"], to=TensorProto.FLOAT),
        ],
        {"x": [1, 1, 4, 4]},
        ["places", "y"],
    )
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    assert found["places"].ravel().tolist() == [0, 7, 8, 10]
    assert np.isnan(found["y"]).sum() == 2 and np.isnan(found["y"][0, 0, 0, 0])


def test_operators_of_opset_26() -> None:
    ones = [
        One("BitCast", {"x": X}, attributes={"to": 6}),
        One("CumProd", {"x": X, "axis": np.array(1)}, attributes={"exclusive": 1}),
    ]
    check(ones, 26)


def test_boxes_with_computed_limits() -> None:
    boxes = np.sort(DRAW.random((1, 9, 2, 2), "f4"), 2).reshape(1, 9, 4)
    scores = DRAW.standard_normal((1, 2, 9)).astype(np.float32)
    limits = {"n": integers(2), "iou": np.array([0.3], "f4"), "least": np.array([-0.5], "f4")}
    ones = [
        One("NonMaxSuppression", {"b": boxes, "s": scores, **limits}),
        One(
            "NonMaxSuppression",
            {"b": boxes, "s": scores, "n": integers(3)},
            attributes={"center_point_box": 1},
        ),
    ]
    check(ones, 13)


def test_strings_and_other_domains_are_refused_by_name() -> None:
    equal = onnx_model([helper.make_node("Equal", ["a", "b"], ["y"])], {"a": [2], "b": [2]}, ["y"])
    for value in equal.graph.input:
        value.type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ModelError, match="input 'a' is of strings"):
        prepare(equal)
    node = helper.make_node("Adam", ["a", "b"], ["y"], domain="ai.onnx.preview.training")
    training = onnx_model([node], {"a": [2], "b": [2]}, ["y"])
    del training.opset_import[:]
    training.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    with pytest.raises(ImportFailure, match=r"Adam of domain 'ai\.onnx\.preview\.training'"):
        byoc.compile(training)
