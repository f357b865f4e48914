"""Write reductions over axes without elements as the constants that they are.

    sum, mean  0        product  1        max  -inf        min  inf        matmul  0

as ONNX has it, and as ONNX Runtime has the mean, which ONNX leaves open. TVM's loops set a result
to its first value in the first round, so that without any they leave it as it was.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, op_name, static_shape_of


def reductions_of_nothing(block: Block) -> None:
    """Rewrite those of fixed shape whose result has elements."""
    for var in block.ordered():
        call = block.values.get(var)
        name = op_name(call) if call is not None else None
        if name not in FIRST_VALUES:
            continue
        shape, operand = static_shape_of(var), static_shape_of(call.args[0])
        if shape is None or operand is None or 0 in shape or 0 not in operand:
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
