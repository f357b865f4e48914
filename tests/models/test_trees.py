"""Ensembles of decision trees of ai.onnx.ml, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import byoc
from tests.reference import assert_agrees, onnxruntime_outputs

FEATURES = 5
#: Numbers that are thresholds as well, so that comparisons meet equal ones.
_LEVELS = np.array([-2, -1, -0.5, -0.0, 0, 0.25, 1, 3], np.float32)
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _rows(count: int, seed: int = 0) -> np.ndarray:
    """Numbers of which many are thresholds, and some are infinite or NaN."""
    rng = np.random.default_rng(seed)
    x = rng.choice(_LEVELS, (count, FEATURES))
    moved = rng.random((count, FEATURES)) < 0.4
    x = np.where(moved, x + rng.standard_normal((count, FEATURES)).astype("float32"), x)
    x[rng.random((count, FEATURES)) < 0.05] = np.nan
    x[rng.random((count, FEATURES)) < 0.03] = np.inf
    x[rng.random((count, FEATURES)) < 0.03] = -np.inf
    return x


def _forest(
    what: str,
    given: Callable[[np.random.Generator], list[tuple[int, float]]],
    trees: int = 7,
    depth: int = 5,
    modes: tuple[str, ...] = ("BRANCH_LEQ",),
    absent: bool = False,
) -> dict[str, Any]:
    """Attributes of random trees, whose nodes are numbered in no order; ``given`` is of a leaf."""
    rng = np.random.default_rng(trees + depth)
    names = "treeids nodeids modes featureids values truenodeids falsenodeids"
    columns: dict[str, list] = {f"nodes_{name}": [] for name in names.split()}
    columns["nodes_missing_value_tracks_true"] = []
    owners: dict[str, list] = {f"{what}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        numbers = iter(rng.permutation((2 << depth) - 1).tolist())

        def node(number: int, left: int, tree: int = tree, numbers: Any = numbers) -> None:
            is_leaf = left == 0 or rng.random() < 0.2
            first, second = (0, 0) if is_leaf else (next(numbers), next(numbers))
            row = (
                tree,
                number,
                "LEAF" if is_leaf else str(rng.choice(modes)),
                int(rng.integers(FEATURES)),
                float(rng.choice(_LEVELS)),
                first,
                second,
                int(absent and rng.random() < 0.5),
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            if is_leaf:
                for target, weight in given(rng):
                    for column, value in zip(
                        owners.values(), (tree, number, target, weight), strict=True
                    ):
                        column.append(value)
                return
            node(first, left - 1)
            node(second, left - 1)

        node(next(numbers), depth)
    return columns | owners


def _model(
    operator: str, x: np.ndarray, outputs: int = 1, version: int = 3, **attributes: Any
) -> onnx.ModelProto:
    given = helper.make_tensor_value_info(
        "x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", x.shape[1]]
    )
    names = ["y", "scores"][:outputs]
    node = helper.make_node(operator, ["x"], names, domain="ai.onnx.ml", **attributes)
    results = [helper.make_empty_tensor_value_info(name) for name in names]
    graph = helper.make_graph([node], "one", [given], results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _check(
    model: onnx.ModelProto,
    folder: Path,
    dtype: str = "float32",
    whole: int | None = None,
    left: tuple[str, ...] = (),
) -> None:
    """The number of column ``whole`` has no fraction; ``left`` are what TVM does."""
    made = byoc.compile(model, folder / "m.so", min_bytes=0)
    assert len(made.report.regions) == 1
    assert tuple(entry.op for entry in made.report.left) == left
    assert "trees" in {use.algorithm for use in made.report.kernels}
    library = byoc.load(folder / "m.so")
    for count in (1, 3, 8, 77):
        x = _rows(count, count)
        x = x if dtype == "float32" else np.nan_to_num(3 * x, posinf=9, neginf=-9).astype(dtype)
        if whole is not None:
            x[:, whole] = np.rint(x[:, whole])
        # Where all rows reach one leaf, the range is 0.
        assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}), rounding=1e-5)


def _one(targets: int) -> Callable[[np.random.Generator], list[tuple[int, float]]]:
    return lambda rng: [(int(rng.integers(targets)), float(rng.standard_normal()))]


def _all(targets: int) -> Callable[[np.random.Generator], list[tuple[int, float]]]:
    return lambda rng: list(enumerate(rng.random(targets).tolist()))


def _few(targets: int) -> Callable[[np.random.Generator], list[tuple[int, float]]]:
    """A positive weight, and sometimes one of 0, as forests of several outputs are exported."""

    def given(rng: np.random.Generator) -> list[tuple[int, float]]:
        first, second = rng.permutation(targets)[:2].tolist()
        return [(first, float(1 + rng.random())), *([(second, 0.0)] if rng.random() < 0.3 else [])]

    return given


@pytest.mark.parametrize("absent", [False, True], ids=["", "absent"])
@pytest.mark.parametrize("mode", [*_MODES, "all"])
def test_comparisons(mode: str, absent: bool, tmp_path: Path) -> None:
    forest = _forest("target", _one(1), modes=_MODES if mode == "all" else (mode,), absent=absent)
    _check(_model("TreeEnsembleRegressor", _rows(1), n_targets=1, **forest), tmp_path)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates(aggregate: str, targets: int, tmp_path: Path) -> None:
    forest = _forest("target", _all(targets), trees=11)
    model = _model(
        "TreeEnsembleRegressor",
        _rows(1),
        n_targets=targets,
        aggregate_function=aggregate,
        base_values=[0.5, -1.0, 2.0][:targets],
        **forest,
    )
    _check(model, tmp_path)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_what_sums_become(transform: str, targets: int, tmp_path: Path) -> None:
    forest = _forest("target", _one(targets), trees=20)
    model = _model(
        "TreeEnsembleRegressor", _rows(1), n_targets=targets, post_transform=transform, **forest
    )
    _check(model, tmp_path)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_whole_numbers(dtype: str, tmp_path: Path) -> None:
    model = _model(
        "TreeEnsembleClassifier",
        np.zeros((1, FEATURES), dtype),
        2,
        classlabels_int64s=[3, 2, 1],
        **_forest("class", _all(3), modes=("BRANCH_LEQ", "BRANCH_LT")),
    )
    _check(model, tmp_path, dtype)


@pytest.mark.parametrize("trees", [1, 8, 9, 40])
def test_trees_that_are_one_leaf(trees: int, tmp_path: Path) -> None:
    forest = _forest("target", _one(1), trees=trees, depth=0)
    _check(_model("TreeEnsembleRegressor", _rows(1), n_targets=1, **forest), tmp_path)


_OF_TWO = {
    "mixed": lambda rng: [(0, float(rng.standard_normal()))],
    "positive": lambda rng: [(0, float(rng.random() / 5))],
    "mixed of the second": lambda rng: [(1, float(rng.standard_normal()))],
    "positive of the second": lambda rng: [(1, float(rng.random() / 5))],
}


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [[], [0.125]], ids=["", "base"])
@pytest.mark.parametrize("given", _OF_TWO)
def test_two_classes(given: str, base: list[float], transform: str, tmp_path: Path) -> None:
    model = _model(
        "TreeEnsembleClassifier",
        _rows(1),
        2,
        classlabels_int64s=[7, -3],
        post_transform=transform,
        **({"base_values": base} if base else {}),
        **_forest("class", _OF_TWO[given]),
    )
    if base and given.endswith("second"):  # ONNX Runtime leaves it out
        with pytest.raises(byoc.ByocError, match="operator TreeEnsembleClassifier of domain"):
            byoc.compile(model)
    else:
        _check(model, tmp_path)


def test_two_classes_with_weights_of_both_are_refused() -> None:
    """ONNX Runtime gives them the labels 0 and 1, whatever the model's are."""
    forest = _forest("class", _all(2))
    model = _model("TreeEnsembleClassifier", _rows(1), 2, classlabels_int64s=[7, -3], **forest)
    with pytest.raises(byoc.ByocError, match="operator TreeEnsembleClassifier of domain"):
        byoc.compile(model)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("given", ["one", "all", "few"])
