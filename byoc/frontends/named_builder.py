"""A block builder that writes into every expression which node of the model it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from byoc.ir.dataflow import with_blocks
from byoc.ir.origin import Origin, origin_of, with_origin


class NamedBuilder(relax.BlockBuilder):
    """Names the expressions that it binds or normalises after the node at work.

    TVM's normaliser binds nested expressions too, but drops the span of whatever it has to rebuild;
    so they are bound here, in the same order, and the normaliser finds nothing to rebuild.
    """

    def __init__(self) -> None:
        super().__init__()
        self._origin = Origin()
        # What an expression was bound to: one that several nodes read must be computed once.
        self._bound: dict[relax.Expr, relax.Var] = {}

    def _exit_function_scope(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            self._end_block()  # its destructor would print a warning about a block left open
        super()._exit_function_scope(kind, error, traceback)

    @property
    def node_at_work(self) -> str:
        """What the node is called that expressions belong to."""
        return "".join(self._origin.names)

    def begin(self, name: str) -> None:
        """From now on expressions belong to the node of this name."""
        self._origin = Origin((name,)) if name else Origin()

    def holder(self, expr: relax.Expr) -> relax.Var | None:
        """The variable that holds what an expression gives; None where nothing reads it."""
        return expr if isinstance(expr, relax.Var) else self._bound.get(expr)

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """Bind an expression."""
        return super().emit(self._flat(expr), name_hint)

    def emit_output(self, output: Any, name_hint: str = "") -> relax.Var:
        """Bind what the dataflow block returns."""
        var = super().emit_output(self._flat(output), name_hint)
        self._bound.setdefault(output, var)
        return var

    def emit_func_output(self, output: Any, params: Any = None) -> None:
        """Bind what the function returns where no dataflow block has, and end the function."""
        super().emit_func_output(self._leaf(output), params)

    def match_cast(self, value: relax.Expr, ty: relax.Type, name_hint: str = "") -> relax.Var:
        """Bind an expression whose type a check at run time tells."""
        return super().match_cast(self._flat(value), ty, name_hint)

    def normalize(self, expr: relax.Expr) -> relax.Expr:
        """Type an expression and bind what is nested in it."""
        return super().normalize(self._flat(expr))

    def _flat(self, expr: Any) -> Any:
        """The expression, named, with variables in place of the expressions nested in it."""
        if isinstance(expr, relax.Tuple):
            fields = [self._leaf(item) for item in expr.fields]
            return expr if _same(fields, expr.fields) else relax.Tuple(fields)
        if isinstance(expr, relax.TupleGetItem):
            value = self._leaf(expr.tuple_value)
            flat = expr if value is expr.tuple_value else relax.TupleGetItem(value, expr.index)
        elif _is_relax_call(expr):
            arguments = [self._leaf(argument) for argument in expr.args]
            flat = expr
            if not _same(arguments, expr.args):
                flat = relax.Call(expr.op, arguments, expr.attrs, expr.ty_args, expr.span, expr.ty)
        else:
            return expr
        return flat if origin_of(flat) else with_origin(flat, origin_of(expr) or self._origin)

    def _leaf(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return self._flat(expr)
        if not isinstance(expr, relax.TupleGetItem) and not _is_relax_call(expr):
            return expr
        if expr not in self._bound:
            self._bound[expr] = self.emit(expr)
        return self._bound[expr]


def with_values(func: relax.Function, values: Mapping[relax.Var, str]) -> relax.Function:
    """The function with the model's names of values in the origins of what gives them."""
    values, blocks = dict(values), []
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            if binding.var in values and isinstance(binding.value, relax.Var):
                values.setdefault(binding.value, values[binding.var])  # another name of it
    for block in func.body.blocks:
        bindings = list(block.bindings)
        for place, binding in enumerate(bindings):
            var, expr = binding.var, binding.value
            if var in values and not isinstance(binding, relax.MatchCast):
                named = with_origin(expr, replace(origin_of(expr), value=values[var]))
                bindings[place] = relax.VarBinding(var, named)
        blocks.append(type(block)(bindings))
    return with_blocks(func, blocks)


def _is_relax_call(expr: Any) -> bool:
    """Whether a call computes a tensor; those in the arithmetic of shapes have the same class."""
    if not isinstance(expr, relax.Call):
        return False
    return not (isinstance(expr.op, tvm.ir.Op) and expr.op.name.startswith("tirx."))


def _same(new: Sequence[relax.Expr], old: Sequence[relax.Expr]) -> bool:
    return all(a.same_as(b) for a, b in zip(new, old, strict=True))
