"""Ensembles of decision trees of ai.onnx.ml: the operator of ours, and what its sums become.

What the standard leaves open, such as one score for two classes, is as in ONNX Runtime. Sums are of
float32, also where rows are of float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.bodies.linear import OF_SEVERAL, become
from byoc.frontends.onnx.bodies.tree_nodes import LEAF, Layout, Nodes
from byoc.frontends.onnx.honoured import DECISION_TREES, OWN, TREE_CUTS

_KINDS = {"SUM": "sum", "AVERAGE": "sum", "MIN": "least", "MAX": "greatest"}
#: The same by number, as TreeEnsemble has them, and its other numbers.
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGAIN = "export the model again"
_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


@dataclass(frozen=True)
class _Forest:
    """Trees by the places of their roots, and what each leaf gives: pairs of target and weight."""

    nodes: Nodes
    roots: Sequence[int]
    given: Sequence[Sequence[tuple[int, float]]]
    targets: int


def tree_ensemble_regressor(call: Call) -> bool:
    """Aggregates of the leaves' weights and the base values, [N, targets]."""
    targets = int(call.attrs.get("n_targets", 1))
    value = _regression(
        call,
        _by_names(call, "target", targets),
        call.attrs.get("aggregate_function", b"SUM").decode(),
        call.attrs.get("post_transform", b"NONE").decode(),
        _numbers(call, "base_values"),
    )
    call.give(0, value)
    return True


def tree_ensemble(call: Call) -> bool:
    """The same with leaves of their own, of opset 5; the result is of the rows' type."""
    aggregate, transform = call.attrs.get("aggregate_function", 1), call.attrs.get("post_transform")
    if aggregate not in range(len(_AGGREGATES)) or (transform or 0) not in range(len(_TRANSFORMS)):
        call.refuse(f"aggregate_function {aggregate} or post_transform {transform} is none")
    forest = _by_places(call, int(call.attrs.get("n_targets", 1)))
    value = _regression(call, forest, _AGGREGATES[aggregate], _TRANSFORMS[transform or 0], [])
    call.give(0, call.as_given(value))
    return True


def _regression(
    call: Call, forest: _Forest, aggregate: str, transform: str, base: Sequence[float]
) -> str:
    if aggregate not in _KINDS:
        call.refuse(f"aggregate_function {aggregate}; need one of {', '.join(_KINDS)}")
    _check_transform(call, transform)
    if len(base) not in (0, forest.targets) or not forest.targets:
        call.refuse(f"{len(base)} base values for {forest.targets} targets; {_AGAIN}")
    scores = _scores(call, forest, _KINDS[aggregate])
    if aggregate == "AVERAGE":
        scores = call.op("Div", scores, call.constant(max(1, len(forest.roots)), np.float32))
    if len(base):
        whole = call.op("Add", scores, call.constant(base, np.float32))
        if any(base) and not _scores_all(forest):  # ONNX Runtime adds them to scores alone
            whole = call.op("Where", _reached(call, forest), whole, scores)
        scores = whole
    # A single target is given as it is, whatever it should become.
    return become(call, scores, transform) if forest.targets > 1 else scores


