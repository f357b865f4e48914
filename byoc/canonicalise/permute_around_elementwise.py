"""Drop transposes around element-wise operators that turn a tensor away and back again.

    permute_dims(f(permute_dims(x, p), c), q) = f(x, c)        where q undoes p

Exporters of networks whose images are channels-last leave such pairs, half a GELU between them;
functions that arrive in pieces are found without.
"""

from __future__ import annotations

from tvm import relax

from byoc.canonicalise.remove_no_ops import permuted_axes
from byoc.ir.dataflow import Block, Constant, is_kernel_float, op_name, scalar_of, shape_of
from byoc.ir.elementwise import SIMPLE_UNARY

#: Operators of one or two tensors that give each element from the elements in its place.
OPERATORS = (
    *SIMPLE_UNARY,
    *("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.power"),
    *("relax.maximum", "relax.minimum"),
)

#: Operators between two transposes at most.
DEPTH = 8


def permute_around_elementwise(block: Block) -> None:
    """Rewrite fp32 operators between transposes that read nothing else but numbers."""
    for var, call in block.calls("relax.permute_dims"):
        if is_kernel_float(var):
            turned = _turned(block, call.args[0], permuted_axes(call), DEPTH)
            if turned is not None and op_name(turned) in OPERATORS:
                block.replace(var, turned)


def _turned(block: Block, expr: relax.Expr, axes: list[int], depth: int) -> relax.Expr | None:
    """An expression with its axes in this order, without a transpose; None if it needs one."""
    if scalar_of(expr) is not None and len(shape_of(expr)) <= len(axes):
        return expr
    inner = block.call(expr, "relax.permute_dims")
    if inner is not None:
        first = permuted_axes(inner)
        undone = len(first) == len(axes) and [first[a] for a in axes] == list(range(len(axes)))
        return inner.args[0] if undone else None
    call = block.call(expr, *OPERATORS)
    if call is None or depth == 0 or not block.is_private(expr):
        return None
    operands: list[relax.Expr] = []
    for operand in call.args:
        other: relax.Expr | None = operand
        if isinstance(operand, relax.Var | Constant):  # not the bounds of a clip
            other = _turned(block, operand, axes, depth - 1)
        if other is None:
            return None
        operands.append(block.emit(expr, other) if isinstance(other, relax.Call) else other)
    return relax.Call(call.op, operands, call.attrs, call.ty_args)
