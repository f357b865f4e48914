"""What detectors do with the boxes that a network gives: as many as there are, of several levels.

Beside ONNX Runtime, as exporters of PyTorch write it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from tvm import relax

import byoc
from byoc.frontends.onnx import import_model
from tests.reference import onnxruntime_outputs

LEVELS, CLASSES, MOST = 2, 3, 5


def level(number: int) -> str:
    """Boxes [n, 4] of a level that are above a threshold, at most ``MOST``, in order."""
    return f"""
        logits{number} = Gemm<transB = 1>(image{number}, weight)
        all{number} = Sigmoid(logits{number})
        flat{number} = Reshape(all{number}, rest)
        above{number} = Greater(flat{number}, least)
        found{number} = NonZero(above{number})
        at{number} = Transpose<perm = [1, 0]>(found{number})
        likely{number} = GatherND(flat{number}, at{number})
        size{number} = Shape(likely{number})
        either{number} = Concat<axis = 0>(size{number}, most)
        count{number} = ReduceMin<keepdims = 0>(either{number})
        k{number} = Reshape(count{number}, one)
        scores{number}, order{number} = TopK(likely{number}, k{number})
        taken{number} = Gather<axis = 0>(at{number}, order{number})
        places{number} = Squeeze(taken{number}, second)
        boxesAt{number} = Div(places{number}, classes)
        labels{number} = Mod(places{number}, classes)
        own{number} = Gather<axis = 0>(corners{number}, boxesAt{number})"""


def detector() -> onnx.ModelProto:
    """Two levels, whose boxes are joined and moved apart by class before they suppress others."""
    joined = {
        what: ", ".join(f"{what}{n}" for n in range(LEVELS)) for what in ("own", "scores", "labels")
    }
    inputs = ", ".join(f"float[m{n}, 8] image{n}, float[m{n}, 4] corners{n}" for n in range(LEVELS))
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        detector ({inputs}, float[{CLASSES}, 8] weight, float least)
            => (float[k, 4] boxes, float[k] scores, int64[k] labels)
        <int64[1] rest = {{-1}}, int64[1] most = {{{MOST}}}, int64[1] one = {{1}},
         int64[1] second = {{1}}, int64 classes = {{{CLASSES}}}, int64[1] keep = {{4}},
         float[1] overlap = {{0.3}}, int64[1] zero = {{0}}, int64[1] front = {{0}},
         int64[2] pair = {{0, 1}}, int64 column = {{2}}> {{
            {"".join(level(n) for n in range(LEVELS))}
            every = Concat<axis = 0>({joined["own"]})
            score = Concat<axis = 0>({joined["scores"]})
            label = Concat<axis = 0>({joined["labels"]})
            number = Cast<to = 1>(label)
            apart = Mul(number, ten)
            apart2 = Unsqueeze(apart, second)
            moved = Add(every, apart2)
            moved3 = Unsqueeze(moved, front)
            score3 = Unsqueeze(score, pair)
            chosen = NonMaxSuppression(moved3, score3, hundred, overlap)
            column1 = Gather<axis = 1>(chosen, column)
            stay = Slice(column1, zero, keep)
            boxes = Gather<axis = 0>(every, stay)
            scores = Gather<axis = 0>(score, stay)
            labels = Gather<axis = 0>(label, stay)
        }}"""
    )
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.array(10, "f4"), "ten"),
            onnx.numpy_helper.from_array(np.array([100]), "hundred"),
        ]
    )
    return model


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, byoc.Model]:
    """The detector, and its library."""
    model, file = detector(), Path(tmp_path_factory.mktemp("detector"), "model.so")
    with pytest.warns(byoc.AxesNote, match="m0"):
        done = byoc.compile(model, file)
    assert done.report.offloaded_macs == done.report.macs > 0
    return model, byoc.load(file)


@pytest.mark.parametrize("least", [0.2, 0.6, 0.9, 2.0])
@pytest.mark.parametrize("counts", [(1, 1), (6, 30)])
def test_boxes_of_several_levels(
    compiled: tuple[onnx.ModelProto, byoc.Model], counts: tuple[int, int], least: float
) -> None:
    model, net = compiled
    draw = np.random.default_rng(1)
    given = {"weight": draw.standard_normal((CLASSES, 8)).astype("f4"), "least": np.float32(least)}
    for number, count in enumerate(counts):
        given[f"image{number}"] = draw.standard_normal((count, 8)).astype("f4")
        given[f"corners{number}"] = np.sort(draw.random((count, 4), "f4"), axis=-1)
    wanted = onnxruntime_outputs(model, {k: np.asarray(v) for k, v in given.items()})
    assert (len(wanted["labels"]) == 0) == (least > 1)
    for name, got in net.run({k: np.asarray(v) for k, v in given.items()}).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-6, atol=1e-6)
        assert got.shape == wanted[name].shape


