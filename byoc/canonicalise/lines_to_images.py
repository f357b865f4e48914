"""Write operators on lines [N, C, W] as those on images [N, C, 1, W].

Convolution, transposed convolution and pooling of one axis are those of two axes with one row. A
bias, an activation or a residual that follows moves in front of the last reshape, into reach of
the epilogue, and so do quantisations with one scale. Of dequantised tensors the integers are
reshaped, so that products stay next to their ``dequantize``.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.canonicalise.dequantised_weights import DEQUANTIZE
from byoc.ir.dataflow import (
    Block,
    Constant,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    shape_of,
)
from byoc.ir.elementwise import SIMPLE_UNARY
from codegen_cc.dtypes import KERNEL_BYTES

AFFINE = ("relax.add", "relax.multiply")

QUANTISATIONS = ("relax.quantize", DEQUANTIZE)

CONVOLUTIONS = {
    "relax.nn.conv1d": relax.op.nn.conv2d,
    "relax.nn.conv1d_transpose": relax.op.nn.conv2d_transpose,
}
POOLS = {
    "relax.nn.max_pool1d": relax.op.nn.max_pool2d,
    "relax.nn.avg_pool1d": relax.op.nn.avg_pool2d,
}


def lines_to_images(block: Block) -> None:
    """Rewrite fp32 NCW operators of known shape, and the greatest of integers of 8 bits."""
    for var, call in block.calls(*CONVOLUTIONS, *POOLS):
        shape = shape_of(call.args[0])
        name = op_name(call)
        integers = name == "relax.nn.max_pool1d" and dtype_of(var) in KERNEL_BYTES
        if shape is None or shape_of(var) is None or not (is_kernel_float(var) or integers):
            continue
        attributes = _pool(call) if name in POOLS else _convolution(call)
        if attributes is None:
            continue
        if name in POOLS:
            image = block.emit(var, relax.op.reshape(call.args[0], _with_row(call.args[0])))
            value = block.emit(var, POOLS[name](image, **attributes))
        else:
            weight = _row(block, var, call.args[1])
            if weight is None:
                continue
            image = _image(block, var, call.args[0])
            value = block.emit(var, CONVOLUTIONS[name](image, weight, **attributes), "conv")
        value, last = carry_followers(block, var, value)
        block.replace(last, relax.op.reshape(value, last.ty.shape))


def _with_row(expr: relax.Expr) -> list[Any]:
    """The extents of a tensor of rank 3, with one row before the last."""
    first, second, last = expr.ty.shape.values
    return [first, second, 1, last]


def _image(block: Block, anchor: relax.Var, line: relax.Expr) -> relax.Expr:
    """A tensor of rank 3 with one row; of a dequantised one with one scale the integers have it."""
    call = block.call(line, DEQUANTIZE)
    if call is None or not _of_one_scale(call):
        return block.emit(anchor, relax.op.reshape(line, _with_row(line)))
    integers, *numbers = call.args
    rows = block.emit(anchor, relax.op.reshape(integers, _with_row(integers)), "integers")
    return block.emit(anchor, relax.op.dequantize(rows, *numbers, 1, dtype_of(line)))


def _of_one_scale(call: relax.Call) -> bool:
    """Whether a quantisation is one with one scale and zero point for the whole tensor."""
    return all(shape_of(number) in ((), (1,)) for number in call.args[1:])


def _row(block: Block, var: relax.Var, weight: relax.Expr) -> relax.Expr | None:
    """A weight [O, I, W] as [O, I, 1, W]."""
    values = array_of(weight)
    if values is not None:
        return constant(values[:, :, None], dtype_of(weight))
    if shape_of(weight) is None:
        return None
    call = block.call(weight, DEQUANTIZE)
    integers = array_of(call.args[0]) if call is not None else None
    if integers is not None:
        axis = int(call.attrs.axis) % 3
        rows = constant(integers[:, :, None], dtype_of(call.args[0]))
        axis += axis == 2  # the row stands before the last
        return block.emit(var, relax.op.dequantize(rows, *call.args[1:], axis, dtype_of(weight)))
    return block.emit(var, relax.op.reshape(weight, _with_row(weight)))


def _sides(padding: list[Any]) -> list[int]:
    left, right = [int(side) for side in padding] * (2 if len(padding) == 1 else 1)
    return [0, left, 0, right]


def _convolution(call: relax.Call) -> dict[str, Any] | None:
    attrs, transposed = call.attrs, op_name(call).endswith("_transpose")
    kernel = "IOW" if transposed else "OIW"
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCW")
    if layouts != ("NCW", kernel, "NCW"):
        return None
    more = {"output_padding": (0, int(attrs.output_padding[0]))} if transposed else {}
    return {
        "strides": (1, int(attrs.strides[0])),
        "padding": _sides(attrs.padding),
        "dilation": (1, int(attrs.dilation[0])),
        "groups": int(attrs.groups),
        **more,
    }


def _pool(call: relax.Call) -> dict[str, Any] | None:
    attrs = call.attrs
    if attrs.layout != "NCW" or attrs.out_layout not in ("NCW", ""):
        return None
    return {
        "pool_size": (1, int(attrs.pool_size[0])),
        "strides": (1, int(attrs.strides[0])),
        "padding": _sides(attrs.padding),
        "dilation": (1, int(attrs.dilation[0])),
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": bool(attrs.count_include_pad),
    }


def carry_followers(
    block: Block, var: relax.Var, value: relax.Expr
) -> tuple[relax.Expr, relax.Var]:
    """Apply what follows ``var`` to ``value``, its image of rank 4, as far as that can be done.

    Returns the new image and the variable that holds, in rank 3, the same numbers.
    """
    last = var
    while block.is_private(last):
        (reader,) = block.users(last)
        call = block.call(reader, *SIMPLE_UNARY, *AFFINE, *QUANTISATIONS)
        if call is None or shape_of(reader) != shape_of(last):
            break
        if op_name(call) in QUANTISATIONS and not _may_quantise(block, reader, call):
            break
        if op_name(call) in AFFINE:
            other = call.args[1] if call.args[0] == last else call.args[0]
            wide = _beside(block, reader, other)
            if wide is None:
                break
            value = block.emit(reader, relax.Call(call.op, [value, wide], call.attrs))
        else:
            value = block.emit(reader, relax.Call(call.op, [value, *call.args[1:]], call.attrs))
        last = reader
    return value, last


def _may_quantise(block: Block, reader: relax.Var, call: relax.Call) -> bool:
    """Whether a quantisation may follow the image.

    Of what is dequantised for others than epilogues the integers stay lines, which those read.
    """
    if not _of_one_scale(call):
        return False
    if op_name(call) != DEQUANTIZE:
        return True
    steps = (*SIMPLE_UNARY, *AFFINE, "relax.quantize")
    return block.is_private(reader) and block.call(block.users(reader)[0], *steps) is not None


def _beside(block: Block, reader: relax.Var, other: relax.Expr) -> relax.Expr | None:
    """The other operand with an axis for the row; None if it is no tensor of this rank."""
    extents = shape_of(other)
    if extents is None:
        return None
    if isinstance(other, Constant):
        values = array_of(other)
        padded = values.reshape((1,) * (3 - values.ndim) + values.shape)
        return constant(padded[:, :, None], dtype_of(other))
    if len(extents) != 3:
        return None
    return _image(block, reader, other)
