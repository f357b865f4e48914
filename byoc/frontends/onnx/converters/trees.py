"""Decision trees as the operator of ours that walks through them."""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.node import Node
from byoc.ir.cuts import cuts
from byoc.ir.trees import trees
from codegen_cc.operators.trees import KINDS, ROLES, ROW


def decision_trees(node: Node) -> relax.Expr:
    """What ``bodies.trees`` writes: rows, nodes, roots, and what leaves give.

    Places are looked at once more, as a file may bring a node of this name along.
    """
    kind, outputs = node.attrs["kind"].decode(), int(node.attrs["targets"])
    arrays = [node.constant(place) for place in range(1, len(ROLES))]
    shape = node.shape()
    if kind not in KINDS or shape is None or any(array is None for array in arrays):
        raise ValueError(f"kind {kind!r}, rows {shape}; need {', '.join(KINDS)} and constant trees")
    if not _fit(int(shape[-1]), arrays, outputs):
        raise ValueError("places that are none; export the model again")
    return trees(list(node.inputs), kind, outputs)


def tree_cuts(node: Node) -> relax.Expr:
    """Where the numbers of rows lie among the cuts of their columns."""
    cut, first = (node.constant(place) for place in (1, 2))
    shape = node.shape()
    if cut is None or first is None or shape is None or len(first) != int(shape[1]) + 1:
        raise ValueError(f"rows {shape} and cuts that are computed; need constants for each column")
    if (first < 0).any() or (np.diff(first) < 0).any() or first[-1] > len(cut):
        raise ValueError("cuts that are none; export the model again")
    return cuts(list(node.inputs))


def _fit(columns: int, arrays: list[np.ndarray], outputs: int) -> bool:
    """Whether all places are of something."""
    thresholds, features, children, tags, roots, depths, values, targets = arrays
    count = len(thresholds)
    if not (len(features) == len(children) == len(tags) == count and values.ndim == 2):
        return False
    places = np.arange(count)
    inner = children > places
    rows = tags[~inner] // ROW
    within = (
        (features, columns),
        (children[inner] + 1, count),
        (roots, count),
        (rows, len(values)),
        (targets + values.shape[1] - 1, outputs),
    )
    leaves = children[~inner] == places[~inner] - 1
    return (
        len(targets) == len(values)
        and len(depths) == len(roots)
        and bool(leaves.all() and np.isnan(thresholds[~inner]).all())
        and all(((part >= 0) & (part < end)).all() for part, end in within)
    )
