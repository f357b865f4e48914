"""Rows of operators that move data and compute nothing."""

from __future__ import annotations

from tvm import relax, tirx

from byoc.ir.dataflow import describe, shape_of
from byoc.ir.walk import items_of
from byoc.patterns.row import Candidate, Row, Unfit, candidate, integers, plain_row, positive_axis
from codegen_cc.dim import (
    Dim,
    at_most,
    ceil_div,
    has_to_begin_inside,
    is_static,
    slice_bounds,
)
from codegen_cc.region.relax_dims import relax_dims


def build_permute(call: relax.Call) -> Candidate:
    """No axes in the call mean the reverse order."""
    rank = call.args[0].ty.ndim
    axes = call.attrs.axes
    order = list(range(rank))[::-1] if axes is None else [axis % rank for axis in integers(axes)]
    return candidate("permute", call, [("input", call.args[0])], {"axes": order})


def build_concat(call: relax.Call) -> Candidate:
    """The tuple of inputs must be written in the call."""
    items = call.args[0]
    if not isinstance(items, relax.Tuple):
        raise Unfit("inputs are a tuple variable; need the tensors themselves")
    axis = positive_axis(call.attrs.axis, items.fields[0])
    operands = [(f"input{i}", item) for i, item in enumerate(items.fields)]
    return candidate("concat", call, operands, {"axis": axis})


def build_slice(call: relax.Call) -> Candidate:
    """Positive steps; bounds are clamped as ONNX has it, unless the call says that they are."""
    source, *lists = call.args
    shape = shape_of(source)
    if shape is None:
        raise Unfit(f"input is {describe(source)}; need a known shape")
    axes = _constants(lists[0], "slice axes")
    begins, ends = (_extents(values) for values in lists[1:3])
    steps = _constants(lists[3], "slice strides") if len(lists) > 3 else [1] * len(axes)
    begin, end, strides = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, first, last, step in zip(axes, begins, ends, steps, strict=True):
        if step <= 0:
            raise Unfit(f"stride {step}; need a positive one")
        axis %= len(shape)
        # Of an axis of known size the call looks whether a symbolic beginning is inside, and of
        # another one where the extent is only so.
        begins_inside = at_most(0, first) or (is_static([shape[axis]]) and not is_static([first]))
        taken = (shape_of(call) or shape)[axis]
        begins_inside |= has_to_begin_inside(first, last, shape[axis], step, taken)
        # An end before the beginning is an extent below 0, which each call checks.
        inside = call.attrs.assume_inbound and begins_inside
        begin[axis], end[axis] = (
            (first, last) if inside else slice_bounds(first, last, shape[axis], step)
        )
        strides[axis] = step
    expected = tuple(ceil_div(e - b, s) for b, e, s in zip(begin, end, strides, strict=True))
    if expected != shape_of(call):
        raise Unfit(f"slice gives {list(expected)}; its type says {list(shape_of(call) or ())}")
    attrs = {"begin": begin, "end": end, "strides": strides}
    return candidate("slice", call, [("input", source)], attrs)


def _extents(values: relax.Expr) -> list[Dim]:
    fields = items_of(values)
    try:
        return list(relax_dims(fields))
    except ValueError as err:
        raise Unfit(f"slice bounds: {err}; need numbers or arithmetic on symbols") from err


def _constants(values: relax.Expr, what: str) -> list[int]:
    fields = items_of(values)
    if not all(isinstance(item, tirx.IntImm) for item in fields):
        raise Unfit(f"{what} [{', '.join(map(str, fields))}]; need constant numbers")
    return integers(fields)


#: Names of the modes of ``relax.nn.pad`` in a node.
PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def build_pad(call: relax.Call) -> Candidate:
    """Relax has before and after of one axis side by side, a node all befores first."""
    widths = integers(call.attrs.pad_width)
    mode = PAD_MODES.get(str(call.attrs.pad_mode))
    if mode is None:
        raise Unfit(f"mode {call.attrs.pad_mode}; need one of {', '.join(PAD_MODES)}")
    if min(widths, default=0) < 0:
        raise Unfit(f"widths {widths}; need none below 0")
    attrs = {
        "pads": widths[::2] + widths[1::2],
        "mode": mode,
        "value": float(call.attrs.pad_value),
    }
    return candidate("pad", call, [("input", call.args[0])], attrs)


MOVEMENT_ROWS = (
    *(
        plain_row(name, "reshape", "input")
        for name in ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")
    ),
    Row("relax.permute_dims", build_permute, "permute"),
    Row("relax.concat", build_concat, "concat"),
    Row("relax.strided_slice", build_slice, "slice"),
    plain_row("relax.broadcast_to", "broadcast_to", "input"),
    Row("relax.nn.pad", build_pad, "pad"),
)