def tree_ensemble_classifier(call: Call) -> bool:
    """Labels of the greatest sums, and the sums or what they become, [N, classes]."""
    labels = list(call.attrs.get("classlabels_int64s", ()))
    if len(labels) < 2:
        call.refuse(
            f"{len(labels)} labels that are numbers; export it with two or more of them, and look"
            " texts up outside of the model"
        )
    transform = call.attrs.get("post_transform", b"NONE").decode()
    base = _numbers(call, "base_values")
    forest = _by_names(call, "class", len(labels))
    _check_transform(call, transform)
    if len(labels) == 2:
        return _of_two_classes(call, forest, labels, transform, base)
    if len(base) not in (0, len(labels)):
        call.refuse(f"{len(base)} base values for {len(labels)} classes; {_AGAIN}")
    scores = _scores(call, forest, "sum")
    if len(base):
        scores = call.op("Add", scores, call.constant(base, np.float32))
    best = scores
    if not len(base) and not _scores_all(forest) and not _greatest_is_scored(forest):
        if not any(all(_leaves(forest, root)) for root in forest.roots):
            call.refuse(
                "a row may reach no score at all, for which ONNX Runtime has no label; export it"
                " with a base value for each class"
            )
        # ONNX Runtime looks for the greatest among the classes that got a score.
        least = call.constant(-np.inf, np.float32)
        best = call.op("Where", _reached(call, forest), scores, least)
    place = call.op("ArgMax", best, axis=1, keepdims=0)
    call.give(0, call.op("Gather", call.constant(labels, np.int64), place, axis=0))
    call.give(1, become(call, scores, transform))
    return True


def _scores_all(forest: _Forest) -> bool:
    """Whether each row gets something for each class: some tree has it in all of its leaves."""
    found: set[int] = set()
    for root in forest.roots:
        of_tree = set(range(forest.targets))
        for given in _leaves(forest, root):
            of_tree &= {target for target, _ in given}
        found |= of_tree
    return len(found) == forest.targets


def _reached(call: Call, forest: _Forest) -> str:
    """Whether a row gets something for each target, as booleans [N, targets]."""
    ones = [[(target, 1.0) for target, _ in given] for given in forest.given]
    counts = _scores(call, replace(forest, given=ones), "sum")
    return call.op("Greater", counts, call.constant(0, np.float32))


def _greatest_is_scored(forest: _Forest) -> bool:
    """Whether no class without a score has the greatest sum, which ONNX Runtime passes over.

    No weight is negative, and each row gets a positive one: all leaves of some tree have it.
    """
    if not all(weight >= 0 for given in forest.given for _, weight in given):
        return False
    return any(
        all(any(weight > 0 for _, weight in given) for given in _leaves(forest, root))
        for root in forest.roots
    )


def _leaves(forest: _Forest, root: int) -> Iterator[Sequence[tuple[int, float]]]:
    """What each leaf of a tree gives."""
    for at in _below(forest.nodes, [root]):
        if forest.nodes.modes[at] == LEAF:
            yield forest.given[forest.nodes.rows[at]]


def _of_two_classes(
    call: Call, forest: _Forest, labels: Sequence[int], transform: str, base: Sequence[float]
) -> bool:
    """One class has all weights; its sum decides by its sign, or by 0.5 if no weight is negative.

    The first class's sum is the score of the second; the other one's is its opposite, or 1 less it.
    Where both classes have weights, ONNX Runtime's labels are 0 and 1, by the sign of the second
    one's sum: taken where these are the model's, and where its sum is the greater one then.
    """
    classes = {target for given in forest.given for target, _ in given}
    if classes == {0, 1} and not base and list(labels) == [0, 1] and _opposite(forest):
        return _of_opposites(call, forest, transform)
    if classes not in ({0}, {1}) or len(base) > (1 if classes == {0} else 0):
        call.refuse(
            f"two classes with weights of {len(classes)} and {len(base)} base values, whose labels"
            " ONNX Runtime takes by rules of its own; export it with weights of the first alone"
        )
    alone = [[(0, weight) for _, weight in given] for given in forest.given]
    score = _scores(call, replace(forest, given=alone, targets=1), "sum")
    if len(base):
        score = call.op("Add", score, call.constant(base, np.float32))
    positive = all(weight >= 0 for given in alone for _, weight in given)
    limit = call.constant(0.5 if positive else 0, np.float32)
    above = call.over("Squeeze", call.op("Greater", score, limit), [1])
    table = call.constant(labels, np.int64)
    call.give(0, call.op("Gather", table, call.op("Cast", above, to=_INT64), axis=0))
    if classes == {1}:
        other = call.op("Mul", score, call.constant(0, np.float32))
        call.give(1, become(call, call.op("Concat", other, score, axis=1), transform))
    elif transform == "LOGISTIC":
        both = call.op("Concat", call.op("Neg", score), score, axis=1)
        call.give(1, call.op("Sigmoid", both))
    else:
        one = call.constant(1 if positive else 0, np.float32)
        call.give(1, call.op("Concat", call.op("Sub", one, score), score, axis=1))
    return True


