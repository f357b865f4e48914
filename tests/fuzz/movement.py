"""Steps that move elements: shapes, slices, padding, gathering, scattering, sorting."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import INTEGERS, Draft
from tests.fuzz.steps import axes_form, axis_of, require, source, step

ANY = ("float32", "float32", "float32", "int64", "int32", "bool", "float64", "uint8")
RANKS = range(7)
SHAPED = range(1, 6)


def _ints(draft: Draft, values: object) -> str:
    return draft.constant(np.array(values, "int64"))


@step(3)
def transpose(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, RANKS)
    order = [int(axis) for axis in draft.rng.permutation(draft.rank(x))]
    return draft.op("Transpose", [x], perm=order if order and draft.chance(0.9) else None)


@step(4)
def reshape(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, RANKS)
    shape = list(draft.shape(x))
    target: list[int] = [
        extent if draft.is_fixed(x, axis) else 0 for axis, extent in enumerate(shape)
    ]
    kind = draft.pick(("merge", "split", "flat", "insert", "shape"))
    if kind == "flat" or not shape:
        target = [-1] if draft.chance(0.7) or not shape else [0, -1]
        target += [1] * draft.between(0, 1)
    elif kind == "merge" and len(shape) > 1:
        axis = draft.between(0, len(shape) - 2)
        target[axis : axis + 2] = [-1]
        require(all(extent for extent in target[axis + 1 :]), "0 would copy another axis")
    elif kind == "split":
        even = [a for a, e in enumerate(shape) if e % 2 == 0 and e and draft.is_fixed(x, a)]
        require(bool(even), "no even axis")
        axis = draft.pick(even)
        target[axis : axis + 1] = draft.pick(([2, shape[axis] // 2], [shape[axis] // 2, 2]))
        require(all(extent for extent in target[axis + 1 :]), "0 would copy another axis")
    elif kind == "insert":
        require(all(target) or draft.chance(0.2), "0 would copy another axis")
        target.insert(draft.between(0, len(target)), 1)
    else:
        return _computed_reshape(draft, x)
    if 0 in shape and draft.opset >= 14 and draft.chance(0.3):
        return draft.op("Reshape", [x, _ints(draft, shape)], allowzero=1)
    return draft.op("Reshape", [x, _ints(draft, target)])


def _computed_reshape(draft: Draft, x: str) -> str:
    """The new shape by arithmetic on the old one, as PyTorch's exporters write it."""
    rank = draft.rank(x)
    require(rank >= 2, "needs two axes")
    whole = draft.op("Shape", [x])
    parts = []
    for axis in range(draft.between(1, rank - 1)):
        index = draft.constant(np.array(axis, "int64"))
        extent = draft.op("Gather", [whole, index], axis=0)
        axes, attributes = axes_form(draft, [0], 13)
        parts.append(draft.op("Unsqueeze", [extent, *axes], **attributes))
    return draft.op("Reshape", [x, draft.op("Concat", [*parts, _ints(draft, [-1])], axis=0)])


@step(1)
def flatten(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "int32"), SHAPED)
    axis = draft.between(0, draft.rank(x))
    if draft.opset >= 11 and draft.chance(0.3):
        axis = -draft.between(1, draft.rank(x))
    return draft.op("Flatten", [x], axis=axis)


@step(2)
def squeeze(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, RANKS)
    ones = [a for a, e in enumerate(draft.shape(x)) if e == 1 and draft.is_fixed(x, a)]
    if ones and draft.chance(0.5):
        axes = None if draft.chance(0.2) and draft.is_fixed(x) else [draft.pick(ones)]
        if axes and draft.opset >= 11 and draft.chance(0.4):
            axes = [axes[0] - draft.rank(x)]
        inputs, attributes = axes_form(draft, axes, 13)
        return draft.op("Squeeze", [x, *inputs], **attributes)
    axes = [draft.between(0, draft.rank(x))]
    if draft.chance(0.3):
        axes.append(axes[0] + 1)
    if draft.opset >= 11 and draft.chance(0.3) and len(axes) == 1:
        axes = [-1 - axes[0]]
    inputs, attributes = axes_form(draft, axes, 13)
    return draft.op("Unsqueeze", [x, *inputs], **attributes)


