"""Steps on images: convolutions, pools, resizing, and what stands around them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft, Unusable
from tests.fuzz.elementwise import activation
from tests.fuzz.steps import require, source, step

SPATIAL = (3, 4, 4, 4, 4, 5)


def image(draft: Draft, x: str, fixed_channels: bool = True) -> str:
    """A value of one, two or three spatial axes, whose channels have one extent."""
    x = source(draft, x, ("float32",), (draft.pick(SPATIAL),) if draft.chance(0.6) else (3, 4, 5))
    require(not fixed_channels or draft.is_fixed(x, 1), "symbolic channels")
    return x


def _window(draft: Draft, x: str, largest: int = 3) -> list[int]:
    return [
        min(draft.between(1, largest), max(1, extent)) if draft.chance(0.9) else largest
        for extent in draft.shape(x)[2:]
    ]


def _padding(draft: Draft, kernel: list[int]) -> dict[str, object]:
    kind = draft.pick(("none", "pads", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if kind == "none":
        return {}
    if kind == "pads":
        begin = [draft.between(0, max(0, size - 1)) for size in kernel]
        end = begin if draft.chance(0.5) else [draft.between(0, max(0, s - 1)) for s in kernel]
        return {"pads": [*begin, *end]}
    return {"auto_pad": kind}


def _strides(draft: Draft, rank: int, share: float = 0.6) -> list[int] | None:
    return [draft.between(1, 3) for _ in range(rank)] if draft.chance(share) else None


@step(5)
def convolution(draft: Draft, x: str) -> str:
    x = image(draft, x)
    channels, rank = draft.shape(x)[1], draft.rank(x) - 2
    if not channels:
        raise Unusable("ONNX Runtime hangs in convolutions of no channels")
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    groups = draft.pick((1, 1, 1, channels, draft.pick(divisors)))
    outputs = groups * draft.between(1, 4)
    kernel = _window(draft, x)
    scale = 1 / max(1.0, float(np.prod(kernel)) ** 0.5)
    operands = [x, draft.weight((outputs, channels // groups, *kernel), scale)]
    if draft.chance(0.5):
        operands.append(draft.weight((outputs,)))
    dilations = [draft.between(1, 2) for _ in range(rank)] if draft.chance(0.25) else None
    y = draft.op(
        "Conv",
        operands,
        group=groups if groups > 1 else None,
        strides=_strides(draft, rank, 0.4),
        dilations=dilations,
        kernel_shape=kernel if draft.chance(0.7) else None,
        **_padding(draft, kernel),
    )
    return _epilogue(draft, y)


def _epilogue(draft: Draft, y: str) -> str:
    if draft.chance(0.3):
        y = batch_norm(draft, y)
    if draft.chance(0.4):
        kind = draft.pick(("Relu", "Sigmoid", "LeakyRelu", "HardSwish", "Tanh", "Elu"))
        y = activation(draft, y, kind if kind != "HardSwish" or draft.opset >= 14 else "Relu")
    return y


def batch_norm(draft: Draft, y: str) -> str:
    channels = draft.shape(y)[1]
    scale, bias, mean = (draft.weight((channels,)) for _ in range(3))
    variance = draft.constant(np.abs(draft.array((channels,))) + np.float32(0.5))
    epsilon = draft.pick((None, 1e-3))
    return draft.op("BatchNormalization", [y, scale, bias, mean, variance], epsilon=epsilon)


@step(1)
def normalised(draft: Draft, x: str) -> str:
    x = image(draft, x)
    kind = draft.pick(("batch", "batch", "instance", "lrn", "group"))
    channels = draft.shape(x)[1]
    if kind == "batch":
        return batch_norm(draft, x)
    if kind == "instance":
        epsilon = draft.pick((None, 1e-3))
        scale, bias = draft.weight((channels,)), draft.weight((channels,))
        return draft.op("InstanceNormalization", [x, scale, bias], epsilon=epsilon)
    if kind == "lrn":
        size = draft.pick((1, 3, 5, 2))
        return draft.op(
            "LRN", [x], size=size, alpha=draft.pick((None, 0.5)), bias=draft.pick((None, 2.0))
        )
    require(draft.opset >= 18, "GroupNormalization is of opset 18")
    groups = draft.pick([g for g in range(1, channels + 1) if channels % g == 0] or [1])
    size = channels if draft.opset >= 21 else groups
    scale, bias = draft.weight((size,)), draft.weight((size,))
    return draft.op("GroupNormalization", [x, scale, bias], num_groups=groups)


@step(3)
def transposed_convolution(draft: Draft, x: str) -> str:
    x = image(draft, x)
    channels, rank = draft.shape(x)[1], draft.rank(x) - 2
    divisors = [g for g in range(1, channels + 1) if channels % g == 0] or [1]
    groups = draft.pick((1, 1, channels or 1, draft.pick(divisors)))
    outputs = draft.between(1, 3)
    kernel = [draft.between(1, 3) for _ in range(rank)]
    operands = [
        x,
        draft.weight((channels, outputs, *kernel), 1 / max(1.0, float(np.prod(kernel)) ** 0.5)),
    ]
    if draft.chance(0.5):
        operands.append(draft.weight((outputs * groups,)))
    strides = _strides(draft, rank)
    attributes = _padding(draft, kernel)
    if draft.chance(0.3) and strides:
        attributes["output_padding"] = [draft.between(0, stride - 1) for stride in strides]
    if draft.chance(0.2) and draft.is_fixed(x):
        attributes.pop("pads", None)
        steps = strides or [1] * rank
        attributes["output_shape"] = [
            extent * stride + draft.between(-1, 1)
            for extent, stride in zip(draft.shape(x)[2:], steps, strict=True)
        ]
    return draft.op(
        "ConvTranspose",
        operands,
        group=groups if groups > 1 else None,
        strides=strides,
        dilations=[draft.between(1, 2) for _ in range(rank)] if draft.chance(0.2) else None,
        **attributes,
    )


@step(4)
def pool(draft: Draft, x: str) -> str:
    x = image(draft, x, False)
    kind = str(draft.pick(("MaxPool", "AveragePool", "MaxPool", "AveragePool", "LpPool")))
    rank = draft.rank(x) - 2
    kernel = _window(draft, x, 4)
    attributes = _padding(draft, kernel)
    if draft.opset >= 10 and kind != "LpPool" and draft.chance(0.4):
        attributes["ceil_mode"] = 1
    if draft.chance(0.25) and draft.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[kind]:
        attributes["dilations"] = [draft.between(1, 2) for _ in range(rank)]
    if kind == "AveragePool" and draft.chance(0.4):
        attributes["count_include_pad"] = 1
    if kind == "LpPool":
        attributes["p"] = draft.pick((None, 1, 2, 3))
    strides = _strides(draft, rank)
    return draft.op(kind, [x], kernel_shape=kernel, strides=strides, **attributes)


@step(1)
def global_pool(draft: Draft, x: str) -> str:
    x = image(draft, x, False)
    kind = draft.pick(("GlobalAveragePool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"))
    return draft.op(kind, [x])


@step(4)
def resize(draft: Draft, x: str) -> str:
    x = image(draft, x, False)
    rank = draft.rank(x)
    if draft.opset < 10:
        kind, extra = "Upsample", {}
        require(draft.opset < 9 or True, "")
        scales = [1.0, 1.0, *(float(draft.pick((1, 2, 2, 3, 1.5))) for _ in range(rank - 2))]
        mode = draft.pick(("nearest", "linear"))
        if draft.opset < 9:
            return draft.op(kind, [x], mode=mode, scales=scales)
        return draft.op(kind, [x, draft.constant(np.array(scales, "float32"))], mode=mode, **extra)
    factors = [float(draft.pick((1, 2, 2, 0.5, 3, 1.5, 0.7))) for _ in range(rank - 2)]
    scales = [1.0, 1.0, *factors]
    if draft.opset == 10:
        mode = draft.pick(("nearest", "linear"))
        return draft.op("Resize", [x, draft.constant(np.array(scales, "float32"))], mode=mode)
    return _resize(draft, x, scales)


def _resize(draft: Draft, x: str, scales: list[float]) -> str:
    mode = str(draft.pick(("nearest", "nearest", "linear", "linear", "cubic")))
    transforms = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    if draft.opset >= 19:
        transforms.append("half_pixel_symmetric")
    if draft.chance(0.1):
        transforms = ["tf_crop_and_resize"]
    attributes: dict[str, object] = {"mode": mode}
    transform = str(draft.pick(transforms))
    if draft.chance(0.85):
        attributes["coordinate_transformation_mode"] = transform
    else:
        transform = "half_pixel"
    if mode == "nearest" and draft.chance(0.7):
        modes = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attributes["nearest_mode"] = draft.pick(modes)
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draft.pick((None, -0.5))
        attributes["exclude_outside"] = draft.pick((None, None, 1))
    roi = draft.constant(np.zeros(0, "float32")) if draft.opset < 13 else ""
    if transform == "tf_crop_and_resize":
        rank = len(scales)
        box = [0.0] * rank + [1.0] * rank
        box[2], box[rank + 2] = 0.1, 0.8
        roi = draft.constant(np.array(box, "float32"))
        attributes["extrapolation_value"] = draft.pick((None, 0.5))
    if draft.opset >= 18 and draft.chance(0.15) and mode != "nearest":
        attributes["antialias"] = 1
    sizes_given = draft.chance(0.4) and draft.is_fixed(x)
    shape = draft.shape(x)
    target = [max(1, int(extent * scale)) for extent, scale in zip(shape, scales, strict=True)]
    target = [shape[0], shape[1], *(t + draft.between(0, 1) for t in target[2:])]
    if draft.opset >= 18 and draft.chance(0.2):
        axes = list(range(2, len(shape)))
        attributes["axes"] = axes
        scales, target = [scales[a] for a in axes], [target[a] for a in axes]
        if sizes_given and draft.chance(0.5):
            attributes["keep_aspect_ratio_policy"] = draft.pick(("not_larger", "not_smaller"))
        if transform == "tf_crop_and_resize":
            roi = draft.constant(np.array([0.1] * len(axes) + [0.8] * len(axes), "float32"))
    if sizes_given:
        empty = draft.constant(np.zeros(0, "float32")) if draft.opset < 13 else ""
        return draft.op(
            "Resize", [x, roi, empty, draft.constant(np.array(target, "int64"))], **attributes
        )
    return draft.op("Resize", [x, roi, draft.constant(np.array(scales, "float32"))], **attributes)


@step(1)
def blocks(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), (4,))
    require(draft.is_fixed(x, 1), "symbolic channels")
    if draft.shape(x)[1] % 4 == 0 and draft.chance(0.6):
        mode = draft.pick((None, "DCR", "CRD")) if draft.opset >= 11 else None
        return draft.op("DepthToSpace", [x], blocksize=2, mode=mode)
    return draft.op("SpaceToDepth", [x], blocksize=draft.pick((1, 2, 2, 3)))


@step(1, since=16)
def grid_sample(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), (4,))
    batch = draft.shape(x)[0]
    require(draft.is_fixed(x, 0), "symbolic batch")
    grid = draft.input((batch, draft.between(1, 4), draft.between(1, 5), 2))
    modes = (
        ("bilinear", "nearest", "bicubic") if draft.opset < 20 else ("linear", "nearest", "cubic")
    )
    return draft.op(
        "GridSample",
        [x, grid],
        mode=draft.pick((None, *modes)),
        padding_mode=draft.pick((None, "zeros", "border", "reflection")),
        align_corners=draft.pick((None, 0, 1)),
    )


@step(1.5)
def channel_shuffle(draft: Draft, x: str) -> str:
    """Channels of two groups, in turns; squeeze and excitation."""
    x = source(draft, x, ("float32",), (4,))
    require(draft.is_fixed(x, 1), "symbolic channels")
    channels = draft.shape(x)[1]
    if draft.chance(0.5):
        pooled = draft.op("GlobalAveragePool", [x])
        inner = draft.between(1, 4)
        small = draft.op("Conv", [pooled, draft.weight((inner, channels, 1, 1))])
        small = draft.op("Relu", [small])
        gate = draft.op(
            "Sigmoid", [draft.op("Conv", [small, draft.weight((channels, inner, 1, 1))])]
        )
        return draft.op("Mul", [x, gate])
    require(channels % 2 == 0 and draft.is_fixed(x), "an odd number of channels")
    shape = draft.shape(x)
    groups = (shape[0], 2, channels // 2, *shape[2:])
    split = draft.op("Reshape", [x, draft.constant(np.array(groups, "int64"))])
    mixed = draft.op("Transpose", [split], perm=[0, 2, 1, 3, 4])
    return draft.op("Reshape", [mixed, draft.constant(np.array(shape, "int64"))])
