"""Einsum as products of matrices.

Operands are taken in from the left, one after the other: labels of both that nobody reads later
are contracted by a product, ``[batch.., left, sum] x [batch.., sum, right]``, those of one operand
alone that nobody reads are summed up first.  Without anything to contract, operands are multiplied
element by element.  Diagonals (a label twice in one operand) and extents of 1 that are broadcast
along what is summed stay TVM's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from byoc.frontends.onnx.converters.node import Node
from byoc.ir.dataflow import shape_of
from codegen_cc.dim import same

#: A letter, or an axis that an ellipsis stands for, counted from its end.
Label = str | int
Labels = tuple[Label, ...]


@dataclass
class _Term:
    """A tensor, and the label of each of its axes."""

    value: relax.Expr
    labels: Labels

    def extent(self, label: Label) -> int | tvm.ir.Expr:
        return self.value.ty.shape.values[self.labels.index(label)]


def einsum(node: Node) -> relax.Expr:
    """Sums of products; see this file's beginning."""
    if any(shape_of(value) is None for value in node.inputs):
        return node.tvm()
    parsed = _parsed(node)
    if parsed is None:
        return node.tvm()
    terms, result = parsed
    term, *others = (_Term(value, labels) for value, labels in zip(node.inputs, terms, strict=True))
    for place, other in enumerate(others):
        later = {label for rest in others[place + 1 :] for label in rest.labels}
        if any(
            not _alike(term, other, label) for label in _shared(term, other) - later - {*result}
        ):
            return node.tvm()
        term = _combined(node, term, other, later | {*result})
    term = _summed(node, term, {*result})
    return _in_order(node, term, result)


def _parsed(node: Node) -> tuple[list[Labels], Labels] | None:
    """Labels of the operands and of the result; None for diagonals. Raises ``ValueError``."""
    equation = node.attrs["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    left, arrow, right = text.partition("->")
    written = left.split(",")
    if len(written) != len(node.inputs):
        raise ValueError(f"equation {text!r} has {len(written)} operands; {len(node.inputs)} given")
    ranks = [len(shape_of(value)) for value in node.inputs]
    terms = [_labels(part, text, rank) for part, rank in zip(written, ranks, strict=True)]
    count = Counter(label for labels in terms for label in labels)
    hidden = max((sum(isinstance(label, int) for label in labels) for labels in terms), default=0)
    if arrow:
        result = _labels(right, text, hidden + len(right.replace("...", "")))
    else:
        letters = sorted(label for label in count if isinstance(label, str) and count[label] == 1)
        result = (*reversed(range(hidden)), *letters)
    if unknown := {*result} - count.keys():
        raise ValueError(f"equation {text!r}: no operand has {min(map(str, unknown))!r}")
    if any(len({*labels}) != len(labels) for labels in (*terms, result)):
        return None
    return terms, result


def _labels(part: str, equation: str, rank: int) -> Labels:
    before, dots, after = part.partition("...")
    hidden = rank - len(before) - len(after)
    letters = before + after
    if hidden < 0 or (hidden and not dots) or (letters and not letters.isalpha()):
        raise ValueError(f"equation {equation!r}: {part!r} does not fit a tensor of rank {rank}")
    return (*before, *reversed(range(hidden)), *after)


def _shared(a: _Term, b: _Term) -> set[Label]:
    return {*a.labels} & {*b.labels}


def _alike(a: _Term, b: _Term, label: Label) -> bool:
    """Whether an axis of both has one extent."""
    dims = [shape_of(t.value)[t.labels.index(label)] for t in (a, b)]
    return same(*dims)


def _combined(node: Node, a: _Term, b: _Term, kept: set[Label]) -> _Term:
    """The product of two terms, summed over what both have and nobody reads later."""
    shared = _shared(a, b)
    a, b = (_summed(node, term, kept | shared) for term in (a, b))
    batch = tuple(label for label in a.labels if label in shared & kept)
    summed = tuple(label for label in a.labels if label in shared - kept)
    left = tuple(label for label in a.labels if label not in shared)
    right = tuple(label for label in b.labels if label not in shared)
    if not summed:
        first = _spread(node, a, (*batch, *left, *right))
        second = _spread(node, b, (*batch, *left, *right))
        value = node.emit(relax.op.multiply(first, second))
        return _Term(value, (*batch, *left, *right))
    lhs = _matrices(node, a, batch, left, summed)
    rhs = _matrices(node, b, batch, summed, right)
    value = node.emit(relax.op.matmul(lhs, rhs))
    if len(left) != 1 or len(right) != 1:
        around = value.ty.shape.values[: len(batch)]
        own = [*(a.extent(label) for label in left), *(b.extent(label) for label in right)]
        value = node.emit(relax.op.reshape(value, relax.ShapeExpr([*around, *own])))
    return _Term(value, (*batch, *left, *right))


def _matrices(node: Node, term: _Term, batch: Labels, rows: Labels, columns: Labels) -> relax.Expr:
    """A term as [batch.., rows, columns], in which several axes, or none, are one."""
    value = _in_order(node, term, (*batch, *rows, *columns))
    if len(rows) == len(columns) == 1:
        return value
    sides = []
    for labels in (rows, columns):
        size: int | tvm.ir.Expr = 1
        for label in labels:
            size = term.extent(label) * size
        sides.append(size)
    extents = [*(term.extent(label) for label in batch), *sides]
    return node.emit(relax.op.reshape(value, relax.ShapeExpr(extents)))


def _in_order(node: Node, term: _Term, labels: Sequence[Label]) -> relax.Expr:
    axes = [term.labels.index(label) for label in labels]
    if axes == sorted(axes):
        return term.value
    return node.emit(relax.op.permute_dims(term.value, axes))


def _spread(node: Node, term: _Term, labels: Labels) -> relax.Expr:
    """A term in the order of labels, with axes of 1 for those that it lacks."""
    value = _in_order(node, term, [label for label in labels if label in term.labels])
    missing = [axis for axis, label in enumerate(labels) if label not in term.labels]
    return node.emit(relax.op.expand_dims(value, missing)) if missing else value


def _summed(node: Node, term: _Term, kept: set[Label]) -> _Term:
    """A term without the axes that nobody reads."""
    axes = [axis for axis, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in kept)
    return _Term(node.emit(relax.op.sum(term.value, axes)), labels)
