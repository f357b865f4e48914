"""Rows by the matrices of their groups, as the front end for PyTorch writes them.

    where(group = 1, x w1, where(group = 0, x w0, 0))

Every row of the products that are chosen from has one group; in pieces, all products are computed
for all rows.
"""

from __future__ import annotations

from tvm import relax

from byoc.ir.dataflow import Block, Constant, dtype_of, scalar_of, shape_of
from byoc.patterns.row import Candidate, tensor
from codegen_cc.node import Node

#: A candidate and the bindings that it stands for.
Grouped = tuple[Candidate, tuple[relax.Expr, ...]]


def grouped_matmul(block: Block, var: relax.Var) -> Grouped | None:
    """The whole chain that ends in ``var``, of two groups or more."""
    if _is_rest(block, var):
        return None
    first = _step(block, var)
    matrices: dict[int, relax.Expr] = {}
    bindings: list[relax.Expr] = []
    expr: relax.Expr = var
    while (step := _step(block, expr)) is not None:
        number, group, x, matrix = step[:4]
        if (group, x) != first[1:3] or number in matrices:
            return None
        matrices[number] = matrix
        bindings += [expr, *step[4]]
        expr = block.values[expr].args[2]
    if len(matrices) < 2 or set(matrices) != set(range(len(matrices))) or scalar_of(expr) != 0.0:
        return None
    _, group, x, *_ = first
    roles = {"lhs": x, "group": group} | {f"rhs{i}": matrices[i] for i in range(len(matrices))}
    operands = tuple(tensor(operand, role) for role, operand in roles.items())
    node = Node("grouped_matmul", operands, shape_of(var), dtype_of(var))
    return Candidate(node, tuple(roles.values())), tuple(bindings)


def own_comparisons(block: Block) -> None:
    """Give each choice a comparison of its own: layers of one mixture share theirs."""
    for var, choice in block.calls("relax.where"):
        own = choice.args[0]
        if _step(block, var) is not None and len(block.users(own)) > 1:
            copy = block.emit(var, block.values[own], own.name)
            block.replace(var, relax.op.where(copy, *choice.args[1:]))


def _step(block: Block, expr: relax.Expr) -> tuple | None:
    """Number, group, x, matrix and inner bindings of ``where(group = number, x matrix, rest)``."""
    choice = block.call(expr, "relax.where")
    own = None if choice is None else block.call(choice.args[0], "relax.equal")
    product = None if own is None else block.call(choice.args[1], "relax.matmul")
    number = None if product is None else scalar_of(own.args[1])
    if number is None or number != int(number) or not isinstance(product.args[1], Constant):
        return None
    x, matrix = product.args
    shapes = shape_of(own.args[0]), shape_of(x), shape_of(matrix), shape_of(expr)
    if None in shapes or [len(shape) for shape in shapes] != [2, 2, 2, 2]:
        return None
    return int(number), own.args[0], x, matrix, (choice.args[0], choice.args[1])


def _is_rest(block: Block, var: relax.Var) -> bool:
    """Whether a longer chain goes on with ``var``."""
    for user in block.users(var):
        choice = block.call(user, "relax.where")
        if choice is not None and choice.args[2] == var and _step(block, user) is not None:
            return True
    return False
