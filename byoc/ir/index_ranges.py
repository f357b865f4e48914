"""What is known of indices from how they are made, whatever the inputs are.

    coordinates of scatter_nd: concat(part, ..., axis=-1), one part of extent 1 for each coordinate

Numbers of constants and of ``arange`` are known; a maximum is at least what one of its operands is,
a minimum at most. Axes are symbolic, and so are ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax

from byoc.ir.dataflow import Expr, array_of, op_name, shape_of
from codegen_cc.dim import Dim, at_most, same
from codegen_cc.region.relax_dims import relax_dims

#: Operators whose result has the numbers of their first operand.
_SAME_NUMBERS = (
    *("relax.broadcast_to", "relax.reshape", "relax.expand_dims", "relax.squeeze"),
    "relax.permute_dims",
)

#: What a variable is bound to; None where that is not known.
ValueOf = Callable[[relax.Var], Expr | None]


@dataclass(frozen=True)
class Range:
    """Numbers that are at least each of ``lows``, and at most each of ``highs``."""

    lows: tuple[Dim, ...] = ()
    highs: tuple[Dim, ...] = ()

    def is_within(self, extent: Dim) -> bool:
        """Whether all are 0 to ``extent`` - 1."""
        return self.is_natural() and any(at_most(high + 1, extent) for high in self.highs)

    def is_natural(self) -> bool:
        """Whether none is below 0."""
        return any(at_most(0, low) for low in self.lows)


def coordinates(indices: Expr, value_of: ValueOf) -> list[Range]:
    """What is known of each coordinate along the last axis of indices."""
    shape = shape_of(indices)
    if not shape or not isinstance(shape[-1], int):
        return []
    value, axis = _value(indices, value_of), len(shape) - 1
    known = array_of(value)
    if known is not None:
        return [_of_array(known[..., place]) for place in range(shape[-1])]
    if op_name(value) == "relax.take" and value.attrs.axis is not None:
        picked = array_of(value.args[1])
        if int(value.attrs.axis) % len(shape) == axis and picked is not None:
            found = coordinates(value.args[0], value_of)
            return [found[int(place)] for place in picked.reshape(-1)] if found else []
    if op_name(value) == "relax.concat" and int(value.attrs.axis or 0) % len(shape) == axis:
        parts = _value(value.args[0], value_of)
        if isinstance(parts, relax.Tuple) and all(
            same(shape_of(part)[-1], 1) for part in parts.fields
        ):
            return [_range(part, value_of) for part in parts.fields]
    return [Range()] * shape[-1]


def are_within(indices: Expr, extents: Sequence[Dim], value_of: ValueOf) -> bool:
    """Whether every coordinate is a place along its axis."""
    found = coordinates(indices, value_of)
    return len(found) == len(extents) > 0 and all(
        part.is_within(extent) for part, extent in zip(found, extents, strict=True)
    )


def _value(expr: Expr, value_of: ValueOf) -> Expr:
    while isinstance(expr, relax.Var) and (value := value_of(expr)) is not None:
        expr = value
    return expr


def _range(expr: Expr, value_of: ValueOf) -> Range:
    value = _value(expr, value_of)
    known, name = array_of(value), op_name(value)
    if known is not None:
        return _of_array(known)
    if name in _SAME_NUMBERS:
        return _range(value.args[0], value_of)
    if name == "relax.arange":
        return _of_arange(value)
    if name == "relax.strided_slice":
        return _of_part(value, value_of)
    if name not in ("relax.maximum", "relax.minimum"):
        return Range()
    one, other = (_range(argument, value_of) for argument in value.args)
    if name == "relax.maximum":
        return Range(one.lows + other.lows, _beyond(one.highs, other.highs, at_most))
    return Range(_beyond(one.lows, other.lows, lambda a, b: at_most(b, a)), one.highs + other.highs)


def _beyond(
    one: tuple[Dim, ...], other: tuple[Dim, ...], inside: Callable[[Dim, Dim], bool | None]
) -> tuple[Dim, ...]:
    """The bounds of one side that bound the other as well."""
    pairs = ((one, other), (other, one))
    return tuple(a for mine, others in pairs for a in mine if any(inside(b, a) for b in others))


def _of_array(values: object) -> Range:
    if values.size == 0 or values.dtype.kind not in "iu":
        return Range()
    return Range((int(values.min()),), (int(values.max()),))


def _of_arange(call: relax.Call) -> Range:
    """Whole numbers from the first to below the last argument, one after another."""
    start, end, step = relax_dims(call.args)
    return Range((start,), (end - 1,)) if step == 1 else Range()


def _of_part(call: relax.Call, value_of: ValueOf) -> Range:
    """Those of ``arange`` from a place up to another."""
    source = _value(call.args[0], value_of)
    bounds = [_value(part, value_of) for part in call.args[2:4]]
    if op_name(source) != "relax.arange" or not all(isinstance(b, relax.Tuple) for b in bounds):
        return Range()
    first, (begin,), (end,) = _of_arange(source), *(relax_dims(b.fields) for b in bounds)
    lows = tuple(low + begin for low in first.lows)
    return Range(lows, (*first.highs, *(low + end - 1 for low in first.lows)))
