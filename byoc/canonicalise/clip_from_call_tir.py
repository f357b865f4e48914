"""Turn the importer's Clip back into an operator.

ONNX ``Clip`` is imported as ``call_tir`` of two loop nests that TVM calls ``maximum`` and
``minimum``. Names prove nothing, so the loop nest is read: it must store ``max(x[i], b)`` (or
min) for every element ``i`` of a tensor of the same shape, where ``b`` is a literal or a scalar
constant or variable. A pair of constants becomes ``clip``, ``max(x, 0)`` becomes ``relu``; one
bound alone, or a variable one, becomes ``maximum`` or ``minimum``. ``max(x, -inf)`` and
``min(x, inf)`` vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import (
    Block,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    scalar_of,
    shape_of,
)
from byoc.ir.loop_nest import is_at, read_store, source_of


@dataclass(frozen=True)
class Bound:
    """One side of a clip: ``kind`` is "max" or "min", ``value`` the constant or a variable."""

    kind: str
    source: relax.Expr
    value: float | relax.Expr


def clip_from_call_tir(block: Block) -> None:
    """Rewrite elementwise max/min loop nests, then join pairs of bounds."""
    for var, call in block.calls("relax.call_tir"):
        bound = _bound_of_call_tir(block, var, call)
        if bound is not None:
            _rewrite_bound(block, var, bound)
    for var, call in block.calls("relax.maximum", "relax.minimum"):
        _join(block, var, call)


def one_clip(block: Block) -> None:
    """Join clips from below and from above, in this order, into one."""
    for var, call in block.calls("relax.clip"):
        inner = block.call(call.args[0], "relax.clip")
        if (
            inner is None
            or not block.is_private(call.args[0])
            or not is_kernel_float(var, stored=True)
        ):
            continue
        (low, above), (below, high) = (
            [float(bound.value) for bound in clip.args[1:]] for clip in (inner, call)
        )
        if above == inf and below == -inf and low <= high:
            block.replace(var, relax.op.clip(inner.args[0], low, high))


def _rewrite_bound(block: Block, var: relax.Var, bound: Bound) -> None:
    operator = relax.op.maximum if bound.kind == "max" else relax.op.minimum
    if isinstance(bound.value, relax.Expr):
        block.replace(var, operator(bound.source, bound.value))
    elif isnan(bound.value) or bound.value == (-inf if bound.kind == "max" else inf):
        block.alias(var, bound.source)  # ONNX takes a NaN bound for none
    else:
        block.replace(var, operator(bound.source, constant(bound.value, dtype_of(var))))


def bound_of(block: Block, expr: relax.Expr) -> Bound | None:
    """Read ``maximum(x, c)`` or ``minimum(x, c)`` with a scalar constant on either side."""
    call = block.call(expr, "relax.maximum", "relax.minimum")
    if call is None or not is_kernel_float(call, stored=True):
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
    if len(call.args) != 2 or len(operands) not in (1, 2) or not is_kernel_float(var, stored=True):
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
    if literal is not None or dtype_of(operands[1]) != dtype_of(var):
        return None
    value = scalar_of(operands[1])
    return Bound(kind, source, operands[1] if value is None else value)


def elementwise_bound(
    func: tirx.PrimFunc, shape: tuple[int, ...]
) -> tuple[str, float | None] | None:
    """Tell whether a loop nest stores ``max`` or ``min`` of each element and one number.

    Returns the kind and the literal, or None for the literal if the number is the second,
    zero-dimensional parameter. Returns None if the function does anything else.
    """
    store = read_store(func)
    if store is None or store.extents != shape:
        return None
    value, params = store.value, store.params
    if not isinstance(value, tirx.Max | tirx.Min) or not _loads(value.a, params[0], store.axes):
        return None
    kind = "max" if isinstance(value, tirx.Max) else "min"
    if len(params) == 2 and isinstance(value.b, tirx.FloatImm):
        return kind, float(value.b.value)
    if len(params) == 3 and _loads(value.b, params[1], ()):
        return kind, None
    return None


def _loads(expr: tirx.Expr, buffer: tirx.Var, axes: tuple[tirx.Var, ...]) -> bool:
    source = source_of(expr)
    return source is not None and source.same_as(buffer) and is_at(expr.indices, axes)