def swap() -> str:
    """A matrix [4, 5] as text, which mixes each column with its neighbour."""
    return ", ".join(str(float(i == j) + 2.0 * (i + 1 == j)) for i in range(4) for j in range(5))


def test_rows_of_one_number_that_operators_spell_in_two_ways(tmp_path) -> None:
    """A number in front of each of the first boxes, as Faster R-CNN tells which image they are of.

    Slice gives min(n, 5) rows, and ConstantOfShape as many as n - max(0, n - 5).
    """
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[m] likely, float[m, 4] corners) => (float[k, 4] joined)
        <int64[1] front = {{0}}, int64[1] most = {{{MOST}}},
         float half = {{0.5}}, int64[2] row = {{-1, 1}}, float[4, 5] swap = {{{swap()}}}> {{
            above = Greater(likely, half)
            found = NonZero(above)
            all = Squeeze(found, front)
            first = Slice(all, front, most)
            boxes = Gather<axis = 0>(corners, first)
            size = Shape<end = 1>(first)
            zeros = ConstantOfShape<value = float[1] {{3.0}}>(size)
            column = Reshape(zeros, row)
            rows = Concat<axis = 1>(column, boxes)
            joined = Gemm<transB = 1>(rows, swap)
        }}"""
    )
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert done.report.offloaded_macs == done.report.macs > 0
    net, draw = byoc.load(tmp_path / "model.so"), np.random.default_rng(0)
    for count in (1, 6, 40):
        given = {"likely": draw.random(count, "f4"), "corners": draw.random((count, 4), "f4")}
        (want,) = onnxruntime_outputs(model, given).values()
        np.testing.assert_allclose(net.run(given)["joined"], want, rtol=1e-6)
    assert len(want) == MOST


def test_numbers_of_levels_of_many_anchors_are_no_shape(tmp_path) -> None:
    """TVM took a vector of constants for a shape, of as many extents, and overflowed its stack.

    ONNX's constant folding leaves alone what is as large.
    """
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (int64[n] at) => (float[n] doubled)
        <int64[1] many = {40000}, int64[2] row = {1, -1}, int64[1] front = {0}> {
            zeros = ConstantOfShape<value = int64[1] {0}>(many)
            threes = ConstantOfShape<value = int64[1] {3}>(many)
            levels = Concat<axis = 0>(zeros, threes)
            image = Reshape(levels, row)
            taken = Gather<axis = 1>(image, at)
            flat = Squeeze(taken, front)
            number = Cast<to = 1>(flat)
            doubled = Add(number, number)
        }"""
    )
    with pytest.warns(byoc.AxesNote):
        imported = import_model(model)
    extents = []

    def note(expr: relax.Expr) -> None:
        if isinstance(expr, relax.ShapeExpr):
            extents.append(len(expr.values))

    relax.analysis.post_order_visit(imported.module["main"].body, note)
    assert max(extents, default=0) <= 2
    with pytest.warns(byoc.AxesNote):
        done = byoc.compile(model, tmp_path / "model.so")
    assert done.report.offloaded > 0
    given = {"at": np.array([0, 79999, 39999, 40000])}
    (want,) = onnxruntime_outputs(model, given).values()
    np.testing.assert_array_equal(byoc.load(tmp_path / "model.so").run(given)["doubled"], want)


@pytest.mark.parametrize("centred", [0, 1])
def test_suppression_of_equal_empty_and_distant_boxes(tmp_path, centred: int) -> None:
    """Ties go by place, what has no area suppresses nothing, and most boxes are far apart."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[b, c, n] scores, float[b, n, 4] boxes, int64[1] most, float[1] share,
           float[1] least) => (int64[k, 3] rows) {{
            rows = NonMaxSuppression<center_point_box = {centred}>(
                boxes, scores, most, share, least)
        }}"""
    )
    with pytest.warns(byoc.AxesNote):
        byoc.compile(model, tmp_path / "model.so")
    net = byoc.load(tmp_path / "model.so")
    draw, found = np.random.default_rng(centred), 0
    for count, most, least in ((1, 1, 0), (17, 0, 0), (60, 5, 0.2), (300, 10**9, -1), (40, 3, 2)):
        boxes = draw.random((2, count, 4), "f4").round(1)
        boxes[:, ::5, 2:] = boxes[:, ::5, :2] * (1 - centred)
        boxes[:, :, : 4 - 2 * centred] += 200 * draw.integers(0, 3, (2, count, 1))
        given = {
            "scores": (draw.random((2, 3, count), "f4") - 0.3).round(1),
            "boxes": boxes,
            "most": np.array([most]),
            "share": draw.random(1, "f4"),
            "least": np.array([least], "f4"),
        }
        (want,) = onnxruntime_outputs(model, given).values()
        np.testing.assert_array_equal(net.run(given)["rows"], want)
        found += len(want)
    assert found > 100
    with pytest.raises(byoc.RunError, match="iou_threshold is not from 0 to 1"):
        net.run({**given, "share": np.array([1.5], "f4")})
