"""Keep the logarithm of a sum of exponentials where an infinity flows.

    m + log(sum(exp(x - m))), m = max(x)        becomes the same with  m = clip(max(x))

between the least and the greatest finite number.  With an infinite ``m`` the difference would be
NaN; so the result is infinity of that sign, as in NumPy's ``logaddexp``, PyTorch and ONNX Runtime.
Every other value stays as it was.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, dtype_of, is_kernel_float
from byoc.ir.pattern import call, find, plus

_EXPONENTIALS = call("exp", call("subtract", "x", "m"))
LOG_SUM_EXP = plus(call("log", call("sum", _EXPONENTIALS, name="sum")), call("max", "x", name="m"))


def finite_shift_of_log_sum_exp(block: Block) -> None:
    """Rewrite fp32 sums of a maximum and the logarithm of what it was subtracted from."""
    for var, _ in block.calls("relax.add"):
        found = find(block, var, LOG_SUM_EXP) if is_kernel_float(var) else None
        if found is None:
            continue
        attrs = block.values[found["sum"]].attrs
        greatest = float(np.finfo(dtype_of(var)).max)
        most = block.emit(var, relax.op.clip(found["m"], -greatest, greatest))
        rest = block.emit(var, relax.op.exp(block.emit(var, relax.op.subtract(found["x"], most))))
        rest = block.emit(var, relax.op.sum(rest, attrs.axis, attrs.keepdims))
        block.replace(var, relax.op.add(block.emit(var, relax.op.log(rest)), most))
