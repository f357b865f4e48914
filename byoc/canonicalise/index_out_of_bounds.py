"""Keep indices within their axes: TVM's code reads and writes wherever they point.

    i -> max(min(i, n - 1), -n)              an index outside of an axis means its nearest element
    i -> where(i < 0, i + n, i)              a negative one counts from the end

Kernels of the package do the second themselves and refuse what is outside, so that operators with
one tensor of computed indices are left to them; what TVM has to compute in the end is written out
by ``no_index_out_of_leftovers``. ``take`` has a mode for it; one that a network asks for is written
out. ``index_put`` stores as many values as there are places, so that fewer are repeated.
An axis without elements has no nearest one: what is read from it is 0, and nothing can be stored.
Symbolic axes are taken to have elements (``sizes_of_nothing`` says which libraries need that).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from byoc.ir.dataflow import (
    Block,
    Var,
    array_of,
    dtype_of,
    map_blocks,
    op_name,
    shape_of,
    static_shape_of,
    typed,
)
from byoc.ir.index_ranges import are_within
from codegen_cc.dim import is_static

#: Operators with one tensor of indices.
ONE_TENSOR = tuple(
    f"relax.{name}" for name in ("gather_elements", "gather_nd", "scatter_elements", "scatter_nd")
)

#: Operators with a tensor of indices for each of the first axes.
ONE_PER_AXIS = ("relax.index_tensor", "relax.index_put")

STORING = ("relax.scatter_elements", "relax.scatter_nd", "relax.index_put")

#: Operators of TVM that add the extent to negative indices.
_COUNTING = ("relax.scatter_elements", "relax.index_put")


#: Whether a kernel that looks at indices may still take a call.
Checked = Callable[[relax.Call], bool]


def no_index_out_of_bounds(block: Block, checked: Checked | None = None) -> None:
    """Rewrite indexing that TVM does not check.

    Calls of ``ONE_TENSOR`` with computed indices stay as they are where they are ``checked``.
    """
    for var, call in block.calls("relax.take", *ONE_TENSOR, *ONE_PER_AXIS):
        axes = _indexed(call)
        extents = None if axes is None else shape_of(call.args[0])[axes]
        if extents is not None and 0 in extents:
            result = shape_of(var)
            if result is not None and (0 not in result or op_name(call) in STORING):
                block.replace(var, relax.op.zeros(var.ty.shape, dtype_of(var)))
        elif op_name(call) == "relax.take":
            _take(block, var, call, None if checked is None else axes)
        elif axes is not None and op_name(call) in ONE_PER_AXIS:
            _clamp_each(block, var, call)
        elif axes is not None and not (checked and _is_computed(call) and checked(call)):
            _clamp_one(block, var, call, axes)


def _take(block: Block, var: Var, call: relax.Call, axes: slice | None) -> None:
    """Let TVM clamp where no mode is asked for; where one is, along ``axes``, let kernels see
    indices that are inside."""
    mode, axis = call.attrs.mode, None if call.attrs.axis is None else int(call.attrs.axis)
    source, indices = call.args
    if mode == "fast":
        block.replace(var, relax.op.take(source, indices, axis=axis, mode="clip"))
    elif axes is not None and (inside := _by_mode(block, var, call, axes)) is not indices:
        block.replace(var, relax.op.take(source, inside, axis=axis, mode=mode))


def _by_mode(block: Block, var: Var, call: relax.Call, axes: slice) -> relax.Expr:
    """Indices of ``take`` as its mode reads those outside of the axis: the nearest element, counted
    from the beginning, or wrapped around. As they were where an axis has no known extent."""
    source, indices = call.args
    dtype, known, extents = dtype_of(indices), array_of(indices), shape_of(source)[axes]
    if not dtype.startswith(("int", "uint")):
        return indices
    if call.attrs.mode == "clip" and not (known is not None and (known >= 0).all()):
        indices = block.emit(var, relax.op.maximum(indices, relax.const(0, dtype)))
    if call.attrs.mode == "clip":
        return _clamped(block, var, indices, source, axes)
    if call.attrs.mode != "wrap" or not is_static(extents) or extents[0] > np.iinfo(dtype).max:
        return indices
    (extent,) = extents
    if known is None:
        return block.emit(var, relax.op.floor_mod(indices, relax.const(extent, dtype)))
    wrapped = known % np.array(extent, dtype)
    return indices if (wrapped == known).all() else relax.const(wrapped, dtype)


def _is_computed(call: relax.Call) -> bool:
    return array_of(call.args[1]) is None


def no_index_out_of_leftovers(mod: tvm.IRModule) -> tvm.IRModule:
    """The same in all that TVM computes of a partitioned module."""

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        open_block = Block(block, mod)
        no_index_out_of_bounds(open_block)
        return open_block.finish()

    return map_blocks(mod, rewrite, nested=True)


def _indexed(call: relax.Call) -> slice | None:
    """The axes that indices of a call point into; None where they are not known."""
    shape = shape_of(call.args[0])
    if shape is None:
        return None
    name = op_name(call)
    if name in ONE_PER_AXIS:
        return slice(0, len(call.args[1].ty.fields))
    if name.endswith(("elements", "take")):
        axis = int(call.attrs.axis or 0) % max(len(shape), 1)
        return slice(axis, axis + 1)
    of = shape_of(call.args[1])
    if of is None or not isinstance(of[-1], int):
        return None
    first = int(call.attrs.batch_dims) if name == "relax.gather_nd" else 0
    return slice(first, first + of[-1])


def _clamp_one(block: Block, var: Var, call: relax.Call, axes: slice) -> None:
    name, attrs = op_name(call), call.attrs
    source, indices, *rest = call.args
    points = name in ("relax.gather_nd", "relax.scatter_nd")
    if points and are_within(indices, shape_of(source)[axes], block.values.get):
        return
    inside = _inside(block, var, indices, source, axes, name in _COUNTING)
    if inside is indices:
        return
    if name == "relax.gather_elements":
        result = relax.op.gather_elements(source, inside, int(attrs.axis))
    elif name == "relax.gather_nd":
        result = relax.op.gather_nd(source, inside, int(attrs.batch_dims))
    elif name == "relax.scatter_elements":
        axis, reduction = int(attrs.axis), str(attrs.reduction)
        result = relax.op.scatter_elements(source, inside, *rest, axis, reduction)
    else:
        result = relax.op.scatter_nd(source, inside, *rest, str(attrs.reduction))
    block.replace(var, result)


def _clamp_each(block: Block, var: Var, call: relax.Call) -> None:
    source, given, *rest = call.args
    stores = op_name(call) in STORING
    if isinstance(given, relax.Tuple):
        tensors = list(given.fields)
    else:
        places = range(len(given.ty.fields))
        tensors = [block.emit(var, relax.TupleGetItem(given, place)) for place in places]
    inside = [
        _inside(block, var, indices, source, slice(axis, axis + 1), stores)
        for axis, indices in enumerate(tensors)
    ]
    values = [_one_for_each(block, var, value, tensors) for value in rest]
    before, after = [*tensors, *rest], [*inside, *values]
    if all(a is b for a, b in zip(before, after, strict=True)):
        return
    if stores:
        accumulate = bool(call.attrs.accumulate)
        block.replace(var, relax.op.index_put(source, tuple(inside), *values, accumulate))
    else:
        block.replace(var, relax.op.index_tensor(source, inside))


def _one_for_each(
    block: Block, var: Var, values: relax.Expr, indices: list[relax.Expr]
) -> relax.Expr:
    """Values to be stored, one for each place: TVM reads as many, however few there are."""
    shapes = [static_shape_of(expr) for expr in (values, *indices)]
    if None in shapes:
        return values
    whole = np.broadcast_shapes(*shapes[1:])
    if np.prod(shapes[0]) >= np.prod(whole):
        return values
    return block.emit(var, relax.op.broadcast_to(values, whole))


def _inside(
    block: Block, var: Var, indices: relax.Expr, source: relax.Expr, axes: slice, counts: bool
) -> relax.Expr:
    """Indices within axes of a tensor, for an operator that ``counts`` from the end or does not."""
    clamped = _clamped(block, var, indices, source, axes)
    return clamped if counts else _from_the_end(block, var, clamped, source, axes)


def _from_the_end(
    block: Block, var: Var, indices: relax.Expr, source: relax.Expr, axes: slice
) -> relax.Expr:
    """Indices with the extent added to negative ones."""
    dtype, known = dtype_of(indices), array_of(indices)
    if dtype.startswith("uint") or (known is not None and (known >= 0).all()):
        return indices
    if dtype not in ("int32", "int64"):  # their sum with an extent may not fit
        dtype = "int64"
        indices = block.emit(var, relax.op.astype(indices, dtype))
    extents = _extents(block, var, source, axes, dtype)
    shifted = block.emit(var, relax.op.add(indices, extents))
    negative = block.emit(var, relax.op.less(indices, relax.const(0, dtype)))
    return block.emit(var, relax.op.where(negative, shifted, indices))


def _clamped(
    block: Block, var: Var, indices: relax.Expr, source: relax.Expr, axes: slice
) -> relax.Expr:
    """Indices from -n to n - 1; as they were where they are so, or no extent n is known."""
    dtype, known = dtype_of(indices), array_of(indices)
    extents = shape_of(source)[axes]
    if not dtype.startswith(("int", "uint")):
        return indices
    if is_static(extents):
        bounds = (-np.array(extents, np.int64), np.array(extents, np.int64) - 1)
        if known is not None and ((known >= bounds[0]) & (known <= bounds[1])).all():
            return indices
        limits = np.iinfo(dtype)  # what indices of few bits cannot reach bounds nothing
        lower, upper = (
            relax.const(np.clip(bound, limits.min, limits.max).astype(dtype), dtype)
            for bound in bounds
        )
    elif dtype not in ("int32", "int64"):
        return indices
    else:
        count = _extents(block, var, source, axes, dtype)
        upper = block.emit(var, relax.op.subtract(count, relax.const(1, dtype)))
        lower = block.emit(var, relax.op.subtract(relax.const(0, dtype), count))
    below = block.emit(var, relax.op.minimum(indices, upper))
    return block.emit(var, relax.op.maximum(below, lower))


def _extents(block: Block, var: Var, source: relax.Expr, axes: slice, dtype: str) -> relax.Expr:
    """The extents of axes as a vector."""
    shape = static_shape_of(source)
    if shape is not None:
        return relax.const(np.array(shape[axes], np.int64).astype(dtype), dtype)
    values = list(source.ty.shape.values)[axes]
    extents = block.emit(var, relax.op.shape_to_tensor(typed(relax.ShapeExpr(values))))
    return block.emit(var, relax.op.astype(extents, dtype))