@step(4)
def slice_(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, SHAPED)
    rank = draft.rank(x)
    count = min(rank, draft.pick((1, 1, 2)))
    axes = sorted(int(a) for a in draft.rng.permutation(rank)[:count])
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = draft.shape(x)[axis]
        stride = draft.pick((1, 1, 1, 2, 3, -1, -2)) if draft.opset >= 10 else 1
        low, high = sorted((draft.between(0, extent), draft.between(0, extent)))
        if low == high and draft.chance(0.9):
            low, high = 0, extent
        if draft.chance(0.3):
            low -= extent
        if draft.chance(0.3) and high < extent:
            high -= extent
        if draft.chance(0.3):
            high = draft.pick((2**31 - 1, 2**63 - 1, extent + 3))
        if stride < 0:
            low, high = draft.pick(
                ((-1, -(2**31)), (extent - 1, 0), (-1, -extent - 1), (2**31 - 1, -(2**63)))
            )
        starts.append(low), ends.append(high), steps.append(stride)
    if draft.chance(0.3):
        axes = [axis - rank for axis in axes]
    if draft.opset < 10:
        return draft.op("Slice", [x], starts=starts, ends=ends, axes=axes)
    fields = [_ints(draft, starts), _ints(draft, ends), _ints(draft, axes)]
    if any(s != 1 for s in steps) or draft.chance(0.3):
        fields.append(_ints(draft, steps))
    return draft.op("Slice", [x, *fields])


@step(3)
def concat(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, SHAPED)
    shape, axis = draft.shape(x), axis_of(draft, x)
    place = axis % len(shape)
    fits = [
        name
        for name in draft.candidates((draft.dtype(x),), (len(shape),))
        if all(
            a == b
            for i, (a, b) in enumerate(zip(draft.shape(name), shape, strict=True))
            if i != place
        )
    ]
    parts = [x, *(draft.pick(fits) for _ in range(draft.between(0, 2)))]
    if draft.chance(0.3) and draft.is_fixed(x):
        form = [*shape[:place], draft.between(0, 2) or 1, *shape[place + 1 :]]
        parts.append(draft.constant(draft.array(form, draft.dtype(x))))
    order = [parts[int(i)] for i in draft.rng.permutation(len(parts))]
    return draft.op("Concat", order, axis=axis)


@step(2)
def split(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "int64", "int32"), SHAPED)
    axis = axis_of(draft, x)
    place = axis % draft.rank(x)
    extent = draft.shape(x)[place]
    require(extent > 1 and draft.is_fixed(x, place), "nothing to split")
    count = draft.between(2, min(3, extent))
    if draft.chance(0.5) and draft.opset >= 18:
        parts = draft.op("Split", [x], outputs=count, axis=axis, num_outputs=count)
    elif draft.chance(0.4) and extent % count == 0 and draft.opset < 18:
        parts = draft.op("Split", [x], outputs=count, axis=axis)
    else:
        sizes = [1] * (count - 1)
        sizes.append(extent - sum(sizes))
        sizes = [sizes[int(i)] for i in draft.rng.permutation(count)]
        if draft.opset >= 13:
            parts = draft.op("Split", [x, _ints(draft, sizes)], outputs=count, axis=axis)
        else:
            parts = draft.op("Split", [x], outputs=count, axis=axis, split=sizes)
    return draft.pick(parts)


@step(2)
def expand(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, RANKS)
    shape = [
        draft.between(1, 4) if extent == 1 and draft.is_fixed(x, axis) else
        (extent if draft.chance(0.5) and draft.is_fixed(x, axis) else 1)
        for axis, extent in enumerate(draft.shape(x))
    ]  # fmt: skip
    if draft.chance(0.3):
        shape.insert(0, draft.between(1, 3))
    if draft.chance(0.2) and shape:
        shape = shape[1:]
    require(draft.opset >= 8, "Expand is of opset 8")
    return draft.op("Expand", [x, _ints(draft, shape)])


@step(1.5)
def tile(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, SHAPED)
    repeats = [draft.pick((1, 1, 2, 3)) for _ in range(draft.rank(x))]
    if draft.chance(0.05):
        repeats[0] = 0
    return draft.op("Tile", [x, _ints(draft, repeats)])


@step(3)
def pad(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "float64", "int32"), SHAPED)
    modes = ["constant", "constant", "reflect", "edge"]
    if draft.opset >= 19:
        modes.append("wrap")
    mode = str(draft.pick(modes))
    rank = draft.rank(x)
    low = -1 if mode == "constant" and draft.chance(0.2) else 0
    pads = [draft.between(low, 2) if draft.chance(0.5) else 0 for _ in range(2 * rank)]
    if draft.opset < 11:
        require(draft.dtype(x) == "float32", "Pad takes floats until opset 10")
        return draft.op("Pad", [x], mode=mode, pads=pads, value=draft.pick((None, 1.5)))
    inputs = [x, _ints(draft, pads)]
    if mode == "constant" and draft.chance(0.5):
        inputs.append(draft.constant(np.asarray(1.5, draft.dtype(x))))
    if draft.opset >= 18 and draft.chance(0.3):
        axis = draft.between(0, rank - 1)
        chosen = [pads[axis], pads[axis + rank]]
        fill = inputs[2] if len(inputs) > 2 else ""
        at = axis - rank if draft.chance(0.5) else axis
        inputs = [x, _ints(draft, chosen), fill, _ints(draft, [at])]
    return draft.op("Pad", inputs, mode=mode if draft.chance(0.9) or mode != "constant" else None)


