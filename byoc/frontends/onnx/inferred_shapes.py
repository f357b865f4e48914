"""What ONNX's types of values say: extents, bytes, and mending where inference errs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import onnx

from byoc.frontends.onnx.honoured import INFERENCE_ERRS, ONNX_DOMAINS, RESIZES

#: Element types that are evaluated.
NUMBERS = frozenset(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(code)) for code in "?efdbhilBHIL")


def correct(
    node: onnx.NodeProto,
    types: dict[str, onnx.TypeProto],
    known: Mapping[str, onnx.TypeProto],
    constant: Callable[[str], np.ndarray | None],
) -> None:
    """Mend, in place, shapes that ``onnx.shape_inference`` gets wrong (``INFERENCE_ERRS``, Resize).

    A window of a pool that would begin in the padding behind the image does not count (ONNX
    operator specification, MaxPool). Where nothing better is known, the shape is forgotten.
    """
    if node.op_type in RESIZES and node.domain in ONNX_DOMAINS:
        _correct_image(node, types, known, constant)
        return
    name = INFERENCE_ERRS.get(node.op_type)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if not name or node.domain not in ONNX_DOMAINS or not attributes.get(name):
        return
    image = shape_of(known.get(node.input[0]))
    for type_ in types.values():
        tensor, shape = type_.tensor_type, shape_of(type_)
        if image is None or shape is None or name != "ceil_mode" or "auto_pad" in attributes:
            tensor.ClearField("shape")
            continue
        strides = attributes.get("strides", [1] * (len(shape) - 2))
        pads = attributes.get("pads", [0] * len(strides))
        dims = tensor.shape.dim[2:]
        for dim, extent, stride, pad in zip(dims, image[2:], strides, pads, strict=False):
            while (dim.dim_value - 1) * stride >= extent + pad:
                dim.dim_value -= 1


def scaled_extent(extent: int, scale: float) -> int:
    """What a scale makes of an extent: ONNX Runtime multiplies in fp32, and cuts the rest off.

    In double precision, as ``onnx.shape_inference`` has it, 40 pixels by 0.65 are 25.9999995.
    """
    return int(np.float32(scale) * np.float32(extent))


def _correct_image(
    node: onnx.NodeProto,
    types: dict[str, onnx.TypeProto],
    known: Mapping[str, onnx.TypeProto],
    constant: Callable[[str], np.ndarray | None],
) -> None:
    """Give what constant scales make of known extents the extents that they make, where inference
    is one pixel off: scales that are no numbers, or beyond all sizes, are refused with their node.
    """
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
        return
    place = 2 if len(node.input) > 2 else 1
    scales = constant(node.input[place]) if len(node.input) > place else None
    image = extents_of(known.get(node.input[0]))
    if scales is None or image is None or any(node.input[3:]) or not np.isfinite(scales).all():
        return
    axes = attributes.get("axes", range(len(image)))
    for type_ in types.values():
        for axis, scale in zip(axes, scales.reshape(-1), strict=False):
            dim = type_.tensor_type.shape.dim[axis]
            if image[axis] is None or not dim.HasField("dim_value"):
                continue
            made = scaled_extent(image[axis], scale)
            if abs(made - dim.dim_value) == 1:
                dim.dim_value = made


def extents_of(type_: onnx.TypeProto | None) -> list[int | None] | None:
    """The extents of a tensor of known rank, None for each that is not known."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def dtype_text(type_: onnx.TypeProto) -> str:
    """The dtype of a tensor as ONNX's schemas write it, such as ``float``."""
    return onnx.TensorProto.DataType.Name(type_.tensor_type.elem_type).lower()


def shape_of(type_: onnx.TypeProto | None) -> list[int] | None:
    """The extents of a tensor whose shape is wholly known."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    dims = type_.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims):
        return None
    return [dim.dim_value for dim in dims]


def bytes_of(type_: onnx.TypeProto | None) -> int | None:
    """Bytes of a tensor of numbers of known shape."""
    shape = shape_of(type_)
    if shape is None or type_.tensor_type.elem_type not in NUMBERS:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type)
    return prod(shape) * dtype.itemsize


def fits(tensor: onnx.TensorProto, type_: onnx.TypeProto | None) -> bool:
    """Whether a result is of the type that was inferred, as far as that is known."""
    if type_ is None or type_.tensor_type.elem_type != tensor.data_type:
        return False
    return shape_of(type_) in (None, list(tensor.dims))
