"""Padding by name, SAME_UPPER and SAME_LOWER, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from byoc.frontends.onnx.input_shapes import fixed_extent
from codegen_cc.dim import Dim, normal

#: Operators with padding by name: the place of a convolution's weight, None for pools.
_WEIGHTS = {
    "AveragePool": None,
    "Conv": 1,
    "ConvInteger": 1,
    "LpPool": None,
    "MaxPool": None,
    "QLinearAveragePool": None,
    "QLinearConv": 3,
}


def explicit_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write ``auto_pad`` of convolutions and pools as pads, which TVM's importer keeps in them.

    SAME_UPPER and SAME_LOWER give ceil(extent / stride) outputs and put an odd pixel of padding
    at the end or at the beginning (ONNX operator specification, Conv). With stride 1 that does not
    depend on the extent, which may then be symbolic; of other symbolic extents only the importer
    knows whether they are multiples of the stride (see ``symbolic_import``). The shapes of values
    are those that ``fold_onnx`` has left in the graph.
    """
    same = [node for node in model.graph.node if _auto_pad(node).startswith("SAME")]
    if not same:
        return model
    known = {
        value.name: [fixed_extent(dim) for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.value_info, *model.graph.input)
    }
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for node in same:
        image, kernel = known.get(node.input[0], []), _kernel(node, weights)
        if kernel is None or len(image) != len(kernel) + 2:
            continue
        strides = _integers(node, "strides", [1] * len(kernel))
        extents = [e if s != 1 else e or 1 for e, s in zip(image[2:], strides, strict=True)]
        if None not in extents:
            _write_pads(node, extents, kernel)
    return model


def _kernel(node: onnx.NodeProto, weights: dict[str, list[int]]) -> list[int] | None:
    """Extents of the window, of a convolution from its weight if that is stored."""
    place = _WEIGHTS[node.op_type]
    if place is not None and node.input[place] in weights:
        return weights[node.input[place]][2:]
    return _integers(node, "kernel_shape", None)


def _integers(node: onnx.NodeProto, name: str, default: list[int] | None) -> list[int] | None:
    return next((list(a.ints) for a in node.attribute if a.name == name and a.ints), default)


def _auto_pad(node: onnx.NodeProto) -> str:
    if node.op_type not in _WEIGHTS:
        return ""
    return next((a.s.decode() for a in node.attribute if a.name == "auto_pad"), "")


def _write_pads(node: onnx.NodeProto, image: list[int], kernel: list[int]) -> None:
    strides = _integers(node, "strides", [1] * len(kernel))
    dilations = _integers(node, "dilations", [1] * len(kernel))
    lower = _auto_pad(node) == "SAME_LOWER"
    try:
        pads = same_pads(
            image, kernel, strides, dilations, lower, pool=_WEIGHTS[node.op_type] is None
        )
    except ValueError:
        return  # the converter refuses the node by name
    kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])


def same_pads(
    image: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lower: bool,
    pool: bool,
) -> list[int] | None:
    """Pads before and after each axis; None where they depend on the values of symbols.

    A pool is padded as if it were not dilated, as in ONNX Runtime: its result is then smaller than
    the name of its padding promises. Windows that leave pixels out would need pads below 0: a
    convolution takes 0 then, as in ONNX Runtime. Of a pool that is a ValueError: engines fail
    there, or crop the image.
    """
    begin, end = [], []
    for size, taps, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
        apart = 1 if pool else dilation
        reach = (-(-size // stride) - 1) * stride + (taps - 1) * apart + 1
        total = normal(reach - size)
        if not isinstance(total, int):
            return None
        if pool and total < 0:
            raise ValueError("auto_pad that would need a negative padding")
        small, large = max(0, total) // 2, max(0, total) - max(0, total) // 2
        begin.append(large if lower else small)
        end.append(small if lower else large)
    return [*begin, *end]


def same_begins(reach: int, stride: int, lower: bool) -> list[int]:
    """The pads before an axis, for any size of it, of windows that reach over so many elements."""
    totals = {max(0, reach - (rest or stride)) for rest in range(stride)}
    return sorted({total - total // 2 if lower else total // 2 for total in totals})
