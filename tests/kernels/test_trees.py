"""Decision trees against a walk in Python."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

FEATURES = 6
ABSENT, EQUAL, ROW = 1, 2, 4
_NODE = np.dtype([("threshold", "f4"), ("feature", "i4"), ("child", "i4"), ("tag", "i4")])


def _forest(trees: int, depth: int, leaves: int, plain: bool) -> tuple[np.ndarray, ...]:
    """Random nodes, as ``ext_trees.h`` has them, roots and depths."""
    rng = np.random.default_rng(trees + 31 * depth)
    nodes: list[tuple[float, int, int, int]] = []
    roots, depths = [], []
    for _ in range(trees):
        roots.append(len(nodes))
        depths.append(0)
        nodes.append((0, 0, 0, 0))
        waiting = [(roots[-1], depth)]
        while waiting:
            place, left = waiting.pop()
            if left == 0 or rng.random() < 0.2:
                nodes[place] = (np.nan, 0, place - 1, ROW * int(rng.integers(leaves)))
                depths[-1] = max(depths[-1], depth - left)
                continue
            child = len(nodes)
            nodes += [(0, 0, 0, 0)] * 2
            threshold, tag = float(rng.integers(-2, 3)), 0 if plain else int(rng.integers(4))
            nodes[place] = (threshold, int(rng.integers(FEATURES)), child, tag)
            waiting += [(child, left - 1), (child + 1, left - 1)]
    return np.array(nodes, _NODE), np.array(roots, np.int32), np.array(depths, np.int32)


def _leaf(nodes: np.ndarray, place: int, row: np.ndarray) -> int:
    while nodes[place]["child"] > place:
        node = nodes[place]
        value, tag = row[node["feature"]], node["tag"]
        if np.isnan(value):
            first = tag & ABSENT
        elif tag & EQUAL:
            first = value == node["threshold"]
        else:
            first = value <= node["threshold"]
        place = int(node["child"]) + (0 if first else 1)
    return int(nodes[place]["tag"]) // ROW


def _run(
    lib: ctypes.CDLL,
    kind: str,
    rows: int,
    trees: int,
    depth: int,
    width: int,
    outputs: int,
    plain: bool = False,
) -> None:
    rng = np.random.default_rng(rows)
    nodes, roots, depths = _forest(trees, depth, 13, plain)
    x = at_page_end(rng.integers(-3, 4, (rows, FEATURES)))
    x[rng.random(x.shape) < 0.1] = np.nan
    values = at_page_end(rng.integers(-8, 9, (13, width)))  # sums of them are exact
    targets = at_page_end(rng.integers(0, outputs - width + 1, 13), np.int32)
    stored = [at_page_end(nodes, _NODE), *(at_page_end(n, np.int32) for n in (roots, depths))]
    y = Rows(rows, outputs)
    p = abi.TreesParams(
        rows=rows, features=FEATURES, trees=trees, width=width, outputs=outputs,
        kind=abi.TREES_KIND.index(kind), plain=int(plain),
    )  # fmt: skip
    pointers = [array.ctypes.data for array in (x, *stored, values, targets)]
    assert lib.ext_trees(p, *pointers, y.pointer) == 0
    y.check_gaps()
    want = np.zeros((rows, outputs))
    for row in range(rows):
        found = [_leaf(nodes, int(root), x[row]) for root in roots]
        if kind == "sum":
            for leaf in found:
                want[row, targets[leaf] : targets[leaf] + width] += values[leaf]
        elif found:
            want[row] = (np.min if kind == "least" else np.max)(values[found], axis=0)
    np.testing.assert_array_equal(y.view, want)


@every("trees", [0, 1, 7, 8, 9, 30])
@every("rows", [0, 1, 2, 7, 8, 9, 65, 130])
@every("plain", [False, True], ids=["", "plain"])
def test_sums(lib: ctypes.CDLL, plain: bool, rows: int, trees: int) -> None:
    _run(lib, "sum", rows, trees, depth=6, width=1, outputs=1, plain=plain)


@every("depth", [0, 1, 4, 5, 9])
@every("width", [1, 2, 3])
def test_values_of_some_targets(lib: ctypes.CDLL, width: int, depth: int) -> None:
    _run(lib, "sum", 19, 5, depth, width, outputs=3, plain=width == 2)


@every("rows", [1, 8, 20])
@every("kind", ["least", "greatest"])
def test_extremes(lib: ctypes.CDLL, kind: str, rows: int) -> None:
    _run(lib, kind, rows, 10, depth=4, width=2, outputs=2)


@every(
    "change",
    [{"features": 0}, {"trees": -1}, {"width": 0}, {"outputs": 0}, {"kind": 1, "outputs": 2}],
    ids=str,
)
def test_what_is_refused(lib: ctypes.CDLL, change: dict[str, int]) -> None:
    given = {"rows": 2, "features": 3, "trees": 4, "width": 1, "outputs": 1, "kind": 0}
    p = abi.TreesParams(**(given | change))
    assert lib.ext_trees(p, *[None] * 7) == 2


@every(("rows", "features"), [(0, 1), (1, 3), (5, 1), (70, 4)])
def test_cuts(lib: ctypes.CDLL, rows: int, features: int) -> None:
    """Columns with no cut, one, and many; numbers at cuts, beside them, infinite and NaN."""
    rng = np.random.default_rng(rows)
    counts = [0, 1, 2, 9][:features]
    columns = [np.sort(rng.choice(np.arange(40) / 8, count, replace=False)) for count in counts]
    cuts = at_page_end(np.concatenate(columns), "f8")
    first = at_page_end(np.cumsum([0, *counts]), "i4")
    x = at_page_end(rng.integers(-1, 45, (rows, features)) / 8, "f8")
    x[rng.random(x.shape) < 0.3] += 1e-13
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.1] = np.inf
    y = at_page_end(np.zeros((rows, features)))
    params = abi.CutsParams(rows=rows, features=features)
    pointers = [array.ctypes.data for array in (x, cuts, first, y)]
    assert lib.ext_cuts(params, *pointers) == 0
    for place in np.ndindex(x.shape):
        own, number = columns[place[1]], x[place]
        below = int((own < number).sum())
        code = 2 * below - (0 if number in own else 1)
        assert np.isnan(y[place]) if np.isnan(number) else y[place] == code