def test_several_classes(given: str, transform: str, tmp_path: Path) -> None:
    leaves = {"one": _one(4), "all": _all(4), "few": _few(4)}[given]
    base = [0.5, 0.25, 0.0, -0.125] if given == "one" else []
    model = _model(
        "TreeEnsembleClassifier",
        _rows(1),
        2,
        classlabels_int64s=[4, 9, 2, 0],
        post_transform=transform,
        **({"base_values": base} if base else {}),
        **_forest("class", leaves, trees=4 if given == "few" else 12),
    )
    _check(model, tmp_path)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_classes_without_a_score_are_passed_over(transform: str, tmp_path: Path) -> None:
    """All scores are below 0, and those that no leaf gave are 0."""
    forest = _forest("class", lambda rng: [(int(rng.integers(3)), -float(rng.random()))], trees=2)
    labels = {"classlabels_int64s": [4, 9, 2], "post_transform": transform}
    _check(_model("TreeEnsembleClassifier", _rows(1), 2, **labels, **forest), tmp_path)


def test_rows_that_may_lack_all_scores_are_refused() -> None:
    forest = _forest("class", lambda rng: _one(3)(rng) * int(rng.integers(2)))
    model = _model("TreeEnsembleClassifier", _rows(1), 2, classlabels_int64s=[1, 2, 3], **forest)
    with pytest.raises(byoc.ByocError, match="may reach no score at all"):
        byoc.compile(model)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_base_values_are_of_targets_with_a_score(aggregate: str, tmp_path: Path) -> None:
    """As of a model of two targets by XGBoost, whose exporter knows the first."""
    forest = _forest("target", _one(3), trees=2)
    base = {"base_values": [3.0, -2.0, 0.5], "aggregate_function": aggregate}
    _check(_model("TreeEnsembleRegressor", _rows(1), n_targets=3, **base, **forest), tmp_path)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes_with_opposite_weights(transform: str, tmp_path: Path) -> None:
    """As CatBoost exports them."""

    def given(rng: np.random.Generator) -> list[tuple[int, float]]:
        weight = float(rng.standard_normal())
        return [(0, -weight), (1, weight)]

    labels = {"classlabels_int64s": [0, 1], "post_transform": transform}
    model = _model("TreeEnsembleClassifier", _rows(1), 2, **labels, **_forest("class", given))
    _check(model, tmp_path)


