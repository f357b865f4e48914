"""Turn ``reduce(stack(broadcast_to(a), broadcast_to(b), ...), axis=0)`` into binary operators.

ONNX ``Sum``, ``Max``, ``Min`` and ``Mean`` of several tensors are imported in that way, which
copies every operand twice. They become ``add(add(a, b), c)`` and so on, in the operands' order;
the operators broadcast by themselves. A mean is the sum divided by the number of operands.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, constant, dtype_of, is_kernel_float, op_name, shape_of
from codegen_cc.dim import broadcast_shape

OPERATORS = {
    "relax.sum": relax.op.add,
    "relax.mean": relax.op.add,
    "relax.max": relax.op.maximum,
    "relax.min": relax.op.minimum,
}


def elementwise_from_stack(block: Block) -> None:
    """Rewrite reductions over the new axis of a stack that nothing else reads."""
    for var, call in block.calls(*OPERATORS):
        stack = block.call(call.args[0], "relax.stack")
        if stack is None or not block.is_private(call.args[0]):
            continue
        axes = [int(axis) for axis in call.attrs.axis or ()]
        if axes != [0] or int(stack.attrs.axis) != 0 or call.attrs.keepdims:
            continue
        if not isinstance(stack.args[0], relax.Tuple) or not is_kernel_float(var):
            continue
        operands = [_without_broadcast(block, item) for item in stack.args[0].fields]
        _chain(block, var, op_name(call), operands)


def _without_broadcast(block: Block, expr: relax.Expr) -> relax.Expr:
    broadcast = block.call(expr, "relax.broadcast_to")
    return expr if broadcast is None else broadcast.args[0]


def _chain(block: Block, var: relax.Var, name: str, operands: list[relax.Expr]) -> None:
    operator = OPERATORS[name]
    shapes = [shape_of(operand) for operand in operands]
    if len(operands) < 2 or None in shapes or broadcast_shape(*shapes) != shape_of(var):
        return
    mean = name == "relax.mean"
    total = operands[0]
    for operand in operands[1:] if mean else operands[1:-1]:
        total = block.emit(var, operator(total, operand))
    if mean:
        count = constant(len(operands), dtype_of(var))
        block.replace(var, relax.op.divide(total, count))
    else:
        block.replace(var, operator(total, operands[-1]))
