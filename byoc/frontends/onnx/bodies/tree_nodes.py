"""Decision trees of ai.onnx.ml, laid out as the operator ``trees`` of ours has them.

All comparisons become ``x <= threshold`` or ``x == threshold``: ``x < t`` is ``x <= p``, p the
greatest number below t; ``x >= t``, ``x > t`` and ``x != t`` are others with the children
exchanged; and a member of a set is equal to one number of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen_cc.operators.trees import ABSENT, EQUAL, ROW

LEAF = "LEAF"
_NAN = float("nan")


@dataclass
class Nodes:
    """The nodes of all trees as a model has them; ``first`` and ``second`` are places, by mode.

    ``first`` is where a row goes on that fulfils the comparison, and with ``absent`` one whose
    number is NaN. A leaf has the mode ``LEAF``; its row of values is in ``rows``. ``sets`` has, for
    each branch of mode ``BRANCH_MEMBER``, its numbers.
    """

    modes: Sequence[str]
    features: Sequence[int]
    thresholds: Sequence[float]
    first: Sequence[int]
    second: Sequence[int]
    absent: Sequence[int]
    rows: Sequence[int]
    sets: dict[int, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Branch:
    """A comparison as the operator has it; children are nodes, or the same node's next one."""

    feature: int
    threshold: float
    first: int
    second: _Branch | int
    absent: bool
    equal: bool = False


def _targets(branch: _Branch | int | None) -> list[int]:
    """The nodes that a branch leads to, each as often as it does."""
    found = []
    while isinstance(branch, _Branch):
        found.append(branch.first)
        branch = branch.second
    return found if branch is None else [*found, branch]


class Layout:
    """Nodes in the order of the operator: both children side by side, behind their branch."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.thresholds: list[float] = []
        self.features: list[int] = []
        self.children: list[int] = []
        self.tags: list[int] = []
        self.roots: list[int] = []
        self.depths: list[int] = []

    def add(self, root: int) -> None:
        """Lay out a tree. Raises ``ValueError`` for nodes that are none.

        A node that several branches lead to stands behind each of them, its children once.
        """
        branches = self._reached(root)
        left = Counter(to for branch in branches.values() for to in _targets(branch))
        places, depths = defaultdict(list), Counter()
        self.roots.append(self._reserve(1))
        places[root].append(self.roots[-1])
        ready = [root]
        while ready:
            at = ready.pop()
            branch = branches.pop(at)
            if branch is None:
                for place in places[at]:
                    self.children[place] = place - 1
                    self.tags[place] = ROW * self.nodes.rows[at]
                continue
            for target, place, depth in self._lay(branch, places[at], depths[at]):
                places[target].append(place)
                depths[target] = max(depths[target], depth)
                left[target] -= 1
                if not left[target]:
                    ready.append(target)
        if branches:
            raise ValueError("nodes that form no tree")
        self.depths.append(max(depths.values(), default=0))

    def _reached(self, root: int) -> dict[int, _Branch | None]:
        """What the nodes compare that a root leads to; None for leaves."""
        found: dict[int, _Branch | None] = {}
        waiting = [root]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found[at] = self._branch(at)
                waiting += _targets(found[at])
        return found

    def _lay(
        self, branch: _Branch, places: Sequence[int], depth: int
    ) -> Iterator[tuple[int, int, int]]:
        """Write a branch at places; nodes that it leads to, where each has to be, and how deep."""
        while True:
            child, depth = self._reserve(2), depth + 1
            for place in places:
                self.thresholds[place] = branch.threshold
                self.features[place] = branch.feature
                self.children[place] = child
                self.tags[place] = ABSENT * branch.absent + EQUAL * branch.equal
            if isinstance(branch.second, int):
                yield branch.second, child + 1, depth
            yield branch.first, child, depth
            if isinstance(branch.second, int):
                return
            branch, places = branch.second, [child + 1]

    def arrays(self) -> list[np.ndarray]:
        """Thresholds, features, children, tags, roots and depths."""
        numbers = (self.features, self.children, self.tags, self.roots, self.depths)
        return [np.array(self.thresholds, np.float32), *(np.array(n, np.int32) for n in numbers)]

    def _reserve(self, count: int) -> int:
        place = len(self.tags)
        self.thresholds += [_NAN] * count
        for numbers in (self.features, self.children, self.tags):
            numbers += [0] * count
        return place

    def _branch(self, at: int) -> _Branch | None:
        """What a node of the model compares, None for a leaf."""
        nodes = self.nodes
        mode, feature, threshold = nodes.modes[at], nodes.features[at], nodes.thresholds[at]
        first, second, absent = nodes.first[at], nodes.second[at], bool(nodes.absent[at])
        if mode == LEAF:
            return None
        if mode == "BRANCH_MEMBER":
            branch: _Branch | int = second
            for number in reversed(nodes.sets[at]):
                branch = _Branch(feature, number, first, branch, absent, equal=True)
            if isinstance(branch, int):
                raise ValueError("a set without members")
            return branch
        if mode in ("BRANCH_LT", "BRANCH_GTE"):
            threshold = _below(threshold)
        if mode in ("BRANCH_LEQ", "BRANCH_LT"):
            return _Branch(feature, threshold, first, second, absent)
        if mode in ("BRANCH_GT", "BRANCH_GTE"):
            return _Branch(feature, threshold, second, first, not absent)
        if mode == "BRANCH_EQ":
            return _Branch(feature, threshold, first, second, absent, equal=True)
        if mode == "BRANCH_NEQ":  # NaN is unequal to all
            return _Branch(feature, threshold, second, first, absent=False, equal=True)
        raise ValueError(f"a node of mode {mode}")


def _below(threshold: float) -> float:
    """The greatest number below, in float32; NaN, which nothing is below, for the least one."""
    if np.isneginf(threshold):
        return _NAN
    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
