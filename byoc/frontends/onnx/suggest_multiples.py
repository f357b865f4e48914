"""Which multiples an image's height and width must be for all sizes in a network to be known.

A network that halves an image and adds or joins it with its doubled form again works on multiples
only, and where the importer is told of any size it loses the shape at that place.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
import tvm
from tvm import relax

from byoc.extent import parse_extent
from byoc.frontends.onnx.input_shapes import model_inputs

#: What is tried, in this order.
MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


def all_outputs_known(mod: tvm.IRModule) -> bool:
    """Whether every output of ``main`` that is a tensor has a known shape."""
    result = mod["main"].body.body.ty
    types = result.fields if isinstance(result, relax.TupleType) else [result]
    return all(
        isinstance(ty.shape, relax.ShapeExpr) for ty in types if isinstance(ty, relax.TensorType)
    )


def working_multiples(
    model: onnx.ModelProto, convert: Callable[[onnx.ModelProto], tvm.IRModule]
) -> str | None:
    """Shapes of the images, as ``--input-shapes`` takes them, with which ``convert`` knows all.

    Tries multiples of the symbols that are heights and widths. None where there are no such symbols
    or no multiple helps.
    """
    for factor in MULTIPLES:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        shapes = [text for value in model_inputs(changed) if (text := _scaled(value, factor))]
        if not shapes:
            return None
        try:
            if all_outputs_known(convert(changed)):
                return " ".join(shapes)
        except Exception:  # whatever was wrong with the shapes as given may be wrong with these
            continue
    return None


def _scaled(value: onnx.ValueInfoProto, factor: int) -> str | None:
    """Write multiples into an image's sides that are names; the shape's text if there are any."""
    dims = value.type.tensor_type.shape.dim
    found = False
    for axis, dim in enumerate(dims):
        if len(dims) != 4 or axis < 2 or not dim.dim_param:
            continue
        try:
            extent = parse_extent(dim.dim_param)
        except ValueError:
            continue
        if extent.offset == 0 and not extent.others:
            found = True
            dim.dim_param = f"{factor}*{extent.name}"
    if not found:
        return None
    return f"{value.name}:[{','.join(dim.dim_param or str(dim.dim_value) for dim in dims)}]"