def _opposite(forest: _Forest) -> bool:
    """Whether each leaf gives one of two classes a number, and the other one its opposite."""
    pairs = map(dict, forest.given)
    return all({*pair} == {0, 1} and pair[0] == -pair[1] for pair in pairs)


def _of_opposites(call: Call, forest: _Forest, transform: str) -> bool:
    second = [[(0, weight) for target, weight in given if target] for given in forest.given]
    score = _scores(call, replace(forest, given=second, targets=1), "sum")
    positive = call.op("Greater", score, call.constant(0, np.float32))
    call.give(0, call.op("Cast", call.over("Squeeze", positive, [1]), to=_INT64))
    both = call.op("Concat", call.op("Neg", score), score, axis=1)
    call.give(1, become(call, both, transform))
    return True


def _check_transform(call: Call, transform: str) -> None:
    if transform not in OF_SEVERAL:
        call.refuse(f"post_transform {transform}; need one of {', '.join(OF_SEVERAL)}")


# ---------------------------------------------------------------- the operator of ours


def _scores(call: Call, forest: _Forest, kind: str) -> str:
    """[N, targets]. Raises ``ImportFailure`` for rows, or leaves, that it does not take."""
    shape = call.shape()
    nodes = forest.nodes
    branches = [f for f, mode in zip(nodes.features, nodes.modes, strict=True) if mode != LEAF]
    if shape is None or len(shape) != 2 or not shape[1]:
        call.refuse(f"rows have the shape {shape}; need [N, features], a fixed number of them")
    if min(branches, default=0) < 0 or max(branches, default=0) >= shape[1]:
        call.refuse(f"a branch looks at a feature that rows of {shape[1]} lack; {_AGAIN}")
    x = call.input(0)
    if call.dtype() == np.float64:
        x, nodes = _by_cuts(call, nodes, shape[1])
    elif call.dtype() not in (np.float32, np.int64, np.int32):
        call.refuse(f"rows are {call.dtype()}; export it with rows of float32 or float64")
    elif call.dtype() != np.float32:
        x = call.op("Cast", x, to=_FLOAT)
    exact = np.array([*nodes.thresholds, *chain(*nodes.sets.values())], np.float64)
    if not np.array_equal(exact, exact.astype(np.float32), equal_nan=True):
        call.refuse(f"thresholds of float64 for rows of {call.dtype()}; {_AGAIN}")
    table = _table(forest, kind)
    if table is None or not forest.roots:
        call.refuse(f"no trees, or leaves with weights that do not fit; {_AGAIN}")
    layout = Layout(nodes)
    try:
        for root in forest.roots:
            layout.add(root)
    except ValueError as error:
        call.refuse(f"{error}; {_AGAIN}")
    constants = [call.constant(array, array.dtype) for array in (*layout.arrays(), *table)]
    return call.op(DECISION_TREES, x, *constants, domain=OWN, kind=kind, targets=forest.targets)


