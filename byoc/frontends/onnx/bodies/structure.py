"""Operators that pick, put or scale elements, written out as others of ONNX's domain."""

from __future__ import annotations

import math

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call

#: Elements of a matrix that is stored instead of counted.
_MOST_STORED = 1 << 20
#: Range is of this opset.
_RANGE = 11


def lp_normalization(call: Call) -> bool:
    """x / norm; where the norm is 0, all of x is, and stays."""
    axis, p = call.attrs.get("axis", -1), call.attrs.get("p", 2)
    if p not in (1, 2):
        return False
    norm = call.over(f"ReduceL{p}", call.input(0), [axis], keepdims=1)
    none = call.op("Equal", norm, call.number(0))
    call.give(0, call.op("Div", call.input(0), call.op("Where", none, call.number(1), norm)))
    return True


def mean_variance_normalization(call: Call) -> bool:
    """(x - mean) / (deviation + 1e-9); the schema's body loses a deviation far below the mean.

    Up to opset 8 it was on trial, and had attributes of its own.
    """
    usual = (0, 1, 2, 3) if call.attrs.get("across_channels", 0) else (0, 2, 3)
    axes = list(call.attrs.get("axes", usual))
    centred = call.op("Sub", call.input(0), call.over("ReduceMean", call.input(0), axes))
    if not call.attrs.get("normalize_variance", 1):
        call.give(0, centred)
        return True
    squares = call.over("ReduceMean", call.op("Mul", centred, centred), axes)
    deviation = call.op("Add", call.op("Sqrt", squares), call.number(1e-9))
    call.give(0, call.op("Div", centred, deviation))
    return True


def resize(call: Call) -> bool:
    """Bytes between bytes: those of floats, without their fraction, as ONNX Runtime has them."""
    bytes_ = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)
    if call.element() not in bytes_ or call.attrs.get("mode", b"nearest") != b"linear":
        return False
    operator = call.node.op_type
    floats = call.op(operator, call.single(), *call.node.input[1:], **call.attrs)
    call.give(0, call.as_given(floats))
    return True


def eye_like(call: Call) -> bool:
    """1 where the row is the column less k: of places that are counted, or a constant."""
    shape, k = call.shape(), call.attrs.get("k", 0)
    if shape is None or len(shape) != 2:
        return False
    to = call.attrs.get("dtype", call.element())
    if None not in shape and shape[0] * shape[1] <= _MOST_STORED:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
        call.give(0, call.constant(np.eye(*shape, k), dtype))
        return True
    if call.opset < _RANGE:
        return False
    rows, columns = (call.up_to(call.extent(call.input(0), axis)) for axis in (0, 1))
    moved = call.op("Add", rows, call.constant(k, np.int64)) if k else rows
    equal = call.op("Equal", call.over("Unsqueeze", moved, [1]), columns)
    call.give(0, call.op("Cast", equal, to=to))
    return True


def celu(call: Call) -> bool:
    """alpha elu(x / alpha); the schema's body gives a scalar an axis."""
    alpha = call.attrs.get("alpha", 1.0)
    part = call.op("Elu", call.op("Div", call.input(0), call.number(alpha)), alpha=1.0)
    call.give(0, call.op("Mul", part, call.number(alpha)))
    return True


def bernoulli(call: Call) -> bool:
    """1 with the probability that the input says; the schema's body gives 1 with the rest."""
    float32 = onnx.TensorProto.FLOAT
    drawn = call.op("RandomUniformLike", call.input(0), dtype=float32, seed=call.attrs.get("seed"))
    chance = call.op("Cast", call.input(0), to=float32)
    to = call.attrs.get("dtype", call.element())
    call.give(0, call.op("Cast", call.op("Less", drawn, chance), to=to))
    return True


def multinomial(call: Call) -> bool:
    """Classes with the chances that their scores tell: the greatest of score - log(-log(u)).

    Each number that is drawn has its own u, uniform between 0 and 1 (Gumbel).
    """
    count = call.attrs.get("sample_size", 1)
    scores = call.over("Unsqueeze", call.single(), [1])
    scores = call.op("Add", scores, call.constant(np.zeros((1, count, 1)), np.float32))
    drawn = call.op("RandomUniformLike", scores, seed=call.attrs.get("seed"))
    part = call.op("Log", call.op("Neg", call.op("Log", drawn)))
    best = call.op("ArgMax", call.op("Sub", scores, part), axis=2, keepdims=0)
    call.give(0, call.op("Cast", best, to=call.attrs.get("dtype", onnx.TensorProto.INT32)))
    return True


def reverse_sequence(call: Call) -> bool:
    """The first so many elements of each row in reverse: all are taken by their places.

    y[t, b] = x[n[b] - 1 - t, b] where t < n[b], else x[t, b]: elements of x [T B, ...] are taken.
    """
    shape, x = call.shape(), call.input(0)
    time, batch = call.attrs.get("time_axis", 0), call.attrs.get("batch_axis", 1)
    if shape is None or {time, batch} != {0, 1}:
        return False
    if 0 in shape:
        call.give(0, x)
        return True
    steps, rows = (
        call.over("Unsqueeze", call.up_to(call.extent(x, axis)), [1 - axis])
        for axis in (time, batch)
    )
    lengths = call.over("Unsqueeze", call.input(1), [time])
    last = call.op("Sub", lengths, call.integers(1))
    turned = call.op("Where", call.op("Less", steps, lengths), call.op("Sub", last, steps), steps)
    outer, inner = (turned, rows) if time == 0 else (rows, turned)
    places = call.op("Add", call.op("Mul", outer, call.extent(x, 1)), inner)
    extents = call.integers(-1)
    if len(shape) > 2:
        rest = call.slice(call.op("Shape", x), 0, 2, len(shape))
        extents = call.op("Concat", extents, rest, axis=0)
    call.give(0, call.op("Gather", call.op("Reshape", x, extents), places, axis=0))
    return True


def compress(call: Call) -> bool:
    """The rows, or elements, that a condition picks, taken by their places.

    Where the condition is longer than the axis, what is beyond says nothing.
    """
    shape, length = call.shape(), call.shape(1)
    if shape is None or length is None:
        return False
    x, condition, axis = call.input(0), call.input(1), call.attrs.get("axis")
    if axis is None:
        x, axis = call.reshape(x, -1), 0
        shape = [None if None in shape else math.prod(shape)]
    if None not in (length[0], shape[axis]) and length[0] > shape[axis]:
        condition = call.slice(condition, 0, 0, shape[axis])
    places = call.over("Squeeze", call.op("NonZero", condition), [0])
    call.give(0, call.op("Gather", x, places, axis=axis))
    return True


def tensor_scatter(call: Call) -> bool:
    """A cache with an update of each batch, from a place of its own on, or round its end."""
    cache, update = call.shape(0), call.shape(1)
    if cache is None or update is None:
        return False
    axis = call.attrs.get("axis", -2) % len(cache)
    if axis == 0 or update[axis] is None:
        return False
    extents = [1] * len(cache)
    extents[axis] = update[axis]
    places = call.constant(np.arange(update[axis]).reshape(extents), np.int64)
    if call.input(2):
        axes = list(range(1, len(cache)))
        places = call.op("Add", call.over("Unsqueeze", call.input(2), axes), places)
    if call.attrs.get("mode", b"linear") == b"circular":
        if cache[axis] is None:
            return False
        places = call.op("Mod", places, call.constant(cache[axis], np.int64))
    places = call.op("Expand", places, call.op("Shape", call.input(1)))
    call.give(0, call.op("ScatterElements", call.input(0), places, call.input(1), axis=axis))
    return True
