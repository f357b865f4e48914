"""Nodes of several operators and several operands.

    attention(q, k, v, mask) = softmax(q k^T * scale + mask) v      as canonicalisation writes it
    prelu(x, slope)          = where(x < 0, x * slope, x)
    take(x, i)               = take(x, where(i < 0, i + n, i))      n: the axis' extent
    cumsum(x, reverse)       = take(cumsum(take(x, r)), r)          r: n - 1, ..., 1, 0
    lrn(x)                   = x / (alpha mean(x x) + bias)^beta    mean: a pool of channels

The composite keeps the pieces. Everything inside must be read by nothing else, or the operators
stay single. Each reader below gets the last binding and returns the group that ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from byoc.ir.dataflow import (
    Block,
    array_of,
    dtype_of,
    op_name,
    scalar_of,
    shape_of,
)
from byoc.patterns.indexing import build_cumsum, build_take
from byoc.patterns.row import Candidate, Unfit, tensor
from codegen_cc.node import Node


@dataclass(frozen=True)
class Group:
    """A node and the bindings that it stands for, in order."""

    candidate: Candidate
    bindings: tuple[relax.Var, ...]


#: What a reader finds: the candidate, and the bindings inside in any order, without the last.
Found = tuple[Candidate, tuple[relax.Expr, ...]]


def find_groups(block: Block) -> list[Group]:
    """All groups of a block that nothing else looks into."""
    position = {var: i for i, var in enumerate(block.ordered())}
    groups: list[Group] = []
    for var, call in block.calls(*READERS):
        try:
            found = READERS[op_name(call)](block, var, call)
        except Unfit:
            continue
        if found is None:
            continue
        inside = sorted({*found[1], var}, key=position.__getitem__)
        if _is_closed(block, tuple(inside)):
            groups.append(Group(found[0], tuple(inside)))
    return groups


def _is_closed(block: Block, bindings: tuple[relax.Var, ...]) -> bool:
    inside = set(bindings)
    return all(
        not block.is_fixed(var) and inside.issuperset(block.users(var)) for var in bindings[:-1]
    )


def _attention(block: Block, var: relax.Var, call: relax.Call) -> Found | None:
    """Rank 4 throughout; scale a constant, mask broadcastable to the scores."""
    softmax = block.call(call.args[0], "relax.nn.softmax")
    if softmax is None or int(softmax.attrs.axis) not in (-1, 3) or call.args[0].ty.ndim != 4:
        return None
    inside = [call.args[0]]
    scores, mask, scale = softmax.args[0], None, 1.0
    added = block.call(scores, "relax.add")
    if added is not None:
        inside.append(scores)
        scores, mask = added.args
    scaled = block.call(scores, "relax.multiply")
    if scaled is not None:
        inside.append(scores)
        scores, scale = scaled.args[0], scalar_of(scaled.args[1])
    product = block.call(scores, "relax.matmul")
    turned = block.call(product.args[1], "relax.permute_dims") if product is not None else None
    if turned is None or scale is None or not np.isfinite(scale):
        return None
    if turned.attrs.axes is None or [int(axis) for axis in turned.attrs.axes] != [0, 1, 3, 2]:
        return None
    inside += [scores, product.args[1]]
    roles = {"query": product.args[0], "key": turned.args[0], "value": call.args[1]}
    operands = [tensor(expr, role) for role, expr in roles.items()]
    outer = operands[0].shape[:2]
    if len(outer) != 2 or any(len(o.shape) != 4 or o.shape[:2] != outer for o in operands):
        return None
    if mask is not None:
        if shape_of(scores) != shape_of(call.args[0]):
            return None  # the mask would widen the scores
        roles["mask"] = mask
        operands.append(tensor(mask, "mask"))
    shape = shape_of(var)
    if shape is None:
        return None
    node = Node("attention", tuple(operands), shape, dtype_of(var), {"scale": float(scale)})
    return Candidate(node, tuple(roles.values())), tuple(inside)


def _prelu(block: Block, var: relax.Var, call: relax.Call) -> Found | None:
    condition, scaled, source = call.args
    test = block.call(condition, "relax.less")
    if test is None:  # PyTorch asks for x > 0, which is the same but for 0 times a negative slope
        test = block.call(condition, "relax.greater")
        scaled, source = source, scaled
    product = block.call(scaled, "relax.multiply")
    if test is None or product is None or test.args[0] != source or scalar_of(test.args[1]) != 0.0:
        return None
    slopes = [side for side in product.args if side != source]
    if op_name(test) == "relax.greater":
        known = array_of(slopes[0]) if slopes else None
        if known is None or not (np.isfinite(known) & ~np.signbit(known)).all():
            return None
    if len(slopes) != 1 or source not in tuple(product.args) or shape_of(source) != shape_of(var):
        return None
    operands = (tensor(source, "lhs"), tensor(slopes[0], "rhs"))
    node = Node("binary", operands, shape_of(var), dtype_of(var), {"kind": "prelu"})
    return Candidate(node, (source, slopes[0])), (condition, scaled)


def _take(block: Block, var: relax.Var, call: relax.Call) -> Found | None:
    """``take`` of wrapped negative indices, and the end of a reversed ``cumsum``."""
    return _reversed_cumsum(block, call) or _wrapped_take(block, call)


def _wrapped_take(block: Block, call: relax.Call) -> Found | None:
    chosen = block.call(call.args[1], "relax.where")
    if chosen is None or call.attrs.axis is None:
        return None
    condition, wrapped, indices = chosen.args
    less = block.call(condition, "relax.less")
    added = block.call(wrapped, "relax.add")
    shape = shape_of(call.args[0])
    if less is None or added is None or not shape:
        return None
    if less.args[0] != indices or scalar_of(less.args[1]) != 0.0:
        return None
    extent = shape[int(call.attrs.axis) % len(shape)]
    if added.args[0] != indices or scalar_of(added.args[1]) != extent:
        return None
    found = build_take(call)  # describes the wrapped indices, which have the same type
    if shape_of(indices) != shape_of(call.args[1]):
        return None
    operands = (found.node.operands[0], tensor(indices, "indices"))
    node = Node("take", operands, found.node.shape, found.node.dtype, found.node.attrs)
    return Candidate(node, (call.args[0], indices)), (call.args[1], condition, wrapped)


def _reversed_cumsum(block: Block, call: relax.Call) -> Found | None:
    sums = block.call(call.args[0], "relax.cumsum")
    first = block.call(sums.args[0], "relax.take") if sums is not None else None
    if first is None or sums.attrs.axis is None or call.attrs.axis is None:
        return None
    shape = shape_of(first.args[0])
    if not shape or first.attrs.axis is None:
        return None
    axes = {int(c.attrs.axis) % len(shape) for c in (call, sums, first)}
    if len(axes) != 1 or not all(_reverses(c, shape[min(axes)]) for c in (call, first)):
        return None
    found = build_cumsum(sums, reverse=True)
    source = first.args[0]
    node = replace(found.node, operands=(tensor(source, "input"),))
    return Candidate(node, (source,)), (call.args[0], sums.args[0])


def _reverses(take: relax.Call, extent: int) -> bool:
    indices = array_of(take.args[1])
    if indices is None or not isinstance(extent, int):
        return False
    return indices.shape == (extent,) and (indices == np.arange(extent)[::-1]).all()


def _lrn(block: Block, var: relax.Var, call: relax.Call) -> Found | None:
    """A factor or exponent of 1 and a bias of 0 may have been left out."""
    image, value = call.args
    inside: list[relax.Expr] = []
    numbers = {"beta": 1.0, "bias": 0.0, "alpha": 1.0}
    steps = {"beta": "relax.power", "bias": "relax.add", "alpha": "relax.multiply"}
    for name, operator in steps.items():
        step = block.call(value, operator)
        number = scalar_of(step.args[1]) if step is not None else None
        if number is not None:
            inside.append(value)
            value, numbers[name] = step.args[0], number
    window = _mean_of_channels(block, value)
    if window is None:
        return None
    size, squares, pooled = window
    square = block.call(squares, "relax.multiply")
    if square is None or tuple(square.args) != (image, image):
        return None
    operand = tensor(image, "input")
    attrs = {"axis": 1, "size": size, **numbers}
    node = Node("lrn", (operand,), operand.shape, operand.dtype, attrs)
    return Candidate(node, (image,)), (*inside, *pooled, squares)


def _mean_of_channels(
    block: Block, value: relax.Expr
) -> tuple[int, relax.Expr, tuple[relax.Expr, ...]] | None:
    """How many channels are averaged, of what, and the bindings that do so.

    They are a pool of a line of faces, as the importer writes it, or of a face of lines.
    """
    back = block.call(value, "relax.squeeze", "relax.reshape")
    pool = block.call(back.args[0], *_MEANS) if back is not None else None
    there = (
        block.call(pool.args[0], "relax.expand_dims", "relax.reshape") if pool is not None else None
    )
    shapes = (shape_of(there.args[0]), shape_of(value)) if there is not None else ((), ())
    if there is None or not shapes[0] or shapes[0] != shapes[1]:
        return None
    attrs, line = pool.attrs, shape_of(pool.args[0])
    size, *others = (int(extent) for extent in attrs.pool_size)
    windows = [*others, *map(int, attrs.strides), *map(int, attrs.dilation)]
    padding = [int(side) for side in attrs.padding]
    sides = len(padding) // 2
    plain = set(windows) == {1} and not any([*padding[1:sides], *padding[sides + 1 :]])
    if not plain or attrs.ceil_mode or not attrs.count_include_pad:
        return None
    if (padding[0], padding[sides]) != ((size - 1) // 2, size // 2):
        return None
    if line is None or line[:3] != (shapes[0][0], 1, shapes[0][1]):
        return None
    return size, there.args[0], (value, back.args[0], pool.args[0])


#: Pools whose first window is one of channels.
_MEANS = ("relax.nn.avg_pool2d", "relax.nn.avg_pool3d")

READERS: dict[str, Callable[[Block, relax.Var, relax.Call], Found | None]] = {
    "relax.matmul": _attention,
    "relax.where": _prelu,
    "relax.take": _take,
    "relax.divide": _lrn,
}
