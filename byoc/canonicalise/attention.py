"""Bring scaled dot-product attention into one form.

    y = softmax(q k^T * scale + mask) v        [B, H, S, E] = softmax([B, H, S, T]) [B, H, T, E]

Exporters put the scale on the scores, on the query, on the key or on both, divide instead of
multiplying, transpose the key together with its heads, add the mask in two parts, and drop or fold
leading axes. PyTorch guards rows without a key, whose softmax is NaN, by looking for scores that
are all -inf; its exporter to ONNX writes ``where(isnan(w), 0, w)``.
What comes out is, in this order, with everything of rank 4:

    permute_dims(key, [0, 1, 3, 2])  matmul  [multiply]  [add]  softmax  [guard]  matmul

where the guard is isnan  where, or equal  astype  min  greater  where; the greatest score would not
do, as TVM's maximum of -inf alone is the lowest number.

``relax.nn.attention``, whose tensors are [B, S, H, D], is written in these operators as well. The
scale moves behind the product, which rounds differently; a mask of two parts is added up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

import numpy as np
from tvm import relax

from byoc.ir import pattern
from byoc.ir.algebra import fits_single
from byoc.ir.dataflow import (
    Block,
    Constant,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    scalar_of,
    shape_of,
)
from codegen_cc.dim import is_static
from codegen_cc.operators.attention import GUARD_KEYS, GUARD_NAN, GUARD_NONE

HEADS_FIRST = [0, 2, 1, 3]
KEY = [0, 1, 3, 2]


@dataclass
class Attention:
    """Operands of an attention; ``turned`` is the key with its last two axes swapped."""

    query: relax.Expr
    turned: relax.Expr
    value: relax.Expr
    scale: float = 1.0
    masks: list[relax.Expr] = field(default_factory=list)
    guarded: int = GUARD_NONE


def attention_in_pieces(block: Block) -> None:
    """Rewrite ``relax.nn.attention`` of known shape without a window, fp32.

    Rows of queries that a causal mask leaves no key are 0, as in PyTorch; by the formula, and in
    TVM, they are 0 / 0.
    """
    for var, call in block.calls("relax.nn.attention", "relax.nn.attention_bias"):
        shapes = [shape_of(argument) for argument in call.args]
        if None in shapes or call.attrs.window_size is not None or not is_kernel_float(var):
            continue
        masks, first = list(call.args[3:]), 0
        if call.attrs.causal_mask is not None:
            corner = str(call.attrs.causal_mask)
            if not is_static((shapes[0][1], shapes[1][1], shapes[0][-1])) or corner not in CORNERS:
                continue
            causal = causal_mask(shapes[0][1], shapes[1][1], corner)
            # Queries before ``first`` see no key; the rest of the mask has one in every row.
            first = int(np.isneginf(causal).all(1).sum())
            masks.append(constant(causal, dtype_of(var)))
            masks = [_rows_from(block, var, mask, first) for mask in masks]
        width = shapes[0][-1]
        scale = 1.0 / np.sqrt(width) if call.attrs.scale is None else float(call.attrs.scale)
        seen = call.args[0]
        if first:
            ends = [first], [shapes[0][1]]
            seen = block.emit(var, relax.op.strided_slice(seen, [1], *ends))
        query, key, value = (
            block.emit(var, relax.op.permute_dims(argument, HEADS_FIRST))
            for argument in (seen, *call.args[1:3])
        )
        turned = block.emit(var, relax.op.permute_dims(key, KEY))
        scores = block.emit(var, relax.op.matmul(query, turned))
        scores = block.emit(var, relax.op.multiply(scores, constant(scale, dtype_of(var))))
        for mask in masks:
            scores = block.emit(var, relax.op.add(scores, mask))
        weights = block.emit(var, relax.op.nn.softmax(scores, -1))
        result = block.emit(var, relax.op.matmul(weights, value))
        result = relax.op.permute_dims(result, HEADS_FIRST)
        if first:
            widths = [0, 0, first, 0, 0, 0, 0, 0]
            result = relax.op.nn.pad(block.emit(var, result), widths, "constant", 0.0)
        block.replace(var, result)


def _rows_from(block: Block, var: relax.Var, mask: relax.Expr, first: int) -> relax.Expr:
    """A mask without its rows before ``first``; one that is the same for every row stays."""
    axis = mask.ty.ndim - 2
    shape = shape_of(mask)
    if first == 0 or axis < 0 or shape[axis] == 1:
        return mask
    values = array_of(mask)
    if values is not None:
        return constant(values[..., first:, :], dtype_of(mask))
    return block.emit(var, relax.op.strided_slice(mask, [axis], [first], [shape[axis]]))


#: Corners that the diagonal of a causal mask may begin or end in.
CORNERS = ("TopLeft", "BottomRight")


def causal_mask(rows: int, columns: int, corner: str) -> np.ndarray:
    """[rows, columns]: 0 up to the diagonal through a corner, minus infinity behind it."""
    seen = np.tri(rows, columns, 0 if corner == "TopLeft" else columns - rows, dtype=bool)
    return np.where(seen, 0.0, -np.inf)


def attention_from_pieces(block: Block) -> None:
    """Rewrite products of a softmax of a product, fp32, of known shape."""
    for var, call in block.calls("relax.matmul"):
        found = _read(block, call) if is_kernel_float(var) else None
        if found is None or not _fits(found, shape_of(var)):
            continue
        _write(block, var, found)


def _read(block: Block, call: relax.Call) -> Attention | None:
    guarded, weights = _unguarded(block, call.args[0])
    softmax = block.call(weights, "relax.nn.softmax")
    if softmax is None or not (guarded or block.is_private(weights)):
        return None
    rank = call.args[0].ty.ndim
    if int(softmax.attrs.axis) not in (-1, rank - 1):
        return None
    scores, masks, scale = softmax.args[0], [], 1.0
    shape, twice = shape_of(scores), scores if guarded == GUARD_KEYS else None
    while scores is twice or block.is_private(scores):
        step = block.call(scores, "relax.add", "relax.multiply", "relax.divide")
        if step is None:
            break
        number = _scalar_step(step)
        if number is not None:
            scores, scale = number[0], scale * number[1]
        elif op_name(step) == "relax.add" and scale == 1.0 and len(masks) < 2:
            inner = _scores_of(block, step, shape)
            if inner is None:
                return None
            scores = inner
            masks.append(step.args[1] if step.args[0] == inner else step.args[0])
        else:
            return None
    product = block.call(scores, "relax.matmul")
    if guarded == GUARD_KEYS and not masks:
        return None  # rows without a key are those of masks
    if product is None or not block.is_private(scores) or shape_of(scores) != shape:
        return None
    query, turned, by_both = product.args[0], product.args[1], scale
    for side in (query, turned):
        step = block.call(side, "relax.multiply", "relax.divide")
        number = _scalar_step(step) if step is not None and block.is_private(side) else None
        if number is not None:
            by_both *= number[1]
            query, turned = (number[0] if x is side else x for x in (query, turned))
    if by_both == 0.0 or not fits_single(np.array(by_both)):
        return None
    return Attention(query, turned, call.args[1], by_both, masks, guarded)


_NAN = pattern.call("where", pattern.call("isnan", "weights"), 0.0, "weights")


def _is_over_keys(least: relax.Call) -> bool:
    """Whether a minimum is that of each row."""
    rank, axes = least.args[0].ty.ndim, least.attrs.axis
    over = [] if axes is None else [int(axis) % rank for axis in axes]
    return bool(least.attrs.keepdims) and over == [rank - 1]


_HIDDEN = pattern.call("astype", pattern.call("equal", "scores", float("-inf")))
_ALL = pattern.call("greater", pattern.call("min", _HIDDEN, where=_is_over_keys), 0.0)
_KEYS = pattern.call("where", _ALL, 0.0, "weights")


def _unguarded(block: Block, expr: relax.Expr) -> tuple[int, relax.Expr]:
    """The guard around weights, into which nothing else looks, and these."""
    for guard, wanted in ((GUARD_NAN, _NAN), (GUARD_KEYS, _KEYS)):
        found = pattern.find(block, expr, wanted) if block.is_private(expr) else None
        if found is None or shape_of(found["weights"]) != shape_of(expr):
            continue
        inside, readers = [found["weights"], *found.bindings[1:]], {*found.bindings}
        if (scores := found.get("scores")) is not None:
            softmax = block.call(found["weights"], "relax.nn.softmax")
            if softmax is None or softmax.args[0] != scores or scores not in block.values:
                continue
            inside, readers = [*inside, scores], {*readers, found["weights"]}
        if all(not block.is_fixed(var) and readers.issuperset(block.users(var)) for var in inside):
            return guard, found["weights"]
    return GUARD_NONE, expr


def _scalar_step(call: relax.Call) -> tuple[relax.Expr, float] | None:
    """``x`` and ``c`` of ``x * c``, ``c * x`` or ``x / c`` with one finite constant."""
    if op_name(call) == "relax.add":
        return None
    for side, source in enumerate(call.args):
        number = scalar_of(call.args[1 - side])
        if number is None or not isfinite(number) or shape_of(source) != shape_of(call):
            continue
        if op_name(call) == "relax.multiply":
            return source, number
        if side == 0 and number != 0.0:
            return source, 1.0 / number
    return None


def _scores_of(block: Block, added: relax.Call, shape: tuple[int, ...] | None) -> relax.Expr | None:
    """The operand of an addition that goes on to the product of query and key."""
    for side in added.args:
        current = side
        while block.is_private(current):
            step = block.call(current, "relax.add", "relax.multiply", "relax.divide")
            if step is None:
                break
            number = _scalar_step(step)
            current = number[0] if number is not None else step.args[0]
        if block.call(current, "relax.matmul") is not None and shape_of(side) == shape:
            return side
    return None


def _fits(found: Attention, shape: tuple[int, ...] | None) -> bool:
    """Whether leading axes are equal, and masks broadcast to the scores."""
    if isinstance(found.turned, Constant):
        return False  # a product with a constant, which is packed when compiling, is faster
    shapes = [shape_of(x) for x in (found.query, found.turned, found.value)]
    if shape is None or None in shapes or {len(s) for s in shapes} != {len(shape)}:
        return False
    lead = shape[:-2]
    if any(s[:-2] != lead or 0 in s for s in shapes) or len(shape) < 2:
        return False
    if len(lead) > 2 and found.masks:
        return False
    scores = (*lead, shapes[0][-2], shapes[1][-1])
    for mask in found.masks:
        extents = shape_of(mask)
        if extents is None or len(extents) > len(scores) or not is_kernel_float(mask):
            return False
        padded = (1,) * (len(scores) - len(extents)) + extents
        if any(m not in (1, n) for m, n in zip(padded, scores, strict=True)):
            return False
    return True


def _write(block: Block, var: relax.Var, found: Attention) -> None:
    query, key, value = (
        _of_rank_four(block, var, expr)
        for expr in (found.query, _key_of(block, var, found.turned), found.value)
    )
    scores = block.emit(
        var, relax.op.matmul(query, block.emit(var, relax.op.permute_dims(key, KEY)))
    )
    if found.scale != 1.0:
        scale = constant(found.scale, dtype_of(var))
        scores = block.emit(var, relax.op.multiply(scores, scale))
    if found.masks:
        masks = [_wide_mask(block, var, mask) for mask in found.masks]
        mask = masks[0] if len(masks) == 1 else _sum(block, var, *masks)
        scores = block.emit(var, relax.op.add(scores, mask))
    weights = block.emit(var, relax.op.nn.softmax(scores, 3))
    if found.guarded:
        if found.guarded == GUARD_NAN:
            hidden = relax.op.isnan(weights)
        else:
            hidden = block.emit(var, relax.op.equal(scores, constant(-np.inf, dtype_of(var))))
            hidden = block.emit(var, relax.op.astype(hidden, dtype_of(var)))
            hidden = block.emit(var, relax.op.min(hidden, 3, keepdims=True))
            hidden = relax.op.greater(hidden, constant(0.0, dtype_of(var)))
        hidden = block.emit(var, hidden)
        weights = block.emit(var, relax.op.where(hidden, constant(0.0, dtype_of(var)), weights))
    result = relax.op.matmul(weights, value)
    if var.ty.ndim != 4:
        result = relax.op.reshape(block.emit(var, result), var.ty.shape)
    block.replace(var, result)


def _key_of(block: Block, var: relax.Var, turned: relax.Expr) -> relax.Expr:
    """The key whose last two axes are swapped in ``turned``."""
    rank = len(shape_of(turned))
    swap = [*range(rank - 2), rank - 1, rank - 2]
    call = block.call(turned, "relax.permute_dims")
    if call is None or call.attrs.axes is None:
        return block.emit(var, relax.op.permute_dims(turned, swap))
    axes = [int(axis) % rank for axis in call.attrs.axes]
    axes = [axes[i] for i in swap]
    if axes == sorted(axes):
        return call.args[0]
    return block.emit(var, relax.op.permute_dims(call.args[0], axes))


def _of_rank_four(block: Block, var: relax.Var, expr: relax.Expr) -> relax.Expr:
    """Fold the leading axes into two, or add some."""
    *lead, rows, columns = expr.ty.shape.values
    if len(lead) == 2:
        return expr
    while len(lead) < 2:
        lead.insert(0, 1)
    while len(lead) > 2:
        lead[:2] = [lead[0] * lead[1]]
    return block.emit(var, relax.op.reshape(expr, [*lead, rows, columns]))


def _wide_mask(block: Block, var: relax.Var, mask: relax.Expr) -> relax.Expr:
    """Axes of extent 1 in front, up to rank 4."""
    values, rank = array_of(mask), mask.ty.ndim
    if rank == 4:
        return mask
    if values is not None:
        return constant(values.reshape((1,) * (4 - rank) + values.shape), dtype_of(mask))
    extents = [1] * (4 - rank) + list(mask.ty.shape.values)
    return block.emit(var, relax.op.reshape(mask, extents))


def _sum(block: Block, var: relax.Var, outer: relax.Expr, inner: relax.Expr) -> relax.Expr:
    known = [array_of(mask) for mask in (inner, outer)]
    if all(values is not None for values in known):
        with np.errstate(over="ignore"):
            return constant(known[0] + known[1], dtype_of(inner))
    return block.emit(var, relax.op.add(inner, outer))
