"""Operators of com.microsoft that move, pick and pool numbers, or that ONNX took over with changes.

Their definition is what ONNX Runtime's CPU provider computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call

_INT64 = onnx.TensorProto.INT64

#: The opset from which GridSample's modes have the names that they have for any rank.
_ANY_RANK = 20
_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}

#: A slice's end that is behind every element.
_END = np.iinfo(np.int64).max


def gather_nd(call: Call) -> bool:
    """GatherND, whose indices may be int32."""
    call.give(0, call.op("GatherND", call.input(0), call.op("Cast", call.input(1), to=_INT64)))
    return True


def pad(call: Call) -> bool:
    """Pad, whose numbers may be a row, and whose value a vector of one."""
    if call.opset < 11:
        return False
    inputs = [call.input(0), call.reshape(call.input(1), -1)]
    if call.input(2):
        inputs.append(call.op("Reshape", call.input(2), call.constant([], np.int64)))
    call.give(0, call.op("Pad", *inputs, mode=call.attrs.get("mode", b"constant").decode()))
    return True


def range_of(call: Call) -> bool:
    """Range, whose numbers may be vectors of one; steps of 1 where none are told."""
    scalar = call.constant([], np.int64)
    inputs = [call.op("Reshape", call.input(place), scalar) for place in (0, 1)]
    step = call.op("Reshape", call.input(2), scalar) if call.input(2) else call.number(1)
    call.give(0, call.op("Range", *inputs, step))
    return True


def grid_sample(call: Call) -> bool:
    """GridSample of images, by the older names of its modes."""
    mode = call.attrs.get("mode", b"bilinear").decode()
    if mode not in _MODES:
        return False
    attributes = dict(call.attrs, mode=_MODES[mode] if call.opset >= _ANY_RANK else mode)
    call.give(0, call.op("GridSample", call.input(0), call.input(1), **attributes))
    return True


def same(call: Call) -> bool:
    """What it is given."""
    call.give(0, call.input(0))
    return True


def unfold_tensor(call: Call) -> bool:
    """All parts of ``size`` elements along an axis, each ``step`` behind the one before."""
    shape, size, step = call.shape(), call.attrs["size"], call.attrs.get("step", 1)
    if not shape or size < 1 or step < 1:
        return False
    axis = call.attrs.get("dim", -1) % len(shape)
    if shape[axis] is None:
        parts = [
            call.slice(call.input(0), axis, first, first - size + 1 or _END, step)
            for first in range(size)
        ]
        parts = [call.over("Unsqueeze", part, [len(shape)]) for part in parts]
        call.give(0, call.op("Concat", *parts, axis=len(shape)))
        return True
    starts = np.arange(0, shape[axis] - size + 1, step)
    places = call.constant(starts[:, None] + np.arange(size), np.int64)
    y = call.op("Gather", call.input(0), places, axis=axis)
    order = [i for i in range(len(shape) + 1) if i != axis + 1]
    call.give(0, call.transpose(y, *order, axis + 1))
    return True


def unique(call: Call) -> bool:
    """The different numbers of a vector as they first occur, the place of each, how many."""
    results = call.op("Unique", call.input(0), outputs=4, sorted=0)
    for place, result in zip(range(3), (results[0], *results[2:]), strict=True):
        call.give(place, result)
    return True


def n_gram_repeat_block(call: Call) -> bool:
    """-infinity for tokens that would end a run of ``ngram_size`` tokens that was there before."""
    size, ids = call.attrs["ngram_size"], call.input(0)
    vocabulary = (call.shape(1) or [None])[-1]
    if size < 1 or vocabulary is None or call.opset < 11:
        return False
    ends = call.slice(ids, 1, size - 1, _END)
    found = call.op("Equal", ends, ends)
    for place in range(size - 1):
        before = place - (size - 1)
        last = call.slice(ids, 1, before, before + 1 if before < -1 else _END)
        found = call.op("And", found, call.op("Equal", call.slice(ids, 1, place, before), last))
    # A column behind all others takes what is not to be found.
    none = call.constant(vocabulary, call.dtype(0))
    token = call.op("Cast", call.op("Where", found, ends, none), to=_INT64)
    low = call.op("Expand", call.number(-np.inf, 1), call.op("Shape", token))
    pads, zero = call.integers(0, 0, 0, 1), call.number(0, 1)
    wide = call.op("Pad", call.input(1), pads, zero)
    marked = call.op("ScatterElements", wide, token, low, axis=1)
    call.give(0, call.slice(marked, 1, 0, vocabulary))
    return True


def conv_transpose(call: Call) -> bool:
    """ConvTranspose, whose pads are an input; they have to be constants."""
    attributes = dict(call.attrs)
    if call.input(2):
        pads = call.array(2)
        if pads is None:
            call.refuse("pads that are computed; need constants")
        attributes["pads"] = [int(number) for number in pads]
    inputs = [call.input(place) for place in (0, 1, 3) if call.input(place)]
    call.give(0, call.op("ConvTranspose", *inputs, **attributes))
    return True


# ---------------------------------------------------------------------- parts of images


def crop_and_resize(call: Call) -> bool:
    """Boxes of images, [boxes, C, h, w], whose corners are corners of the results."""
    size, shape = call.array(3), call.shape()
    mode = call.attrs.get("mode", b"bilinear").decode()
    if size is None or shape is None or None in shape[1:] or mode not in ("bilinear", "nearest"):
        call.refuse(f"an image {shape}, mode {mode}; need constant sizes, bilinear or nearest")
    channels, height, width = shape[1:]
    pixels = call.reshape(call.transpose(call.input(0), 0, 2, 3, 1), -1, channels)
    rows, columns = (
        _places(call, begin, extent, int(count))
        for begin, extent, count in zip((0, 1), (height, width), size, strict=True)
    )
    y, x = (call.over("Unsqueeze", place, [axis]) for place, axis in ((rows, 2), (columns, 1)))
    inside = call.op("And", _within(call, y, height), _within(call, x, width))
    of_image = call.op("Cast", call.input(2), to=_INT64)
    of_image = call.op("Mul", of_image, call.constant(height * width, np.int64))
    of_image = call.over("Unsqueeze", of_image, [1, 2])

    def pixel(row: str, column: str) -> str:
        """The pixels at places, all inside, of each box."""
        at = [
            call.op("Cast", call.op("Clip", place, *_bounds(call, extent)), to=_INT64)
            for place, extent in ((row, height), (column, width))
        ]
        down = call.op("Add", call.op("Mul", at[0], call.constant(width, np.int64)), of_image)
        return call.op("Gather", pixels, call.op("Add", down, at[1]), axis=0)

    if mode == "nearest":
        half = call.constant(0.5, np.float32)
        value = pixel(*(call.op("Floor", call.op("Add", place, half)) for place in (y, x)))
    else:
        value = _between(call, y, x, pixel)
    other = call.constant(call.attrs.get("extrapolation_value", 0.0), np.float32)
    value = call.op("Where", call.over("Unsqueeze", inside, [3]), value, other)
    call.give(0, call.transpose(value, 0, 3, 1, 2))
    return True


def _places(call: Call, begin: int, extent: int, count: int) -> str:
    """Where the rows or columns of each box lie, [boxes, count]."""
    first, last = (call.slice(call.input(1), 1, at, at + 1) for at in (begin, begin + 2))
    long = call.constant(extent - 1, np.float32)
    if count == 1:
        half = call.op("Mul", call.op("Add", first, last), call.constant(0.5, np.float32))
        return call.op("Mul", half, long)
    step = call.op("Mul", call.op("Sub", last, first), long)
    step = call.op("Div", step, call.constant(count - 1, np.float32))
    inner = call.op("Mul", step, call.constant(np.arange(count - 1)[None], np.float32))
    inner = call.op("Add", call.op("Mul", first, long), inner)
    return call.op("Concat", inner, call.op("Mul", last, long), axis=1)


def _bounds(call: Call, extent: int) -> Sequence[str]:
    return [call.constant(number, np.float32) for number in (0, extent - 1)]


def _within(call: Call, place: str, extent: int) -> str:
    low, high = _bounds(call, extent)
    outside = call.op("Or", call.op("Less", place, low), call.op("Greater", place, high))
    return call.op("Not", outside)


def _between(call: Call, y: str, x: str, pixel: Callable[[str, str], str]) -> str:
    """What lies between four pixels."""
    top, left = call.op("Floor", y), call.op("Floor", x)
    bottom, right = call.op("Ceil", y), call.op("Ceil", x)
    along = call.over("Unsqueeze", call.op("Sub", x, left), [3])
    down = call.over("Unsqueeze", call.op("Sub", y, top), [3])

    def mixed(first: str, second: str, share: str) -> str:
        apart = call.op("Mul", call.op("Sub", second, first), share)
        return call.op("Add", first, apart)

    upper = mixed(pixel(top, left), pixel(top, right), along)
    lower = mixed(pixel(bottom, left), pixel(bottom, right), along)
    return mixed(upper, lower, down)


# ---------------------------------------------------------------------- words


def word_conv_embedding(call: Call) -> bool:
    """A vector for each word of characters: the greatest tanh of a convolution along it.

    Characters behind the word's end count no window of theirs; a word of none is 0.
    """
    shape, kernel = call.shape(0), call.shape(1)
    if shape is None or kernel is None or None in (shape[-1], *kernel) or len(shape) != 2:
        return False
    letters, width = shape[1], kernel[2]
    ids = call.input(0)
    some = call.op("Greater", ids, call.constant(0, np.int32))
    length = call.op("Cast", some, to=_INT64)
    length = call.over("ReduceSum", length, [1], keepdims=1)
    image = call.over("Unsqueeze", call.op("Gather", call.input(3), ids, axis=0), [1])
    y = call.op("Tanh", call.op("Conv", image, call.input(1), call.input(2)))
    y = call.over("Squeeze", y, [3])
    last = call.op("Max", call.op("Sub", length, call.integers(width)), call.integers(0))
    windows = call.constant(np.arange(letters - width + 1)[None], np.int64)
    beyond = call.over("Unsqueeze", call.op("Greater", windows, last), [1])
    y = call.op("Where", beyond, call.constant(-1e12, np.float32), y)
    y = call.over("ReduceMax", y, [2], keepdims=0)
    first = call.slice(some, 1, 0, 1)
    call.give(0, call.op("Where", first, y, call.constant(0, np.float32)))
    return True
