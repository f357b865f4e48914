"""Write what is known without a computation where axes have no elements.

A tensor without elements is the constant without elements, whichever operator made it: TVM's passes
write some operators as reshapes, and in those an extent of 0 means that of the operand's same axis.
Reductions over such axes are constants:

    sum, mean  0        product  1        max  -inf        min  inf        matmul  0

as ONNX has it, and as ONNX Runtime has the mean, which ONNX leaves open. TVM's loops set a result
to its first value in the first round, so that without any they leave it as it was.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, op_name, static_shape_of


def values_of_nothing(block: Block) -> None:
    """Rewrite those of fixed shape."""
    for var in block.ordered():
        call, shape = block.values.get(var), static_shape_of(var)
        if shape is not None and 0 in shape and isinstance(call, relax.Call | relax.TupleGetItem):
            block.replace(var, relax.const(np.empty(shape, dtype_of(var)), dtype_of(var)))
            continue
        name = op_name(call) if call is not None else None
        if shape is None or name not in FIRST_VALUES:
            continue
        operand = static_shape_of(call.args[0])
        if operand is None or 0 not in operand:
            continue
        dtype = dtype_of(var)
        first = FIRST_VALUES[name]
        if not np.isfinite(first) and np.dtype(dtype).kind != "f":
            limits = np.iinfo(dtype)
            first = limits.min if first < 0 else limits.max
        block.replace(var, relax.const(np.full(shape, first, dtype), dtype))


FIRST_VALUES = {
    "relax.sum": 0,
    "relax.mean": 0,
    "relax.prod": 1,
    "relax.max": -np.inf,
    "relax.min": np.inf,
    "relax.matmul": 0,
}
