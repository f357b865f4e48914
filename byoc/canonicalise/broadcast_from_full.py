"""Read one number where a tensor of a symbolic shape is full of it.

full([n, m], c) = broadcast_to(c, [n, m]),  and so zeros and ones
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.fold_constants import DTYPES
from byoc.ir.dataflow import Block, dtype_of, op_name, scalar_of, shape_of
from codegen_cc.dim import is_static


def broadcast_from_full(block: Block) -> None:
    """Rewrite ``full``, ``zeros`` and ``ones`` of known, symbolic shapes."""
    for var, call in block.calls("relax.full", "relax.zeros", "relax.ones"):
        shape, dtype = shape_of(var), dtype_of(var)
        if shape is None or is_static(shape) or dtype not in DTYPES:
            continue
        number = 1 if op_name(call) == "relax.ones" else 0
        if op_name(call) == "relax.full":
            if scalar_of(call.args[1]) is None or dtype_of(call.args[1]) != dtype:
                continue
            value = call.args[1]
        else:
            value = relax.const(np.asarray(number, dtype), dtype)
        block.replace(var, relax.op.broadcast_to(value, var.ty.shape))