def test_branches_that_share_what_they_lead_to(tmp_path: Path) -> None:
    """A feature is one of several numbers, as LightGBM's categories are exported."""
    names = "nodeids modes featureids values truenodeids falsenodeids"
    rows = [
        (0, "BRANCH_EQ", 0, 1.0, 3, 1),
        (1, "BRANCH_EQ", 0, -2.0, 3, 2),
        (2, "BRANCH_EQ", 0, 3.0, 3, 4),
        (3, "BRANCH_LEQ", 1, 0.25, 5, 6),
        (4, "BRANCH_EQ", 2, 0.0, 3, 7),
        *((leaf, "LEAF", 0, 0.0, 0, 0) for leaf in (5, 6, 7)),
    ]
    forest = {f"nodes_{name}": [row[at] for row in rows] for at, name in enumerate(names.split())}
    forest |= {"nodes_treeids": [0] * 8, "target_treeids": [0] * 3, "target_ids": [0] * 3}
    forest |= {"target_nodeids": [5, 6, 7], "target_weights": [1.0, 20.0, 300.0]}
    _check(_model("TreeEnsembleRegressor", _rows(1), n_targets=1, **forest), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_branches_and_leaves_apart(dtype: str, tmp_path: Path) -> None:
    """TreeEnsemble of opset 5, with a set of members and a tree whose branch has one leaf."""
    nan = float("nan")
    rows = _rows(1).astype(dtype)
    model = _model(
        "TreeEnsemble",
        rows,
        version=5,
        n_targets=2,
        aggregate_function=1,
        tree_roots=[0, 3],
        nodes_featureids=[0, 1, 2, 3],
        nodes_modes=numpy_helper.from_array(np.array([0, 6, 4, 3], np.uint8), "m"),
        nodes_splits=numpy_helper.from_array(np.array([0, nan, 0.25, 9], dtype), "s"),
        nodes_truenodeids=[1, 0, 2, 4],
        nodes_trueleafs=[0, 1, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 4],
        nodes_falseleafs=[0, 1, 1, 1],
        nodes_missing_value_tracks_true=[1, 0, 0, 0],
        membership_values=numpy_helper.from_array(np.array([-2, 1, 3, nan], dtype), "v"),
        leaf_targetids=[0, 1, 0, 1, 0],
        leaf_weights=numpy_helper.from_array(np.array([5, 2, 3, 7, 11], dtype), "w"),
    )
    # ONNX Runtime looks up numbers in sets without their fractions.
    left = ("relax.astype",) if dtype == "float64" else ()
    _check(model, tmp_path, dtype, whole=1, left=left)


def test_without_the_kernel_tvm_walks(tmp_path: Path) -> None:
    forest = _forest("target", _one(2), modes=_MODES, absent=True)
    model = _model("TreeEnsembleRegressor", _rows(1), n_targets=2, **forest)
    made = byoc.compile(model, tmp_path / "m.so", skip_ops=["trees"])
    assert [left.op for left in made.report.left] == ["relax.ext.trees"]
    x = _rows(9)
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    assert_agrees(found, onnxruntime_outputs(model, {"x": x}))


#: A branch below the root that leads back to itself.
_ROUND = {
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
    "nodes_truenodeids": [1, 1, 0],
    "nodes_falsenodeids": [2, 2, 0],
    "target_treeids": [0],
    "target_nodeids": [2],
    "target_ids": [0],
    "target_weights": [1.0],
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "no trees"),  # the root is its own child
        (_ROUND, "no tree"),
        ({"nodes_featureids": [FEATURES, 0, 0]}, "a feature that rows of 5 lack"),
        ({"nodes_modes": ["BRANCH_OF_MAPLE", "LEAF", "LEAF"]}, "a node of mode BRANCH_OF_MAPLE"),
        ({"target_nodeids": [0, 2]}, "no trees"),  # what is no leaf has a weight
        ({"nodes_values": [0.5, 0.0]}, "no trees"),
        ({"post_transform": "PROBIT"}, "post_transform PROBIT; need one of NONE"),
        ({"nodes_treeids": [0, 0, 1]}, "no trees"),
    ],
    ids=str,
)
def test_what_is_no_forest_is_refused_by_name(change: dict[str, Any], reason: str) -> None:
    forest = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    byoc.compile(_model("TreeEnsembleRegressor", _rows(1), n_targets=1, **forest))
    said = f"operator TreeEnsembleRegressor of domain 'ai.onnx.ml' .*: .*{reason}"
    with pytest.raises(byoc.ByocError, match=said):
        byoc.compile(_model("TreeEnsembleRegressor", _rows(1), n_targets=1, **(forest | change)))


