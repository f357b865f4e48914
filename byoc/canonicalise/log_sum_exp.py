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


def finite_shift_of_log_sum_exp(block: Block) -> None:
    """Rewrite fp32 sums of a maximum and the logarithm of what it was subtracted from."""
    for var, call in block.calls("relax.add"):
        if not is_kernel_float(var):
            continue
        for below, above in (tuple(call.args), tuple(reversed(call.args))):
            total = _sum_of_shifted(block, below, above)
            if total is None:
                continue
            source = block.call(above, "relax.max").args[0]
            greatest = float(np.finfo(dtype_of(var)).max)
            most = block.emit(var, relax.op.clip(above, -greatest, greatest))
            rest = block.emit(var, relax.op.exp(block.emit(var, relax.op.subtract(source, most))))
            rest = block.emit(var, relax.op.sum(rest, total.attrs.axis, total.attrs.keepdims))
            block.replace(var, relax.op.add(block.emit(var, relax.op.log(rest)), most))
            break


def _sum_of_shifted(block: Block, expr: relax.Expr, shift: relax.Expr) -> relax.Call | None:
    """The sum in ``log(sum(exp(x - shift)))``, where ``shift`` is a maximum of ``x``."""
    calls: list[relax.Call] = []
    for name in ("relax.log", "relax.sum", "relax.exp", "relax.subtract"):
        found = block.call(expr, name)
        if found is None:
            return None
        calls.append(found)
        expr = found.args[0]
    largest = block.call(shift, "relax.max")
    if largest is None or calls[-1].args[1] != shift or largest.args[0] != expr:
        return None
    return calls[1]
