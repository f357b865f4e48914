"""What operators of ours, which Relax does not have, need to be known to TVM."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

Infer = Callable[[relax.Call, relax.BlockBuilder], relax.Type]
Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def register(name: str, infer: Infer, legalize: Legalize) -> None:
    """Tell TVM of an operator without effects: how its type is inferred, and what stands for it
    where no kernel of ours takes it."""
    for key, value in (("FInferType", infer), ("FLegalize", legalize), ("FPurity", True)):
        tvm.ir.register_op_attr(name, key, value)


def of_each_row(call: relax.Call, columns: int) -> relax.TensorType:
    """The type of a result that has so many columns for each row of the first operand."""
    x = call.args[0].ty
    if not isinstance(x.shape, relax.ShapeExpr):
        return relax.TensorType(dtype=x.dtype, ndim=2)
    return relax.TensorType([x.shape.values[0], columns], x.dtype)
