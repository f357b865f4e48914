"""What functions and expressions consist of, in order, and expressions of other parts."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax

from codegen_cc.node import NODE_ATTRIBUTE, Node


def bindings_of(func: relax.Function) -> list[relax.Binding]:
    """The bindings of all blocks of a function; none of branches or of functions inside."""
    return [binding for block in func.body.blocks for binding in block.bindings]


def expressions_of(root: relax.Expr) -> Iterator[relax.Expr]:
    """An expression and all inside of it, in branches and in functions inside as well.

    Types are not walked through, as TVM's own visitor does: that of a tuple is as long as it has
    items, and is met again with each item that is read.
    """
    waiting = [root]
    while waiting:
        expr = waiting.pop()
        yield expr
        waiting += reversed(_inside(expr))


def _inside(expr: relax.Expr) -> list[relax.Expr]:
    if isinstance(expr, relax.Call):
        return [expr.op, *expr.args]
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relax.SeqExpr):
        values = [binding.value for block in expr.blocks for binding in block.bindings]
        return [*values, expr.body]
    if isinstance(expr, relax.If):
        return [expr.cond, expr.true_branch, expr.false_branch]
    return [expr.body] if isinstance(expr, relax.Function) else []


def composites_of(func: relax.Function) -> Iterator[tuple[relax.Var, relax.Function, Node]]:
    """The composite functions that a function binds, with the nodes that they stand for."""
    for binding in bindings_of(func):
        value = binding.value
        if isinstance(value, relax.Function) and NODE_ATTRIBUTE in (value.attrs or {}):
            yield binding.var, value, Node.from_json(str(value.attrs[NODE_ATTRIBUTE]))


def items_of(expr: relax.Expr) -> list[relax.Expr]:
    """The items of a tuple that is written out; any other expression is one item."""
    return list(expr.fields) if isinstance(expr, relax.Tuple) else [expr]


def operands_of(call: relax.Call) -> list[relax.Expr]:
    """The arguments of a call, and the items of those that are tuples."""
    return [item for argument in call.args for item in items_of(argument)]


def variables(expr: relax.Expr) -> list[relax.Var]:
    """The variables that an expression reads, one entry per use."""
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.Call):
        found = [expr.op] if isinstance(expr.op, relax.Var) else []
        for argument in expr.args:
            found += variables(argument)
        return found
    if isinstance(expr, relax.Tuple):
        return [var for item in expr.fields for var in variables(item)]
    if isinstance(expr, relax.TupleGetItem):
        return variables(expr.tuple_value)
    if isinstance(expr, relax.Function | relax.SeqExpr | relax.If):
        return list(relax.analysis.free_vars(expr))
    return []


def is_plain(expr: relax.Expr) -> bool:
    """Whether ``substitute`` can rewrite the expression (no nested function or branch)."""
    return not isinstance(expr, relax.Function | relax.SeqExpr | relax.If)


def substitute(expr: relax.Expr, mapping: dict[relax.Expr, relax.Expr]) -> relax.Expr:
    """Replace variables and constants of a plain expression; types stay as they are."""
    if isinstance(expr, relax.Var | tvm.ir.GenericConst):
        return mapping.get(expr, expr)
    if isinstance(expr, relax.Call):
        op = mapping.get(expr.op, expr.op) if isinstance(expr.op, relax.Var) else expr.op
        arguments = [substitute(argument, mapping) for argument in expr.args]
        return relax.Call(op, arguments, expr.attrs, expr.ty_args, expr.span, expr.ty)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(item, mapping) for item in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, mapping), expr.index)
    return expr
