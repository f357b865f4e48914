"""Let a compiled function refuse sizes that are too small for what it computes.

A window that is larger than its image gives an extent below 0, which the virtual machine would try
to allocate. So all extents that may be below 0 are compared, before anything is computed, with
themselves or 0, whichever is greater:

    match_cast([max(h - 2, 0)], Shape([h - 2]))

So is what the first window of a pool leaves of an axis: where that is between -stride and 0, ONNX's
formula rounds down to no window and ONNX Runtime cuts off to one, which sees a part of the image.

And so are the numbers of elements before and after a reshape, which TVM takes for equal.
"""

from __future__ import annotations

from itertools import takewhile
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import is_candidate, with_blocks
from byoc.ir.symbols import extents_of, named_in, told_by
from byoc.ir.walk import items_of
from codegen_cc.dim import Dim, at_most, has_to_begin_inside, is_static, product, same
from codegen_cc.region.relax_dims import relax_dims

#: Pools, of which TVM computes what was not offloaded.
_POOLS = {f"relax.nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)}


def check_extents(mod: tvm.IRModule) -> tvm.IRModule:
    """Add the comparison to functions that need it; the module is not changed.

    Only extents of symbols that the parameters tell, or the casts that the function begins with,
    can be looked at beforehand.
    """
    out = mod
    for gvar, func in mod.functions.items():
        if not is_candidate(func) or not func.body.blocks:
            continue
        first, *others = func.body.blocks
        casts = list(takewhile(_defines_symbols, first.bindings))
        found = _doubtful(func, [*func.params, *(cast.var for cast in casts)])
        if found:
            given, ty = relax.ShapeExpr(list(found.values())), relax.ShapeType(list(found))
            check = relax.MatchCast(relax.Var("extents", ty), given, ty)
            blocks = [
                relax.BindingBlock([*casts, check]),
                type(first)(list(first.bindings)[len(casts) :]),
                *others,
            ]
            out = mod.clone() if out is mod else out
            out[gvar] = with_blocks(func, [block for block in blocks if block.bindings])
    return out


def _defines_symbols(binding: relax.Binding) -> bool:
    """Whether a binding is one of those that ``define_symbols`` writes."""
    return isinstance(binding, relax.MatchCast) and not isinstance(binding.var, relax.DataflowVar)


def _doubtful(func: relax.Function, tellers: list[relax.Var]) -> dict[tvm.ir.Expr, tvm.ir.Expr]:
    """The extents that are not known to be 0 or more, each once, with what each has to equal.

    Those of symbols alone that an axis of the ``tellers`` is.
    """
    zero = tirx.IntImm("int64", 0)
    known = {symbol for var in tellers for symbol in told_by(var.ty)}
    found: dict[Dim | str, tuple[tvm.ir.Expr, tvm.ir.Expr]] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            for ty in _tensors(binding.var.ty):
                if known.issuperset(named_in(ty)):
                    for extent in extents_of(ty):
                        _note(found, extent, tirx.max(extent, zero))
            for left in (*_rests_of_slices(binding), *_rests_of_choices(binding)):
                if known.issuperset(tirx.analysis.undefined_vars(left)):
                    _note(found, left, tirx.max(left, zero))
            for before, after in _elements_of_reshapes(binding):
                if known.issuperset(tirx.analysis.undefined_vars(before - after)):
                    one = tirx.IntImm("int64", 1)  # more: a symbol alone would be told by the other
                    found[f"{before} {after}"] = (after + one, before + one)
            for extent, left, stride in _parts_of_windows(binding):
                if known.issuperset(tirx.analysis.undefined_vars(left)):
                    whole = tirx.EQ(left, tirx.IntImm("int64", -stride))
                    none = tirx.Or(whole, tirx.EQ(extent, zero))
                    _note(found, left, tirx.Select(none, left, tirx.max(left, zero)))
    return dict(found.values())


def _note(found: dict, extent: tvm.ir.Expr, wanted: tvm.ir.Expr) -> None:
    try:
        (dim,) = relax_dims([extent])
    except ValueError:
        return
    if not at_most(0, dim):
        found[dim] = (extent, wanted)


def _rests_of_slices(binding: relax.Binding) -> list[tvm.ir.Expr]:
    """What slices whose bounds TVM does not clamp leave of axes of known sizes, on both sides, and
    before those of other axes that have to begin inside."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return []
    if call.op.name != "relax.strided_slice" or not call.attrs.assume_inbound:
        return []
    sizes, (axes, *bounds) = (
        extents_of(call.args[0].ty),
        (items_of(call.args[i]) for i in (1, 2, 3)),
    )
    found = []
    steps = items_of(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    for axis, begin, end, step in zip(axes, *bounds, steps, strict=True):
        size = sizes[int(axis) % len(sizes)] if sizes else None
        if isinstance(size, tirx.IntImm):
            found += [x for x in (begin, size - end) if not isinstance(x, tirx.IntImm)]
        elif size is not None and _begins_inside(begin, end, size, step, binding.var, int(axis)):
            found.append(begin)
    return found


def _begins_inside(
    begin: tvm.ir.Expr, end: tvm.ir.Expr, size: tvm.ir.Expr, step: Any, result: relax.Var, axis: int
) -> bool:
    """Whether the slice is as long as its type says only where it begins inside."""
    try:
        first, last, extent, taken = relax_dims([begin, end, size, extents_of(result.ty)[axis]])
    except (ValueError, IndexError):
        return False
    return int(step) > 0 and has_to_begin_inside(first, last, extent, int(step), taken)


def _rests_of_choices(binding: relax.Binding) -> list[tvm.ir.Expr]:
    """What is left of an axis of which the greatest or least elements were taken."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return []
    if call.op.name != "relax.topk" or int(call.attrs.k) < 1:
        return []
    sizes = extents_of(call.args[0].ty)
    size = sizes[int(call.attrs.axis) % len(sizes)] if sizes else tirx.IntImm("int64", 0)
    return [] if isinstance(size, tirx.IntImm) else [size - int(call.attrs.k)]


def _elements_of_reshapes(binding: relax.Binding) -> list[tuple[tvm.ir.Expr, tvm.ir.Expr]]:
    """How many elements there are before and after a reshape, where these may not be equal."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return []
    if call.op.name != "relax.reshape":
        return []
    shapes = [extents_of(ty) for ty in (call.args[0].ty, binding.var.ty)]
    try:
        before, after = (product(relax_dims(shape)) for shape in shapes)
    except ValueError:
        return []
    if is_static([before, after]) or same(before, after):
        return []
    return [tuple(prod(shape, start=tirx.IntImm("int64", 1)) for shape in shapes)]


def _parts_of_windows(binding: relax.Binding) -> list[tuple[tvm.ir.Expr, tvm.ir.Expr, int]]:
    """Extents of an image, what a pool's first window leaves of each, and the stride there."""
    call = binding.value
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return []
    if call.op.name not in _POOLS or call.attrs.ceil_mode:
        return []
    extents, attrs = extents_of(call.args[0].ty), call.attrs
    rank, first = len(attrs.pool_size), attrs.layout.index("W") + 1 - len(attrs.pool_size)
    pads = [int(pad) for pad in attrs.padding]
    rest = []
    for axis in range(rank if len(extents) == rank + 2 else 0):
        reach = (int(attrs.pool_size[axis]) - 1) * int(attrs.dilation[axis]) + 1
        extent, stride = extents[first + axis], int(attrs.strides[axis])
        if stride > 1:
            left = extent + (pads[axis] + pads[rank + axis] - reach)
            rest.append((extent, left, stride))
    return rest


def _tensors(ty: tvm.ir.Type) -> list[tvm.ir.Type]:
    if isinstance(ty, relax.TupleType):
        return [inner for field in ty.fields for inner in _tensors(field)]
    return [ty]
