"""Nodes of several operators and several operands.

    attention(q, k, v, mask) = softmax(q k^T * scale + mask) v      as canonicalisation writes it
    the same, guarded        = where(isnan(w), 0, w) v              w: that softmax
                             = where(min(s = -inf) > 0, 0, w) v     s: what it is of
    prelu(x, slope)          = where(x < 0, x * slope, x)
    take(x, i)               = take(x, where(i < 0, i + n, i))      n: the axis' extent
    cumsum(x, reverse)       = take(cumsum(take(x, r)), r)          r: n - 1, ..., 0; so cumprod
    lrn(x)                   = x / (alpha mean(x x) + bias)^beta    mean: a pool of channels
    dynamic_quantize(x)      = quantize(x, scale, zero), scale, zero        both from x's range
    rotary(x, c, s)          = x c + concat(-second, first) s               see ``patterns.rotary``
    distances(x, y)          = sum((x [n, d, 1] - y [1, d, m])^2, 1)  see ``patterns.distances``
    reduce(x, sum_squares)   = sum(x x); so mean_squares
    cast(x)                  = astype(where(|x| < inf, x, 0)), once or twice: a float to integers
    grouped_matmul(x, g, w)  = where(g = 1, x w1, where(g = 0, x w0, 0))

The composite keeps the pieces. What is inside and no result must be read by nothing else, or the
operators stay single. Each reader below gets the last binding and returns the group that ends
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, array_of, dtype_of, op_name, shape_of
from byoc.ir.pattern import Found as Match
from byoc.ir.pattern import Number, call, either, find, times
from byoc.patterns.distances import Distances, distances
from byoc.patterns.grouped_matmul import Grouped, grouped_matmul
from byoc.patterns.indexing import build_running
from byoc.patterns.reduction import build_reduce_squares
from byoc.patterns.rotary import Rotary, rotary_of_halves, rotary_of_rows
from byoc.patterns.row import Candidate, Unfit, tensor
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node, Result
from codegen_cc.operators.attention import GUARD_KEYS, GUARD_NAN, GUARD_NONE


@dataclass(frozen=True)
class Group:
    """A node, the bindings that it stands for, in order, and those that are its results.

    The last binding is the first result; further ones are read by nothing outside that comes
    before it.
    """

    candidate: Candidate
    bindings: tuple[relax.Var, ...]
    results: tuple[relax.Var, ...]


class Found(NamedTuple):
    """What a reader finds: the candidate, its bindings in any order, results behind the first."""

    candidate: Candidate
    bindings: tuple[relax.Expr, ...]
    further: tuple[relax.Var, ...] = ()


def find_groups(block: Block) -> list[Group]:
    """All groups of a block that nothing else looks into."""
    position = {var: i for i, var in enumerate(block.ordered())}
    groups: list[Group] = []
    for var, last in block.calls(*READERS):
        try:
            found = READERS[op_name(last)](block, var)
        except Unfit:
            continue
        if found is None:
            continue
        inside = sorted({*found.bindings, var}, key=position.__getitem__)
        group = Group(found.candidate, tuple(inside), (var, *found.further))
        if _is_closed(block, group, position):
            groups.append(group)
    return groups


def _is_closed(block: Block, group: Group, position: Mapping[relax.Var, int]) -> bool:
    inside, last = set(group.bindings), group.bindings[-1]
    for var in group.bindings[:-1]:
        outside = [user for user in block.users(var) if user not in inside]
        if var in group.results:
            if any(position[user] < position[last] for user in outside):
                return False
        elif outside or block.is_fixed(var):
            return False
    return True


def _is_turned(permuted: relax.Call) -> bool:
    axes = permuted.attrs.axes
    return axes is not None and [int(axis) for axis in axes] == [0, 1, 3, 2]


def _is_of_rows(least: relax.Call) -> bool:
    axes = least.attrs.axis
    return axes is not None and [int(a) for a in axes] in ([-1], [3]) and least.attrs.keepdims


_PRODUCT = call("matmul", "query", call("permute_dims", "key", where=_is_turned), name="product")
_SCALED = either(call("multiply", _PRODUCT, Number("scale")), _PRODUCT)
_SOFTMAX = call(
    "nn.softmax",
    either(call("add", _SCALED, "mask", name="scores"), _SCALED),
    where=lambda softmax: int(softmax.attrs.axis) in (-1, 3) and softmax.ty.ndim == 4,
    name="weights",
)
_NAN = call("where", call("isnan", _SOFTMAX), 0.0, "weights", name="nan")
_HIDDEN = call("astype", call("equal", "scores", float("-inf")))
_ALL = call("greater", call("min", _HIDDEN, where=_is_of_rows), 0.0)
_KEYS = call("where", _ALL, 0.0, _SOFTMAX, name="keys")
ATTENTION = call("matmul", either(_NAN, _KEYS, _SOFTMAX), "value")


def _attention(block: Block, var: relax.Var) -> Found | None:
    """Rank 4 throughout; scale a constant, mask broadcastable to the scores."""
    found = find(block, var, ATTENTION)
    scale = 0.0 if found is None else found.numbers.get("scale", 1.0)
    if found is None or not np.isfinite(scale):
        return None
    roles = {role: found[role] for role in ("query", "key", "value")}
    operands = [tensor(expr, role) for role, expr in roles.items()]
    outer = operands[0].shape[:2]
    if len(outer) != 2 or any(len(o.shape) != 4 or o.shape[:2] != outer for o in operands):
        return None
    if (mask := found.get("mask")) is not None:
        if shape_of(found["product"]) != shape_of(found["weights"]):
            return None  # the mask would widen the scores
        roles["mask"] = mask
        operands.append(tensor(mask, "mask"))
    shape = shape_of(var)
    if shape is None:
        return None
    guards = {"nan": GUARD_NAN, "keys": GUARD_KEYS}
    guarded = next((guards[name] for name in guards if found.get(name) is not None), GUARD_NONE)
    attrs = {"scale": scale, "guarded": guarded}
    node = Node("attention", tuple(operands), shape, dtype_of(var), attrs)
    return Found(Candidate(node, tuple(roles.values())), found.bindings)


PRELU = either(
    call("where", call("less", "x", 0.0), times("x", "slope"), "x"),
    # PyTorch asks for x > 0, which is the same but for 0 times a negative slope.
    call("where", call("greater", "x", 0.0, name="above"), "x", times("x", "slope")),
)


def _prelu(block: Block, var: relax.Var) -> Found | None:
    found = find(block, var, PRELU)
    if found is None:
        return None
    source, slope = found["x"], found["slope"]
    if found.get("above") is not None:
        known = array_of(slope)
        if known is None or not (np.isfinite(known) & ~np.signbit(known)).all():
            return None
    if slope == source or shape_of(source) != shape_of(var):
        return None
    operands = (tensor(source, "lhs"), tensor(slope, "rhs"))
    node = Node("binary", operands, shape_of(var), dtype_of(var), {"kind": "prelu"})
    return Found(Candidate(node, (source, slope)), found.bindings)


REVERSED = call("take", call("cumsum cumprod", call("take", "x", name="first"), name="sums"))


def _reversed(block: Block, var: relax.Var) -> Found | None:
    """The end of a reversed ``cumsum`` or ``cumprod``."""
    found = find(block, var, REVERSED)
    shape = None if found is None else shape_of(found["x"])
    if not shape:
        return None
    last, sums, first = (block.values[v] for v in (var, found["sums"], found["first"]))
    if any(c.attrs.axis is None for c in (last, sums, first)):
        return None
    axes = {int(c.attrs.axis) % len(shape) for c in (last, sums, first)}
    if len(axes) != 1 or not all(_reverses(c, shape[min(axes)]) for c in (last, first)):
        return None
    source = found["x"]
    node = replace(build_running(sums, reverse=True).node, operands=(tensor(source, "input"),))
    return Found(Candidate(node, (source,)), found.bindings)


def _reverses(take: relax.Call, extent: int) -> bool:
    indices = array_of(take.args[1])
    if indices is None or not isinstance(extent, int):
        return False
    return indices.shape == (extent,) and (indices == np.arange(extent)[::-1]).all()


#: A pool of a line of faces, as the importer writes it, or of a face of lines.
_LINE = call("expand_dims reshape", call("multiply", "x", "x", name="squares"), name="line")
_MEAN = call(
    "squeeze reshape", call("nn.avg_pool2d nn.avg_pool3d", _LINE, name="pool"), name="mean"
)
_TIMES_ALPHA = either(call("multiply", _MEAN, Number("alpha")), _MEAN)
_PLUS_BIAS = either(call("add", _TIMES_ALPHA, Number("bias")), _TIMES_ALPHA)
_TO_BETA = either(call("power", _PLUS_BIAS, Number("beta")), _PLUS_BIAS)
LRN = call("divide", "x", _TO_BETA)


def _lrn(block: Block, var: relax.Var) -> Found | None:
    """A factor or exponent of 1 and a bias of 0 may have been left out."""
    found = find(block, var, LRN)
    size = None if found is None else _channels_of_window(block, found)
    if size is None:
        return None
    operand = tensor(found["x"], "input")
    numbers = {"beta": 1.0, "bias": 0.0, "alpha": 1.0} | found.numbers
    attrs = {"axis": 1, "size": size, **numbers}
    node = Node("lrn", (operand,), operand.shape, operand.dtype, attrs)
    return Found(Candidate(node, (found["x"],)), found.bindings)


def _channels_of_window(block: Block, found: Match) -> int | None:
    """How many channels a pool averages around each; None for one of something else."""
    shape, line = shape_of(found["squares"]), shape_of(found["line"])
    if not shape or shape != shape_of(found["mean"]):
        return None
    attrs = block.values[found["pool"]].attrs
    size, *others = (int(extent) for extent in attrs.pool_size)
    windows = [*others, *map(int, attrs.strides), *map(int, attrs.dilation)]
    padding = [int(side) for side in attrs.padding]
    sides = len(padding) // 2
    plain = set(windows) == {1} and not any([*padding[1:sides], *padding[sides + 1 :]])
    if not plain or attrs.ceil_mode or not attrs.count_include_pad:
        return None
    if (padding[0], padding[sides]) != ((size - 1) // 2, size // 2):
        return None
    return None if line is None or line[:3] != (shape[0], 1, shape[1]) else size


def _is_whole(reduction: relax.Call) -> bool:
    return reduction.attrs.axis is None and not reduction.attrs.keepdims


def _is_byte(clip: relax.Call) -> bool:
    return [float(limit.value) for limit in clip.args[1:]] == [0.0, 255.0]


#: As the front end writes ONNX's DynamicQuantizeLinear, after canonicalisation.
_HIGH = call("nn.relu", call("max", "x", where=_is_whole), name="high")
_LOW = call("minimum", call("min", "x", where=_is_whole), 0.0, name="low")
_WIDTH = call("divide", call("subtract", "high", "low"), 255.0)
_SCALE = call("where", call("equal", _HIGH, _LOW), 1.0, _WIDTH, name="scale")
_POINT = call("subtract", 0.0, call("divide", "low", "scale"))
_ZERO_POINT = call("astype", call("round", call("clip", _POINT, where=_is_byte)), name="zero_point")
DYNAMIC_QUANTIZE = call("quantize", "x", _SCALE, _ZERO_POINT)


def _dynamic_quantize(block: Block, var: relax.Var) -> Found | None:
    found = find(block, var, DYNAMIC_QUANTIZE)
    if found is None:
        return None
    operand, further = tensor(found["x"], "input"), (found["scale"], found["zero_point"])
    results = tuple(Result(shape_of(result), dtype_of(result)) for result in further)
    node = Node("dynamic_quantize", (operand,), operand.shape, dtype_of(var), further=results)
    return Found(Candidate(node, (found["x"],)), found.bindings, further)


#: As the front end writes ONNX's Cast to integers, after canonicalisation; by way of wider ones, so
#: that numbers wrap.
_FINITE = call("less", call("abs", "x"), float("inf"))
_NUMBERS = call("where", call("logical_not", _FINITE), 0.0, "x")
WHOLE_NUMBERS = call("astype", either(call("astype", _NUMBERS, name="wide"), _NUMBERS))


def _whole_numbers(block: Block, var: relax.Var) -> Found | None:
    """The kernel does all of it: what is no number or infinite is 0, and integers wrap."""
    found = find(block, var, WHOLE_NUMBERS)
    if found is None:
        return None
    readers, wide = block.users(var), found.get("wide")
    if len(readers) == 1 and _narrows(block, var, readers[0]):
        return None  # that one ends the group
    if np.dtype(dtype_of(var if wide is None else wide)).name not in ("int32", "int64"):
        return None
    if wide is not None and not _narrows(block, wide, var):
        return None
    operand = tensor(found["x"], "input")
    node = Node("cast", (operand,), operand.shape, dtype_of(var))
    return Found(Candidate(node, (found["x"],)), found.bindings)


def _narrows(block: Block, wide: relax.Var, var: relax.Var) -> bool:
    """Whether a binding is a cast of integers that keeps their lower bits alone."""
    if block.call(var, "relax.astype") is None:
        return False
    kept, had = (np.dtype(dtype_of(each)) for each in (var, wide))
    return kept.kind in "iu" and kept.itemsize < had.itemsize


_SQUARES = call("sum mean", either(times("x", "x"), call("power", "x", 2.0)))


def _squares(block: Block, var: relax.Var) -> Found | None:
    """Not of integers, whose sums wrap around."""
    found = find(block, var, _SQUARES)
    if found is None or dtype_of(var) != SINGLE:
        return None
    candidate = build_reduce_squares(block.values[var], found["x"])
    return Found(candidate, found.bindings)


def _found(found: Rotary | Grouped | Distances | None) -> Found | None:
    return None if found is None else Found(*found)


READERS: dict[str, Callable[[Block, relax.Var], Found | None]] = {
    "relax.add": lambda block, var: _found(rotary_of_rows(block, var)),
    "relax.concat": lambda block, var: _found(rotary_of_halves(block, var)),
    "relax.matmul": _attention,
    "relax.sum": lambda block, var: _found(distances(block, var)) or _squares(block, var),
    "relax.mean": _squares,
    "relax.where": lambda block, var: _prelu(block, var) or _found(grouped_matmul(block, var)),
    "relax.take": _reversed,
    "relax.divide": _lrn,
    "relax.quantize": _dynamic_quantize,
    "relax.astype": _whole_numbers,
}