def _indices(draft: Draft, shape: object, extent: int) -> str:
    low = -extent if draft.opset >= 11 and draft.chance(0.4) else 0
    require(extent > 0, "nothing to gather")
    values = draft.rng.integers(low, extent, shape).astype(draft.pick(("int64", "int64", "int32")))
    if draft.chance(0.15):
        name = draft.name("x")
        draft.inputs[name] = list(values.shape)
        draft.values[name] = [values] * len(draft.worlds)
        return name
    return draft.constant(values)


@step(3)
def gather(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, SHAPED)
    axis = axis_of(draft, x)
    extent = min(value.shape[axis] for value in draft.values[x])
    shape = draft.pick(
        ((), (1,), (2,), (3,), (2, 2), (0,)) if draft.chance(0.3) else ((), (3,), (2,))
    )
    return draft.op("Gather", [x, _indices(draft, shape, extent)], axis=axis)


@step(1.5, since=11)
def gather_elements(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, SHAPED)
    require(draft.is_fixed(x), "one shape of indices")
    axis = axis_of(draft, x)
    shape = list(draft.shape(x))
    extent = shape[axis]
    shape[axis] = draft.between(1, 4)
    return draft.op("GatherElements", [x, _indices(draft, shape, extent)], axis=axis)


@step(1, since=11)
def gather_nd(draft: Draft, x: str) -> str:
    x = source(draft, x, ANY, range(1, 5))
    require(draft.is_fixed(x) and min(draft.shape(x)) > 0, "one shape of indices")
    depth = draft.between(1, draft.rank(x))
    count = draft.between(1, 3)
    columns = [draft.rng.integers(0, draft.shape(x)[i], (count,)) for i in range(depth)]
    return draft.op("GatherND", [x, _ints(draft, np.stack(columns, -1))])


@step(2, since=11)
def scatter(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "int64", "int32"), range(1, 5))
    require(draft.is_fixed(x) and min(draft.shape(x)) > 0, "one shape of indices")
    shape, dtype = list(draft.shape(x)), draft.dtype(x)
    kinds = [None, None]
    if draft.opset >= 16:
        kinds += ["add", "mul"]
    if draft.opset >= 18:
        kinds += ["max", "min"]
    reduction = draft.pick(kinds)
    if draft.chance(0.6):
        axis = axis_of(draft, x)
        extent = shape[axis]
        shape[axis] = draft.between(1, extent)
        ordered = np.argsort(
            draft.rng.random(
                (*shape[: axis % len(shape)], extent, *shape[axis % len(shape) + 1 :])
            ),
            axis=axis,
        )
        chosen = np.take(ordered, range(shape[axis]), axis=axis)  # no place twice
        if draft.chance(0.3):
            chosen = chosen - extent
        updates = draft.constant(draft.array(shape, dtype), fixed=False)
        return draft.op(
            "ScatterElements", [x, _ints(draft, chosen), updates], axis=axis, reduction=reduction
        )
    depth = draft.between(1, len(shape))
    places = int(np.prod(shape[:depth]))
    chosen = draft.rng.permutation(places)[: draft.between(1, min(3, places))]
    indices = np.stack(np.unravel_index(chosen, shape[:depth]), -1)
    updates = draft.constant(draft.array((len(chosen), *shape[depth:]), dtype), fixed=False)
    return draft.op("ScatterND", [x, _ints(draft, indices), updates], reduction=reduction)


@step(1.5)
def top_k(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "int64", "int32"), SHAPED)
    axis = axis_of(draft, x)
    extent = min(value.shape[axis] for value in draft.values[x])
    k = draft.between(0 if draft.chance(0.05) else min(1, extent), extent)
    if draft.opset < 10:
        outputs = draft.op("TopK", [x], outputs=2, axis=axis, k=k)
    else:
        extra = {} if draft.opset < 11 else {"largest": draft.pick((None, 0)), "sorted": None}
        outputs = draft.op("TopK", [x, _ints(draft, [k])], outputs=2, axis=axis, **extra)
    return draft.pick(outputs)


