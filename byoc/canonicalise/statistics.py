"""Write variance and standard deviation as what they are defined by.

    variance(x) = mean((x - mean(x))^2),   std(x) = sqrt(variance(x))

in the order in which TVM computes them.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, is_kernel_float, op_name, shape_of


def mean_from_variance(block: Block) -> None:
    """Rewrite fp32 variances and standard deviations of static shape."""
    for var, call in block.calls("relax.variance", "relax.std"):
        source = call.args[0]
        if shape_of(source) is None or not is_kernel_float(var):
            continue
        axes = None if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
        mean = block.emit(var, relax.op.mean(source, axes, keepdims=True))
        centred = block.emit(var, relax.op.subtract(source, mean))
        square = block.emit(var, relax.op.multiply(centred, centred))
        variance = relax.op.mean(square, axes, bool(call.attrs.keepdims))
        if op_name(call) == "relax.std":
            variance = relax.op.sqrt(block.emit(var, variance))
        block.replace(var, variance)
