"""Keep operands away from the values on which TVM's code kills the process or leaves its memory.

Integers, as NumPy gives them, and with it ONNX's reference evaluator:

    a / b = (a / d) * (b != 0)        d = 1 where b is 0, or b is -1 and a the least integer; else b
    a % b = a % d                     d = 1 where b is 0 or -1; else b

The quotient is multiplied, not chosen: within one loop TVM may simplify the side of a choice by its
condition, here ``d`` to ``b``, and computes both sides.

Indices that lie outside of an axis mean its nearest element; TVM's ``take`` has a mode for that.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.partition.dataflow import Block, Var, array_of, dtype_of, op_name, shape_of, typed
from codegen_cc.dim import is_static

QUOTIENTS = ("relax.divide", "relax.floor_divide")
REMAINDERS = ("relax.mod", "relax.floor_mod")

#: The least index of an axis. Only ``scatter_elements`` counts negative ones from the end.
INDEXED = {
    "relax.gather_elements": 0,
    "relax.gather_nd": 0,
    "relax.scatter_elements": -1,
    "relax.scatter_nd": 0,
}


def no_division_by_zero(block: Block) -> None:
    """Rewrite divisions of integers whose divisor may be 0, or -1 where a sign is possible."""
    for var, call in block.calls(*QUOTIENTS, *REMAINDERS):
        dtype = dtype_of(var)
        value, divisor = call.args
        if not dtype.startswith(("int", "uint")) or not isinstance(divisor.ty, relax.TensorType):
            continue
        known = array_of(divisor)
        signed = dtype.startswith("int")
        if known is not None and not ((known == 0) | (signed & (known == -1))).any():
            continue
        if known is None and _is_safe(block, divisor):
            continue

        def number(n: int, dtype: str = dtype) -> relax.Expr:
            return relax.const(np.asarray(n, dtype), dtype)

        bad = block.emit(var, relax.op.equal(divisor, number(0)))
        if signed:
            minus = block.emit(var, relax.op.equal(divisor, number(-1)))
            if op_name(call) in QUOTIENTS:
                # TVM holds that no number of 32 bits equals the least one.
                flipped = relax.op.bitwise_xor(value, number(np.iinfo(dtype).max))
                least = relax.op.equal(block.emit(var, flipped), number(-1))
                least = block.emit(var, least)
                minus = block.emit(var, relax.op.logical_and(minus, least))
            bad = block.emit(var, relax.op.logical_or(bad, minus))
        safe = block.emit(var, relax.op.where(bad, number(1), divisor))
        operator = getattr(relax.op, op_name(call).removeprefix("relax."))
        if op_name(call) in REMAINDERS:
            block.replace(var, operator(value, safe))
            continue
        some = block.emit(var, relax.op.not_equal(divisor, number(0)))
        some = block.emit(var, relax.op.astype(some, dtype))
        block.replace(var, relax.op.multiply(block.emit(var, operator(value, safe)), some))


def _is_safe(block: Block, divisor: relax.Expr) -> bool:
    """Whether it is one that this rule made."""
    chosen = block.call(divisor, "relax.where")
    one = None if chosen is None else array_of(chosen.args[1])
    bad = None if chosen is None else block.call(chosen.args[0], "relax.equal", "relax.logical_or")
    return one is not None and bad is not None and one.ndim == 0 and one == 1


def no_index_out_of_bounds(block: Block) -> None:
    """Rewrite indexing that TVM does not check."""
    for var, call in block.calls("relax.take"):
        if call.attrs.mode == "fast":
            axis = None if call.attrs.axis is None else int(call.attrs.axis)
            block.replace(var, relax.op.take(*call.args, axis=axis, mode="clip"))
    for var, call in block.calls(*INDEXED):
        source, _, *rest = call.args
        clamped = _clamped(block, var, call)
        if clamped is None:
            continue
        name, attrs = op_name(call), call.attrs
        if name == "relax.gather_elements":
            result = relax.op.gather_elements(source, clamped, int(attrs.axis))
        elif name == "relax.gather_nd":
            result = relax.op.gather_nd(source, clamped, int(attrs.batch_dims))
        elif name == "relax.scatter_elements":
            axis, reduction = int(attrs.axis), str(attrs.reduction)
            result = relax.op.scatter_elements(source, clamped, *rest, axis, reduction)
        else:
            result = relax.op.scatter_nd(source, clamped, *rest, str(attrs.reduction))
        block.replace(var, result)


def _clamped(block: Block, var: Var, call: relax.Call) -> relax.Expr | None:
    """The indices of a call within their axes; None where they are so, or no extent is known."""
    source, indices = call.args[:2]
    shape, dtype = shape_of(source), dtype_of(indices)
    of = shape_of(indices)
    if shape is None or of is None:
        return None
    if op_name(call).endswith("elements"):
        axis = int(call.attrs.axis) % len(shape)
        axes = slice(axis, axis + 1)
    elif isinstance(of[-1], int):
        first = int(call.attrs.batch_dims) if op_name(call) == "relax.gather_nd" else 0
        axes = slice(first, first + of[-1])
    else:
        return None
    downward = INDEXED[op_name(call)]
    known = array_of(indices)
    if is_static(shape[axes]):
        extents = np.array(shape[axes], np.int64)
        if known is not None and ((known >= downward * extents) & (known < extents)).all():
            return None
        bounds = (downward * extents, extents - 1)
        limits = np.iinfo(dtype)  # what indices of few bits cannot reach bounds nothing
        lower, upper = (
            relax.const(np.clip(bound, limits.min, limits.max).astype(dtype), dtype)
            for bound in bounds
        )
    elif dtype not in ("int32", "int64"):
        return None
    else:
        values = list(source.ty.shape.values)[axes]
        extents = block.emit(var, relax.op.shape_to_tensor(typed(relax.ShapeExpr(values))))
        extents = block.emit(var, relax.op.astype(extents, dtype))
        upper = block.emit(var, relax.op.subtract(extents, relax.const(1, dtype)))
        lower = relax.const(0, dtype)
        if downward:
            lower = block.emit(var, relax.op.subtract(lower, extents))
    inside = block.emit(var, relax.op.minimum(indices, upper))
    return block.emit(var, relax.op.maximum(inside, lower))