@step(1, since=9)
def one_hot(draft: Draft, x: str) -> str:
    x = source(draft, x, ("int64", "int32", "float32"), range(0, 4))
    depth = draft.between(1, 6)
    dtype = draft.pick(("float32", "int64", "int32", "float64", "float32"))
    values = draft.constant(np.array(draft.pick(([0, 1], [-1, 5])), dtype))
    axis = draft.pick((None, -1, 0, 1)) if draft.rank(x) else draft.pick((None, -1, 0))
    size = draft.constant(
        np.array(draft.pick((depth, [depth])), draft.pick(("int64", "int32", "float32")))
    )
    return draft.op("OneHot", [x, size, values], axis=axis)


@step(1)
def where_things_are(draft: Draft, x: str) -> str:
    """Operators whose results have shapes that depend on data, or on nothing."""
    kind = draft.pick(("Shape", "Size", "NonZero", "Compress", "Trilu", "EyeLike", "Range", "Fill"))
    if kind in ("Shape", "Size"):
        x = source(draft, x, ANY, RANKS)
        ends = {"start": draft.pick((None, 1, -1)), "end": draft.pick((None, -1, 2))}
        return draft.op(kind, [x], **(ends if kind == "Shape" and draft.opset >= 15 else {}))
    if kind == "NonZero":
        require(draft.opset >= 9 and draft.chance(0.3), "refused as it is known to be")
        return draft.op("NonZero", [source(draft, x, ANY, SHAPED)])
    if kind == "Compress":
        x = source(draft, x, ("float32",), SHAPED)
        axis = axis_of(draft, x)
        require(draft.opset >= 11 and draft.is_fixed(x, axis), "one length of the condition")
        flags = draft.constant(draft.rng.random(draft.shape(x)[axis]) < 0.6)
        return draft.op("Compress", [x, flags], axis=axis)
    if kind == "Trilu":
        x = source(draft, x, ("float32", "float32", "int64", "bool"), range(2, 5))
        require(draft.opset >= 14, "Trilu is of opset 14")
        offset = [_ints(draft, draft.between(-2, 2))] if draft.chance(0.6) else []
        return draft.op("Trilu", [x, *offset], upper=draft.pick((None, 0, 1)))
    if kind == "EyeLike":
        x = source(draft, x, ("float32", "int64", "float32"), (2,))
        require(draft.opset >= 9, "EyeLike is of opset 9")
        return draft.op("EyeLike", [x], k=draft.pick((None, -1, 1)), dtype=draft.pick((None, 1, 7)))
    if kind == "Range":
        require(draft.opset >= 11, "Range is of opset 11")
        dtype = draft.pick(("int64", "float32", "int32"))
        bounds = draft.pick(((0, 5, 1), (5, 0, -2), (1, 1, 1), (2, 9, 3)))
        return draft.op("Range", [draft.constant(np.array(b, dtype)) for b in bounds])
    require(draft.opset >= 9, "ConstantOfShape is of opset 9")
    x = source(draft, x, ANY, RANKS)
    from onnx import numpy_helper

    value = numpy_helper.from_array(draft.array((1,), draft.pick(("float32", "int64", "bool"))))
    return draft.op("ConstantOfShape", [draft.op("Shape", [x])], value=value)


@step(0.7, since=10)
def reverse_sequence(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), range(2, 5))
    require(draft.is_fixed(x) and min(draft.shape(x)[:2]) > 0, "one length of each sequence")
    batch_axis = draft.between(0, 1)
    shape = draft.shape(x)
    lengths = draft.rng.integers(1, shape[1 - batch_axis] + 1, (shape[batch_axis],))
    axes = {"batch_axis": batch_axis, "time_axis": 1 - batch_axis}
    return draft.op("ReverseSequence", [x, _ints(draft, lengths)], **axes)


@step(0.7, since=9)
def scatter_of_integers(draft: Draft, x: str) -> str:
    """A table lookup: indices that come from outside."""
    rows, columns = draft.between(1, 8), draft.between(1, 6)
    table = draft.weight((rows, columns))
    ids = draft.name("x")
    shape = [draft.between(1, 4) for _ in range(draft.between(0, 2))]
    draft.inputs[ids] = list(shape)
    dtype = draft.pick(INTEGERS[:2])
    draft.values[ids] = [draft.rng.integers(0, rows, shape).astype(dtype)] * len(draft.worlds)
    return draft.op("Gather", [table, ids])