def _close_rows(count: int, thresholds: np.ndarray) -> np.ndarray:
    """Numbers at thresholds, next to them in float64, and farther away."""
    rng = np.random.default_rng(count)
    x = rng.choice(thresholds[np.isfinite(thresholds)], (count, FEATURES)).astype("float64")
    moved = rng.integers(-1, 2, x.shape)
    x = np.where(moved, np.nextafter(x, np.where(moved > 0, np.inf, -np.inf)), x)
    x = np.where(rng.random(x.shape) < 0.3, rng.standard_normal(x.shape), x)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    x[rng.random(x.shape) < 0.05] = -np.inf
    return x


@pytest.mark.parametrize("absent", [False, True], ids=["", "absent"])
@pytest.mark.parametrize("mode", [*_MODES, "all"])
@pytest.mark.parametrize("fine", [False, True], ids=["float32", "float64"])
def test_rows_of_float64(mode: str, absent: bool, fine: bool, tmp_path: Path) -> None:
    """Thresholds part them as they are, not rounded to float32."""
    forest = _forest("target", _one(1), modes=_MODES if mode == "all" else (mode,), absent=absent)
    thresholds = np.array(forest["nodes_values"], np.float64)
    if fine:
        thresholds += np.random.default_rng(1).integers(-9, 10, thresholds.shape) * 1e-12
        weights = np.array(forest.pop("target_weights"), np.float64)
        forest["target_weights_as_tensor"] = numpy_helper.from_array(weights, "w")
        forest.pop("nodes_values")
        forest["nodes_values_as_tensor"] = numpy_helper.from_array(thresholds, "t")
    model = _model("TreeEnsembleRegressor", np.zeros((1, FEATURES)), n_targets=1, **forest)
    report = byoc.compile(model, tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    assert {"trees", "cuts"} <= {use.algorithm for use in report.kernels}
    library = byoc.load(tmp_path / "m.so")
    for count in (1, 7, 64):
        x = _close_rows(count, thresholds)
        assert_agrees(library.run({"x": x}), onnxruntime_outputs(model, {"x": x}), rounding=1e-5)


def test_rows_of_float64_by_tvm(tmp_path: Path) -> None:
    """Where the kernels are refused, TVM's loops do the same."""
    forest = _forest("target", _one(1), modes=_MODES)
    model = _model("TreeEnsembleRegressor", np.zeros((1, FEATURES)), n_targets=1, **forest)
    report = byoc.compile(model, tmp_path / "m.so", skip_ops=["cuts"]).report
    assert "relax.ext.cuts" in {left.op for left in report.left}
    x = _close_rows(20, np.array(forest["nodes_values"]))
    found = byoc.load(tmp_path / "m.so").run({"x": x})
    assert_agrees(found, onnxruntime_outputs(model, {"x": x}), rounding=1e-5)