def _by_cuts(call: Call, nodes: Nodes, features: int) -> tuple[str, Nodes]:
    """Rows of float64 as places among the thresholds of each feature, and nodes that ask for these.

    Rounded to float32, numbers would be parted elsewhere.
    """
    cuts: list[set[float]] = [set() for _ in range(features)]
    inner = [at for at, mode in enumerate(nodes.modes) if mode != LEAF]
    for at in inner:
        numbers = nodes.sets.get(at, (nodes.thresholds[at],))
        cuts[nodes.features[at]].update(float(n) for n in numbers if not np.isnan(n))
    ordered = [sorted(own) for own in cuts]
    places = [{cut: 2.0 * k for k, cut in enumerate(own)} for own in ordered]
    thresholds = [0.0] * len(nodes.modes)
    for at in inner:
        thresholds[at] = places[nodes.features[at]].get(float(nodes.thresholds[at]), np.nan)
    sets = {
        at: [places[nodes.features[at]].get(float(n), np.nan) for n in numbers]
        for at, numbers in nodes.sets.items()
    }
    first = np.cumsum([0, *map(len, ordered)])
    constants = call.constant([*chain(*ordered)], np.float64), call.constant(first, np.int32)
    codes = call.op(TREE_CUTS, call.input(0), *constants, domain=OWN)
    return codes, replace(nodes, thresholds=thresholds, sets=sets)


