"""Steps on signals, boxes, rows and integer images."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.steps import axis_of, require, source, step


def _ints(draft: Draft, values: object) -> str:
    return draft.constant(np.array(values, "int64"))


@step(1, since=17)
def transform(draft: Draft, x: str) -> str:
    """DFT along an axis, forward and back, and STFT of a line of samples."""
    if draft.chance(0.4):
        x = source(draft, x, ("float32",), (2,))
        length = draft.shape(x)[1]
        require(length > 2, "too short")
        size = draft.between(2, min(length, 8))
        window = [draft.weight((size,))] if draft.chance(0.6) else [""]
        operands = [x, _ints(draft, draft.between(1, size)), *window, _ints(draft, size)]
        return draft.op("STFT", operands, onesided=draft.pick((None, 0, 1)))
    x = source(draft, x, ("float32",), (2, 3))
    y = draft.op("Unsqueeze", [x, _ints(draft, [-1])])
    axis = draft.between(1, draft.rank(x) - 1)
    length = _ints(draft, draft.between(1, 9)) if draft.chance(0.3) else ""
    if draft.opset >= 20:
        operands, extra = [y, length, _ints(draft, axis)], {}
    else:
        operands, extra = [y, *([length] if length else [])], {"axis": axis}
    if draft.chance(0.4):
        return draft.op("DFT", operands, onesided=1, **extra)
    y = draft.op("DFT", operands, **extra)
    return draft.op("DFT", [y, *operands[1:]], inverse=1, **extra) if draft.chance(0.4) else y


@step(1, since=11)
def boxes(draft: Draft, x: str) -> str:
    """NonMaxSuppression, RoiAlign, Unique: sized by values or read at computed places."""
    kind = draft.pick(("nms", "roi", "unique"))
    if kind == "unique":
        x = source(draft, x, ("float32", "int64"), (1, 2))
        rounded = draft.op("Round", [x]) if draft.dtype(x) == "float32" else x
        axis = draft.pick((None, 0)) if draft.rank(x) == 1 else None
        results = draft.op("Unique", [rounded], outputs=4, axis=axis, sorted=draft.pick((None, 1)))
        return str(draft.pick(results))
    count = draft.between(1, 6)
    corners = np.sort(draft.rng.uniform(0, 6, (count, 2, 2)), axis=1).reshape(count, 4)
    rois = draft.constant(corners.astype("float32"), fixed=False)
    if kind == "nms":
        scores = draft.input((1, draft.between(1, 3), count))
        stacked = draft.op("Unsqueeze", [rois, *_axes(draft, [0])], **_axes_attribute(draft, [0]))
        limits = [np.int64(draft.between(1, 4)), np.float32(0.4), np.float32(0.1)]
        operands = [draft.constant(limit) for limit in limits[: draft.between(1, 3)]]
        corner = draft.pick((None, 0))
        return draft.op("NonMaxSuppression", [stacked, scores, *operands], center_point_box=corner)
    x = source(draft, x, ("float32",), (4,))
    require(0 not in draft.shape(x) and draft.is_fixed(x, 0), "symbolic or empty images")
    places = draft.constant(draft.rng.integers(0, draft.shape(x)[0], count), "int64", fixed=False)
    return draft.op(
        "RoiAlign",
        [x, rois, places],
        mode=draft.pick((None, "avg")),
        output_height=draft.pick((None, 2, 3)),
        output_width=draft.pick((None, 2, 3)),
        sampling_ratio=draft.pick((None, 2)),
        spatial_scale=draft.pick((None, 0.5)),
        coordinate_transformation_mode="half_pixel"
        if draft.opset >= 16 and draft.chance(0.3)
        else None,
    )


def _axes(draft: Draft, axes: list[int]) -> list[str]:
    return [_ints(draft, axes)] if draft.opset >= 13 else []


def _axes_attribute(draft: Draft, axes: list[int]) -> dict[str, list[int]]:
    return {} if draft.opset >= 13 else {"axes": axes}


@step(1.5, since=10)
def integer_image(draft: Draft, x: str) -> str:
    """ConvInteger or QLinearConv of an image that is quantised on the way."""
    x = source(draft, x, ("float32",), (3, 4))
    require(draft.is_fixed(x, 1) and 0 not in draft.shape(x), "symbolic channels")
    channels, rank = draft.shape(x)[1], draft.rank(x) - 2
    dtype = str(draft.pick(("uint8", "int8", "uint8")))
    scale = draft.constant(np.float32(0.03))
    zero = draft.constant(draft.array((), dtype))
    q = draft.op("QuantizeLinear", [x, scale, zero])
    outputs = draft.between(1, 9)
    kernel = [min(draft.between(1, 3), extent) for extent in draft.shape(x)[2:]]
    weight = draft.constant(draft.array((outputs, channels, *kernel), "int8"))
    form = {
        "pads": [draft.between(0, 1) for _ in range(2 * rank)] if draft.chance(0.5) else None,
        "strides": [draft.between(1, 2) for _ in range(rank)] if draft.chance(0.4) else None,
    }
    if draft.chance(0.5):
        y = draft.op("ConvInteger", [q, weight, zero], **form)
        return draft.op("Cast", [y], to=1) if draft.chance(0.6) else y
    per_channel = draft.chance(0.5)
    size = (outputs,) if per_channel else ()
    scales = draft.constant((draft.rng.random(size) * 0.1 + 0.01).astype("float32"))
    zeros = draft.constant(np.zeros(size, "int8"))
    operands = [q, scale, zero, weight, scales, zeros]
    operands += [draft.constant(np.float32(0.2)), draft.constant(draft.array((), dtype))]
    if draft.chance(0.5):
        operands.append(draft.constant(draft.array((outputs,), "int32")))
    y = draft.op("QLinearConv", operands, **form)
    return draft.op("DequantizeLinear", [y, *operands[6:8]])


@step(1, since=10)
def integer_product(draft: Draft, x: str) -> str:
    """QLinearMatMul, with scales by column at times."""
    x = source(draft, x, ("float32",), (2, 3))
    require(draft.is_fixed(x, -1), "symbolic inner extent")
    dtype = str(draft.pick(("uint8", "int8")))
    scale, zero = draft.constant(np.float32(0.04)), draft.constant(draft.array((), dtype))
    q = draft.op("QuantizeLinear", [x, scale, zero])
    columns = draft.between(1, 9)
    right = draft.constant(draft.array((draft.shape(x)[-1], columns), "int8"))
    size = (columns,) if draft.chance(0.4) else ()
    scales = draft.constant((draft.rng.random(size) * 0.1 + 0.01).astype("float32"))
    last = [draft.constant(np.float32(0.1)), draft.constant(draft.array((), dtype))]
    zeros = draft.constant(np.zeros(size, "int8"))
    y = draft.op("QLinearMatMul", [q, scale, zero, right, scales, zeros, *last])
    return draft.op("DequantizeLinear", [y, *last])


@step(0.4)
def lp_normalised(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), range(1, 5))
    attributes = {"axis": axis_of(draft, x), "p": draft.pick((None, 1, 2))}
    return draft.op("LpNormalization", [x], **attributes)


@step(0.3, since=11)
def determinant(draft: Draft, x: str) -> str:
    size = draft.between(1, 4)
    lead = [draft.between(1, 3)] if draft.chance(0.5) else []
    x = draft.input((*lead, size, size))
    return draft.op("Det", [x])


@step(0.5, since=18)
def cropped(draft: Draft, x: str) -> str:
    """CenterCropPad, or blocks of columns laid on an image (Col2Im)."""
    if draft.chance(0.5):
        x = source(draft, x, ("float32", "int64"), range(1, 5))
        axis = axis_of(draft, x)
        return draft.op("CenterCropPad", [x, _ints(draft, [draft.between(1, 7)])], axes=[axis])
    block, channels, blocks = (2, draft.between(1, 2)), draft.between(1, 3), (3, 2)
    size = (block[0] + blocks[0] - 1, channels + blocks[1] - 1)
    columns = draft.between(1, 3) * block[0] * channels
    x = draft.input((draft.between(1, 2), columns, blocks[0] * blocks[1]))
    return draft.op("Col2Im", [x, _ints(draft, size), _ints(draft, (block[0], channels))])


@step(0.5, since=11)
def unpooled(draft: Draft, x: str) -> str:
    """MaxPool with indices, and its inverse."""
    x = source(draft, x, ("float32",), (4,))
    require(min(draft.shape(x)) > 0 and min(draft.shape(x)[2:]) > 1, "too small")
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, places = draft.op("MaxPool", [x], outputs=2, **window)
    return draft.op("MaxUnpool", [y, places], **window)


@step(0.4, since=20)
def affine(draft: Draft, x: str) -> str:
    """An image seen through AffineGrid and GridSample."""
    x = source(draft, x, ("float32",), (4,))
    require(draft.is_fixed(x), "symbolic image")
    batch, channels = draft.shape(x)[:2]
    size = [batch, channels, draft.between(1, 4), draft.between(1, 4)]
    corners = draft.pick((None, 0, 1))
    theta = draft.weight((batch, 2, 3))
    grid = draft.op("AffineGrid", [theta, _ints(draft, size)], align_corners=corners)
    return draft.op("GridSample", [x, grid], align_corners=corners)


@step(0.5, since=23)
def rotated(draft: Draft, x: str) -> str:
    """RotaryEmbedding with rows of tables that positions choose."""
    x = source(draft, x, ("float32",), (4,))
    batch, _, length, width = draft.shape(x)
    require(draft.is_fixed(x) and width > 1 and width % 2 == 0 and batch * length > 0, "odd width")
    tables = [draft.weight((12, width // 2)) for _ in range(2)]
    places = draft.constant(draft.rng.integers(0, 12, (batch, length)), "int64", fixed=False)
    return draft.op("RotaryEmbedding", [x, *tables, places], interleaved=draft.pick((None, 0, 1)))


@step(0.4, since=24)
def cached(draft: Draft, x: str) -> str:
    """Swish, and TensorScatter into a cache."""
    x = source(draft, x, ("float32",), (4,))
    require(draft.is_fixed(x) and 0 not in draft.shape(x), "symbolic update")
    batch, heads, length, width = draft.shape(x)
    y = draft.op("Swish", [x], alpha=draft.pick((None, 0.5)))
    cache = draft.input((batch, heads, length + 3, width))
    places = draft.constant(draft.rng.integers(0, 4, batch), "int64", fixed=False)
    return draft.op("TensorScatter", [cache, y, places])
