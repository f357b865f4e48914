"""Turn ``take`` of one constant index into ``strided_slice`` and ``reshape``.

Exporters write the first token of a sequence, or one of three projections, as ONNX ``Gather``.
Of an axis of extent 1, whatever is taken is all that there is.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, array_of, is_kernel_float, shape_of


def slice_from_take(block: Block) -> None:
    """Rewrite takes of fp32, or from axes of extent 1, whose index is one constant inside."""
    for var, call in block.calls("relax.take"):
        source, shape = call.args[0], shape_of(call.args[0])
        index = array_of(call.args[1])
        if index is None or index.size != 1 or not shape:
            continue
        if call.attrs.axis is None or shape_of(var) is None or call.attrs.mode == "nan":
            continue
        axis, first = int(call.attrs.axis) % len(shape), int(index.reshape(()))
        if not isinstance(shape[axis], int):
            continue
        first += shape[axis] if first < 0 else 0
        if not 0 <= first < shape[axis]:
            continue
        if shape[axis] == 1:
            block.replace(var, relax.op.reshape(source, var.ty.shape))
            continue
        if not is_kernel_float(var):
            continue
        row = block.emit(var, relax.op.strided_slice(source, [axis], [first], [first + 1]))
        block.replace(var, relax.op.reshape(row, var.ty.shape))