def _table(forest: _Forest, kind: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Values [leaves, width] and the first target of each: one for each leaf, or all of them."""
    several = any(len(given) != 1 for given in forest.given)
    width = forest.targets if several or kind != "sum" else 1
    values = np.zeros((len(forest.given), width), np.float32)
    targets = np.zeros(len(forest.given), np.int32)
    for row, given in enumerate(forest.given):
        places = {target for target, _ in given}
        if not all(0 <= target < forest.targets for target in places):
            return None
        if kind != "sum" and len(places) != forest.targets:
            return None
        if len(places) != len(given):
            return None
        for target, weight in given:
            if width == 1:
                targets[row], values[row] = target, weight
            else:
                values[row, target] = weight
    return values, targets


# ---------------------------------------------------------------- what a model says


def _by_names(call: Call, what: str, targets: int) -> _Forest:
    """Nodes that have a tree and a number there, as have the weights of leaves.

    Raises ``ImportFailure`` where they are no trees.
    """
    found = _trees_by_names(call, what, targets)
    return call.refuse(f"nodes that form no trees; {_AGAIN}") if found is None else found


def _trees_by_names(call: Call, what: str, targets: int) -> _Forest | None:
    names = ("treeids", "nodeids", "modes", "truenodeids", "falsenodeids", "featureids")
    trees, numbers, modes, first, second, features = (
        list(call.attrs.get(f"nodes_{name}", ())) for name in names
    )
    thresholds = _numbers(call, "nodes_values")
    count = len(modes)
    absent = list(call.attrs.get("nodes_missing_value_tracks_true", ())) or [0] * count
    columns = (trees, numbers, first, second, features, thresholds, absent)
    weights = _numbers(call, f"{what}_weights")
    owners = [list(call.attrs.get(f"{what}_{n}", ())) for n in ("treeids", "nodeids", "ids")]
    if any(len(c) != count for c in columns) or any(len(o) != len(weights) for o in owners):
        return None
    places = {key: at for at, key in enumerate(zip(trees, numbers, strict=True))}
    modes = [mode.decode() for mode in modes]
    given: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    if len(places) != count:
        return None
    for tree, number, target, weight in zip(*owners, weights, strict=True):
        at = places.get((tree, number))
        if at is None or modes[at] != LEAF:
            return None
        given[at].append((target, weight))
    leaves = [at for at in range(count) if modes[at] == LEAF]
    rows = dict(zip(leaves, range(len(leaves)), strict=True))
    children: list[list[int]] = []
    for branches in (first, second):
        found = [
            0 if at in rows else places.get((trees[at], number), -1)
            for at, number in enumerate(branches)
        ]
        if min(found, default=0) < 0:
            return None
        children.append(found)
    nodes = Nodes(
        modes, features, thresholds, *children, absent, [rows.get(at, 0) for at in range(count)]
    )
    roots = _roots(nodes)
    if roots is None or sorted(trees[at] for at in roots) != sorted({*trees}):
        return None
    return _Forest(nodes, roots, [given[at] for at in leaves], targets)


def _roots(nodes: Nodes) -> list[int] | None:
    """The nodes that no branch leads to; None where these do not lead to each other node.

    Several branches may lead to one node, as to what categories of one set have in common.
    """
    inner = [at for at, mode in enumerate(nodes.modes) if mode != LEAF]
    led_to = {*(nodes.first[at] for at in inner), *(nodes.second[at] for at in inner)}
    roots = [at for at in range(len(nodes.modes)) if at not in led_to]
    return roots if len(_below(nodes, roots)) == len(nodes.modes) else None


def _below(nodes: Nodes, roots: Sequence[int]) -> list[int]:
    """The nodes that roots lead to, and these themselves, each once."""
    waiting, found = list(roots), dict.fromkeys(roots)
    while waiting:
        at = waiting.pop()
        if nodes.modes[at] != LEAF:
            new = {to for to in (nodes.first[at], nodes.second[at]) if to not in found}
            found |= dict.fromkeys(new)
            waiting += new
    return list(found)


def _by_places(call: Call, targets: int) -> _Forest:
    """Branches and leaves that are counted apart. Raises ``ImportFailure``, as above."""
    found = _trees_by_places(call, targets)
    return call.refuse(f"nodes that form no trees; {_AGAIN}") if found is None else found


def _trees_by_places(call: Call, targets: int) -> _Forest | None:
    given = call.attrs
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    features, first, first_leaf, second, second_leaf = (
        list(given.get(f"nodes_{name}", ())) for name in names
    )
    modes = [int(mode) for mode in _numbers(call, "nodes_modes")]
    thresholds, weights = _numbers(call, "nodes_splits"), _numbers(call, "leaf_weights")
    count, leaves, ids = len(modes), len(weights), list(given.get("leaf_targetids", ()))
    absent = list(given.get("nodes_missing_value_tracks_true", ())) or [0] * count
    columns = (features, first, first_leaf, second, second_leaf, thresholds, absent)
    if any(len(column) != count for column in columns) or len(ids) != leaves:
        return None
    roots = list(given.get("tree_roots", ()))
    sets = _sets(_numbers(call, "membership_values"))
    members = [at for at, mode in enumerate(modes) if mode == _MODES.index("MEMBER")]
    if len(sets) != len(members) or not all(0 <= mode < len(_MODES) for mode in modes):
        return None
    children = []
    for to, leaf in ((first, first_leaf), (second, second_leaf)):
        inside = all(
            0 <= t < (leaves if is_leaf else count) for t, is_leaf in zip(to, leaf, strict=True)
        )
        if not inside:
            return None
        children.append([t + count * bool(i) for t, i in zip(to, leaf, strict=True)] + [0] * leaves)
    if not all(0 <= root < count for root in roots):
        return None
    pad = [0] * leaves
    nodes = Nodes(
        [f"BRANCH_{_MODES[mode]}" for mode in modes] + [LEAF] * leaves,
        [*features, *pad],
        [*thresholds, *pad],
        *children,
        [*absent, *pad],
        [*([0] * count), *range(leaves)],
        dict(zip(members, sets, strict=True)),
    )
    return _Forest(nodes, roots, [[pair] for pair in zip(ids, weights, strict=True)], targets)


def _sets(numbers: Sequence[float]) -> list[list[float]]:
    """What stands between NaNs; one may follow the last set."""
    sets: list[list[float]] = [[]]
    for number in numbers:
        if np.isnan(number):
            sets.append([])
        else:
            sets[-1].append(number)
    return sets if sets[-1] else sets[:-1]


def _numbers(call: Call, name: str) -> list[float]:
    """An attribute that is a list, or a tensor, of numbers."""
    value = call.attrs.get(f"{name}_as_tensor", call.attrs.get(name, ()))
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value).reshape(-1).tolist()
    return list(value)
