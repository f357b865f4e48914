"""Turn the importer's Clip back into an operator.

ONNX ``Clip`` is imported as ``call_tir`` of two loop nests that TVM calls ``maximum`` and
``minimum``. Names prove nothing, so the loop nest is read: it must store ``max(x[i], b)`` (or
min) for every element ``i`` of a tensor of the same shape, where ``b`` is a literal or a scalar
constant. The pair becomes ``clip``, ``max(x, 0)`` becomes ``relu``; one bound alone becomes
``maximum`` or ``minimum`` with a constant. ``max(x, -inf)`` and ``min(x, inf)`` vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

import numpy as np
import tvm
from tvm import relax, tirx

from ..dataflow import Block, constant, dtype_of, op_name, scalar_of, shape_of


@dataclass(frozen=True)
class Bound:
    """One side of a clip: ``kind`` is "max" or "min", ``value`` the constant."""

    kind: str
    source: relax.Expr
    value: float


def clip_from_call_tir(block: Block) -> None:
    """Rewrite elementwise max/min loop nests, then join pairs of bounds."""
    for var, call in block.calls("relax.call_tir"):
        bound = _bound_of_call_tir(block, var, call)
        if bound is not None:
            _rewrite_bound(block, var, bound)
    for var, call in block.calls("relax.maximum", "relax.minimum"):
        _join(block, var, call)


def _rewrite_bound(block: Block, var: relax.Var, bound: Bound) -> None:
    operator = relax.op.maximum if bound.kind == "max" else relax.op.minimum
    if isnan(bound.value) or bound.value == (-inf if bound.kind == "max" else inf):
        block.alias(var, bound.source)  # ONNX takes a NaN bound for none
    else:
        block.replace(var, operator(bound.source, constant(np.float32(bound.value))))


def bound_of(block: Block, expr: relax.Expr) -> Bound | None:
    """Read ``maximum(x, c)`` or ``minimum(x, c)`` with a scalar constant on either side."""
    call = block.call(expr, "relax.maximum", "relax.minimum")
    if call is None or dtype_of(call) != "float32":
        return None
    kind = "max" if op_name(call) == "relax.maximum" else "min"
    for source, other in (call.args, reversed(call.args)):
        value = scalar_of(other)
        if value is not None and shape_of(source) == shape_of(call):
            return Bound(kind, source, value)
    return None


def _join(block: Block, var: relax.Var, call: relax.Call) -> None:
    outer = bound_of(block, var)
    if outer is None:
        return
    inner = bound_of(block, outer.source) if block.is_private(outer.source) else None
    if inner is not None and inner.kind != outer.kind:
        low, high = (b.value for b in sorted((inner, outer), key=lambda b: b.kind))
        if low <= high and low != -inf and high != inf:
            block.replace(var, relax.op.clip(inner.source, low, high))
            return
    if outer.kind == "max" and outer.value == 0.0:
        readers = block.users(var)
        follower = bound_of(block, readers[0]) if len(readers) == 1 else None
        if follower is None or follower.kind == "max":
            block.replace(var, relax.op.nn.relu(outer.source))


def _bound_of_call_tir(block: Block, var: relax.Var, call: relax.Call) -> Bound | None:
    """Read ``call_tir(f, (x,))`` or ``call_tir(f, (x, c))``; None if it is anything else."""
    func = block.mod[call.args[0]] if isinstance(call.args[0], tvm.ir.GlobalVar) else None
    if not isinstance(func, tirx.PrimFunc) or not isinstance(call.args[1], relax.Tuple):
        return None
    operands = list(call.args[1].fields)
    if len(call.args) != 2 or len(operands) not in (1, 2) or dtype_of(var) != "float32":
        return None
    source = operands[0]
    if shape_of(source) is None or shape_of(source) != shape_of(var):
        return None
    found = elementwise_bound(func, shape_of(var))
    if found is None:
        return None
    kind, literal = found
    if len(operands) == 1:
        return None if literal is None else Bound(kind, source, literal)
    value = scalar_of(operands[1])
    return Bound(kind, source, value) if literal is None and value is not None else None


def elementwise_bound(
    func: tirx.PrimFunc, shape: tuple[int, ...]
) -> tuple[str, float | None] | None:
    """Tell whether a loop nest stores ``max`` or ``min`` of each element and one number.

    Returns the kind and the literal, or None for the literal if the number is the second,
    zero-dimensional parameter. Returns None if the function does anything else.
    """
    params = list(func.params)
    stmt = getattr(getattr(func.body, "block", None), "body", None)
    loops: list[tuple[tirx.Var, int]] = []
    while isinstance(stmt, tirx.For):
        if not isinstance(stmt.extent, tirx.IntImm) or int(stmt.min) != 0:
            return None
        loops.append((stmt.loop_var, int(stmt.extent)))
        stmt = stmt.body
    if tuple(extent for _, extent in loops) != shape or not hasattr(stmt, "block"):
        return None
    inner = stmt.block
    store, axes = inner.body, [axis.var for axis in inner.iter_vars]
    spatial = (
        len(axes) == len(loops)
        and all(v.same_as(var) for v, (var, _) in zip(stmt.iter_values, loops, strict=True))
        and inner.init is None
        and isinstance(store, tirx.BufferStore)
        and store.buffer.same_as(params[-1])
        and _is_at(store.indices, axes)
    )
    value = store.value if spatial else None
    if not isinstance(value, tirx.Max | tirx.Min) or not _loads(value.a, params[0], axes):
        return None
    kind = "max" if isinstance(value, tirx.Max) else "min"
    if len(params) == 2 and isinstance(value.b, tirx.FloatImm):
        return kind, float(value.b.value)
    if len(params) == 3 and _loads(value.b, params[1], []):
        return kind, None
    return None


def _is_at(indices: list[tirx.Expr], axes: list[tirx.Var]) -> bool:
    return len(indices) == len(axes) and all(
        index.same_as(axis) for index, axis in zip(indices, axes, strict=True)
    )


def _loads(expr: tirx.Expr, buffer: tirx.Var, axes: list[tirx.Var]) -> bool:
    source = getattr(expr, "source", None)
    return source is not None and source.same_as(buffer) and _is_at(expr.indices, axes)
