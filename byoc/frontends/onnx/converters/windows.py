"""Pooling, transposed convolution and regions of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.node import Node, in_float32
from byoc.frontends.onnx.same_padding import same_pads
from codegen_cc.dim import is_static


def pool(node: Node) -> relax.Expr:
    """Padding in place of its name, and of ``ceil_mode``.

    Where rounding up gives one more window, the padding at the end grows until that fits, unless it
    would begin there: ``(n - 1) stride >= extent + begin`` (ONNX operator specification, MaxPool).
    An average that counts padding does not count what was added so; the padding that counts is then
    written as zeros before.
    """
    shape, kernel = node.shape(), node.attrs["kernel_shape"]
    if shape is None or not is_static(shape[2:]):
        _round_down(node)
        return node.tvm()
    attrs, rank = node.attrs, len(kernel)
    ones = [1] * rank
    strides, dilations = (list(attrs.get(name, ones)) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 2 * rank))
    named = attrs.pop("auto_pad", b"NOTSET")
    if named.startswith(b"SAME"):
        lower = named == b"SAME_LOWER"
        pads = same_pads(shape[2:], kernel, strides, dilations, lower, pool=True)
    elif named == b"VALID":
        pads = [0] * 2 * rank
    ends = list(pads[rank:])
    if attrs.pop("ceil_mode", 0):
        for i, (size, taps, step, gap) in enumerate(
            zip(shape[2:], kernel, strides, dilations, strict=True)
        ):
            reach = (taps - 1) * gap + 1
            count = -(-(size + pads[i] + pads[rank + i] - reach) // step) + 1
            count -= (count - 1) * step >= size + pads[i]
            ends[i] = max(ends[i], (count - 1) * step + reach - size - pads[i])
    counted = node.operator == "LpPool" or (
        attrs.get("count_include_pad", 0) and ends != pads[rank:]
    )
    if counted and any([*pads, *ends]):
        counts = ends if node.operator == "LpPool" else pads[rank:]
        pads, ends = [0] * rank, _zeros_that_count(node, pads[:rank], counts, ends)
    attrs["pads"] = (*pads[:rank], *ends)
    return node.tvm()


def _zeros_that_count(
    node: Node, begins: Sequence[int], counts: Sequence[int], ends: Sequence[int]
) -> list[int]:
    """Write the padding that counts in a mean as zeros before the pool; the rest of the ends."""
    if any([*begins, *counts]):
        widths = [0] * 4 + [w for pair in zip(begins, counts, strict=True) for w in pair]
        node.inputs[0] = node.emit(relax.op.nn.pad(node.inputs[0], widths))
    node.attrs["count_include_pad"] = 0
    return [end - zeros for end, zeros in zip(ends, counts, strict=True)]


def _round_down(node: Node) -> None:
    """Padding in place of ``ceil_mode`` that is right for images of any extent n.

    Windows that begin before ``n + begin`` are as many as ``(n + begin) / stride``, rounded up; one
    begins later at most where ``end + stride > reach``, and there all of those exist. TVM's own
    count chooses between two, and TVM cannot compile other operators of such an extent. Padding
    that counts is written as zeros before, as in ``pool``.
    """
    attrs = node.attrs
    named = attrs.get("auto_pad", b"NOTSET") != b"NOTSET"
    if node.operator == "LpPool" and attrs.get("ceil_mode", 0):
        raise ValueError("ceil_mode of an image of unknown size; need 0, or a fixed size")
    if node.operator == "LpPool" or named:
        return
    if not attrs.pop("ceil_mode", 0):
        return
    kernel = attrs["kernel_shape"]
    rank = len(kernel)
    strides, dilations = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    pads = list(attrs.get("pads", [0] * 2 * rank))
    begins, ends = pads[:rank], []
    for taps, step, gap, end in zip(kernel, strides, dilations, pads[rank:], strict=True):
        reach = (taps - 1) * gap + 1
        ends.append(reach - 1 if end + step > reach else end + step - 1)
    if attrs.get("count_include_pad", 0):
        begins, ends = [0] * rank, _zeros_that_count(node, begins, pads[rank:], ends)
    attrs["pads"] = (*begins, *ends)


def conv_transpose(node: Node) -> relax.Expr:
    """The padding that ``output_shape`` asks for (ONNX operator specification, ConvTranspose)."""
    wanted, shape, attrs = node.attrs.pop("output_shape", None), node.shape(), node.attrs
    weight, groups = node.shape(1), attrs.get("group", 1)
    if weight is None or not is_static(weight):
        raise ValueError(f"weight {list(weight or ())}; need extents that are known")
    if groups > 1 and shape is not None and shape[1] != weight[0]:
        raise ValueError(
            f"{shape[1]} channels in {groups} groups for a weight {list(weight)}; need"
            f" {weight[0]} channels"
        )
    if wanted is None:
        return node.tvm()
    if shape is None or not is_static(shape[2:]):
        raise ValueError("output_shape of an image of unknown size; need a fixed one")
    kernel = node.shape(1)[2:]
    ones, rank = [1] * len(kernel), len(kernel)
    strides, dilations = (attrs.get(name, ones) for name in ("strides", "dilations"))
    extra = list(attrs.get("output_padding", [0] * rank))
    named = attrs.pop("auto_pad", b"NOTSET")
    begins, ends = [], []
    for i, target in enumerate(wanted[-rank:]):
        full = (shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i]
        total = full - target
        if total < 0:
            extra[i], total = extra[i] - total, 0
        if extra[i] >= max(strides[i], dilations[i]):
            raise ValueError(f"output_shape {target} of axis {2 + i} is beyond all inputs' reach")
        small, large = total // 2, total - total // 2
        begins.append(small if named == b"SAME_UPPER" else large)
        ends.append(large if named == b"SAME_UPPER" else small)
    attrs["pads"], attrs["output_padding"] = (*begins, *ends), tuple(extra)
    return node.tvm()


def roi_align(node: Node) -> relax.Expr:
    """Half a pixel is one of the image: TVM takes it off before the regions are scaled to that."""
    mode = b"half_pixel" if node.opset >= 16 else b"output_half_pixel"
    scale = node.attrs.get("spatial_scale", 1.0)
    if node.attrs.get("coordinate_transformation_mode", mode) == b"half_pixel" and scale != 1:
        shift = relax.const(0.5 - 0.5 / scale, node.dtype(1))
        node.inputs[1] = node.emit(relax.op.add(node.inputs[1], shift))
    return node.tvm()


def local_response(node: Node) -> relax.Expr:
    """LRN; of float64 as a sum of shifted squares, as TVM has constants of float32 alone."""
    dtype, shape = node.dtype(), node.shape()
    if dtype != "float64":
        return in_float32(node)
    if shape is None or not isinstance(shape[1], int):
        raise ValueError("float64 of an unknown number of channels; need a known one")
    size, image = node.attrs["size"], node.inputs[0]
    alpha, beta, bias = (
        relax.const(node.attrs.get(name, default), dtype)
        for name, default in (("alpha", float(np.float32(1e-4))), ("beta", 0.75), ("bias", 1.0))
    )
    widths = [0, 0, (size - 1) // 2, size // 2] + [0] * 2 * (len(shape) - 2)
    squares = node.emit(relax.op.nn.pad(relax.op.multiply(image, image), widths))
    total = relax.const(0, dtype)
    for shift in range(size):
        part = relax.op.strided_slice(squares, [1], [shift], [shift + shape[1]])
        total = node.emit(relax.op.add(total, part))
    share = relax.op.divide(relax.op.multiply(alpha, total), relax.const(size, dtype))
    return relax.op.divide(image, relax.op.power(relax.op.add(bias, share), beta))
