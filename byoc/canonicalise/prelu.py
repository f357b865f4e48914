"""Bring PReLU into one form.

    prelu(x, slope) = where(x < 0, x * slope, x)

with the slope shaped to broadcast; one constant slope that is not negative makes ``leakyrelu``. As
ONNX has it, a zero keeps its sign; TVM's own operator multiplies it by the slope.
"""

from __future__ import annotations

from math import copysign, isfinite

from tvm import relax

from byoc.ir.dataflow import Block, constant, dtype_of, is_kernel_float, scalar_of, shape_of


def where_from_prelu(block: Block) -> None:
    """Rewrite fp32 PReLUs of known rank."""
    for var, call in block.calls("relax.nn.prelu"):
        source, slope = call.args
        shape, slopes = shape_of(source), shape_of(slope)
        if not shape or slopes is None or not is_kernel_float(var):
            continue
        axis = int(call.attrs.axis) % len(shape)
        if slopes not in ((1,), (shape[axis],)):  # the importer may take the wrong axis
            continue
        number = scalar_of(slope)
        # A negative slope would turn -0 into +0 where this does not.
        if number is not None and isfinite(number) and copysign(1.0, number) > 0.0:
            block.replace(var, relax.op.nn.leakyrelu(source, number))
            continue
        (extent,) = slope.ty.shape.values
        dims = [extent if i == axis else 1 for i in range(len(shape))]
        wide = block.emit(var, relax.op.reshape(slope, dims))
        below = block.emit(var, relax.op.less(source, constant(0.0, dtype_of(var))))
        scaled = block.emit(var, relax.op.multiply(source, wide))
        block.replace(var, relax.op.where(below, scaled, source))
