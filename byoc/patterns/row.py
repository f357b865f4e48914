"""What a row of the pattern table is, and what its builders share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from byoc.ir.dataflow import Constant, describe, describe_type, dtype_of, shape_in, shape_of
from codegen_cc.node import Node, Operand, Result
from codegen_cc.operator import is_operator, operator_of

#: Names of the steps that may follow an operator: a bias, an activation, a residual (of products of
#: matrices also a factor) and an activation, and of products of integers a quantisation after
#: either activation.
BIAS, ACTIVATION, RESIDUAL, REQUANTISE = "bias", "activation", "residual", "requantise"
FACTOR = "factor"


class Unfit(Exception):
    """A call has no node; the message says what was found and what is needed."""


@dataclass(frozen=True)
class Candidate:
    """A node and the expressions of its operands, in the same order."""

    node: Node
    arguments: tuple[relax.Expr, ...]


@dataclass(frozen=True)
class Row:
    """One row: the Relax operator at the root, the builder of its node, the node's operator.

    ``op`` is empty for a builder of a user's, which may give nodes of any operator.
    """

    root: str
    build: Callable[[relax.Call], Candidate]
    op: str

    @property
    def epilogue(self) -> tuple[str, ...]:
        """The steps that may follow; none for an operator that nobody has registered."""
        return operator_of(self.op).epilogue if is_operator(self.op) else ()


def tensor(expr: relax.Expr, role: str) -> Operand:
    """Describe an operand of known shape, whatever its dtype. Raises ``Unfit`` for others."""
    shape = shape_of(expr)
    if not isinstance(expr, relax.Var | Constant):
        raise Unfit(f"{role} is {type(expr).__name__}; need a tensor")
    if shape is None:
        raise Unfit(f"{role} is {describe(expr)}; need a known shape")
    return Operand(role, shape, dtype_of(expr), isinstance(expr, Constant))


def candidate(
    op: str,
    call: relax.Call,
    operands: Iterable[tuple[str, relax.Expr]],
    attrs: dict[str, Any] | None = None,
) -> Candidate:
    """Build a candidate from roles and expressions.

    Which dtypes can be computed is for the libraries to say. Raises ``Unfit`` where a shape is not
    known.
    """
    pairs = tuple(operands)
    described = tuple(tensor(expr, role) for role, expr in pairs)
    first, *further = results_of(call)
    node = Node(op, described, first.shape, first.dtype, attrs or {}, further=tuple(further))
    return Candidate(node, tuple(expr for _, expr in pairs))


def plain_row(root: str, op: str, *roles: str, **attrs: Any) -> Row:
    """The row of an operator whose first arguments have these roles, and its node these attributes.

    What else the call says is in the shape and the dtype of its result.
    """

    def build(call: relax.Call) -> Candidate:
        return candidate(op, call, zip(roles, call.args, strict=False), dict(attrs))

    return Row(root, build, op)


def results_of(call: relax.Call) -> tuple[Result, ...]:
    """Every result of a call: one, or those in a tuple. Raises ``Unfit`` for an unknown shape."""
    several = isinstance(call.ty, relax.TupleType)
    return tuple(_result(ty) for ty in (call.ty.fields if several else [call.ty]))


def _result(ty: tvm.ir.Type) -> Result:
    shape = shape_in(ty)
    if shape is None:
        raise Unfit(f"result is {describe_type(ty)}; need a known shape")
    return Result(shape, str(ty.dtype))


def integers(values: Iterable[Any]) -> list[int]:
    """Plain integers from TVM's."""
    return [int(value) for value in values]


def positive_axis(axis: Any, expr: relax.Expr) -> int:
    """An axis of a tensor counted from the front. Raises ``Unfit`` where there is none."""
    rank = int(getattr(expr.ty, "ndim", 0))
    if axis is None or rank < 1:
        raise Unfit(f"axis {axis} of {describe(expr)}; need a number and a rank of 1 at least")
    return int(axis) % rank


def positive_axes(axes: Iterable[Any], expr: relax.Expr) -> list[int]:
    """Axes of a tensor counted from the front, sorted. Raises ``Unfit`` where there are none."""
    return sorted(positive_axis(axis, expr) for axis in axes)


def all_sides(padding: Iterable[Any], axes: int) -> list[int]:
    """Padding before each of the axes, then after each, from one number, one per axis, or all."""
    sides = integers(padding)
    return sides * (2 * axes // len(sides))


def four_sides(padding: Iterable[Any]) -> list[int]:
    """Padding as top, left, bottom, right."""
    return all_sides(padding, 2)


def need_layout(name: str, found: str, needed: str) -> None:
    """Raise ``Unfit`` unless a layout attribute is the needed one (empty means the default)."""
    if found not in (needed, ""):
        raise Unfit(f"{name} {found}; need {needed}")
