"""Give states that grow their memory: rows first, with room for those that a call adds.

    main(past[B, H, P, D], ...): present[B, H, P + S, D] = concat((past, new), axis=2)

    main(state[P + S, B, H, D], ...): rows    = state[:P]
                                      past    = permute(rows)
                                      present = permute(concat((rows, permute(new)), axis=0))

Rows may be put elsewhere than at the end, as where sentences are of several lengths:

    main(past, ...): present = scatter_nd(concat((past, new), axis=2), places, new)

``present`` is no result any more. Where one region computes the concatenation and all that reads
it, it writes the new rows into the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy
import tvm
from tvm import relax

from byoc.errors import CompileError
from byoc.ir.dataflow import (
    is_plain,
    is_region,
    op_name,
    sequence,
    shape_of,
    substitute,
    typed,
    variables,
)
from byoc.ir.origin import origin_of, with_origin
from byoc.ir.symbols import named_in
from byoc.ir.walk import bindings_of
from codegen_cc.node import STATES_ATTRIBUTE
from codegen_cc.operators.movement import grown_state, scattered_state
from codegen_cc.region.read_relax import read_region
from codegen_cc.region.relax_dims import relax_extent, variable_symbols

_SCATTER = "relax.scatter_nd"


@dataclass(frozen=True)
class Growing:
    """A state that grows along ``axis``: parameter and result of ``main``; ``what`` names it."""

    param: relax.Var
    axis: int
    result: relax.Expr
    what: str

    @property
    def order(self) -> list[int]:
        """The axes of the state, rows first, as axes of the parameter."""
        axes = range(len(self.param.ty.shape.values))
        return [self.axis, *(axis for axis in axes if axis != self.axis)]

    @property
    def back(self) -> list[int]:
        """The axes of the parameter as axes of the state."""
        return [self.order.index(axis) for axis in range(len(self.order))]

    def state(self, variables: Mapping[sympy.Symbol, tvm.ir.Var]) -> relax.Var:
        """The parameter with room for the result, rows first, its extents of these symbols."""
        whole = shape_of(self.result)
        shape = [relax_extent(whole[axis], variables) for axis in self.order]
        return relax.Var(self.param.name, relax.TensorType(shape, str(self.param.ty.dtype)))


def rows_first(
    main: relax.Function,
    params: Sequence[relax.Var],
    growing: Sequence[Growing],
    results: Sequence[relax.Expr],
) -> relax.Function:
    """``main`` with these parameters, states in their memory, and results, in this order.

    Raises ``CompileError`` where a state is not a concatenation that begins with what it was.
    """
    blocks = main.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        raise CompileError("states of networks with control flow are not kept; pass them as inputs")
    variables = variable_symbols(named_in(*(param.ty for param in main.params)))
    writer = _Writer({state.param: state.state(variables) for state in growing})
    for state in growing:
        writer.begin(state)
    for binding in blocks[0].bindings:
        writer.take(binding, {state.result: state for state in growing})
    final = [writer.read(result) for result in results]
    result = relax.Tuple(final) if len(final) > 1 else final[0]
    out = relax.Var("results", typed(result).ty if len(final) > 1 else result.ty)
    writer.bindings.append(relax.VarBinding(out, result))
    body = sequence([relax.DataflowBlock(writer.bindings)], out)
    own = [writer.states.get(param, param) for param in params]
    return relax.Function(own, body, out.ty, main.is_pure, main.attrs, main.span)


class _Writer:
    """The bindings of ``main``, written again."""

    def __init__(self, states: Mapping[relax.Var, relax.Var]) -> None:
        self.states = states
        self.bindings: list[relax.Binding] = []
        self._rows: dict[relax.Var, relax.Var] = {}
        self._became: dict[relax.Expr, relax.Expr] = {}
        self._values: dict[relax.Var, relax.Expr] = {}
        self._places: dict[tuple[relax.Expr, tuple[int, ...]], relax.Var] = {}

    def begin(self, state: Growing) -> None:
        """Bind what a state was before the call."""
        length = state.param.ty.shape.values[state.axis]
        rows = relax.op.strided_slice(
            self.states[state.param], [0], [0], [length], [1], assume_inbound=True
        )
        self._rows[state.param] = self._bind("rows", rows)
        past = relax.op.permute_dims(self._rows[state.param], state.back)
        self._became[state.param] = self._bind("past", past)

    def take(self, binding: relax.Binding, grown: Mapping[relax.Expr, Growing]) -> None:
        """Write a binding; that of a state's result becomes one of rows."""
        self._values[binding.var] = binding.value
        if binding.var in grown:
            self._append(binding.value, binding.var, grown[binding.var])
            return
        value = self.read(binding.value)
        if isinstance(binding, relax.MatchCast):
            self.bindings.append(relax.MatchCast(binding.var, value, binding.ty))
        elif not isinstance(value, relax.Tuple) or isinstance(binding.var, relax.DataflowVar):
            self.bindings.append(relax.VarBinding(binding.var, value))

    def read(self, expr: relax.Expr) -> relax.Expr:
        """An expression of the new values."""
        if is_plain(expr):
            return substitute(expr, self._became)
        if touched := [var.name for var in variables(expr) if var in self._became]:
            raise CompileError(f"{touched[0]!r} is read in a branch or a loop; pass it as an input")
        return expr

    def _append(self, value: relax.Expr, var: relax.Var, state: Growing) -> None:
        joined = self._values.get(value.args[0]) if op_name(value) == _SCATTER else value
        parts = joined.args[0].fields if op_name(joined) == "relax.concat" else [value]
        found = (op_name(value) or type(value).__name__).removeprefix("relax.")
        if len(parts) < 2 or self._itself(parts[0]) != state.param:
            raise CompileError(
                f"{state.what} becomes the result of {found}; need a concatenation that begins "
                "with it"
            )
        origin = origin_of(value)
        new = [
            self._bind(
                "new", with_origin(relax.op.permute_dims(self.read(part), state.order), origin)
            )
            for part in parts[1:]
        ]
        whole = relax.op.concat([self._rows[state.param], *new], 0)
        whole = self._bind("rows", with_origin(whole, origin))
        if joined is not value:
            whole = self._bind("rows", with_origin(self._scattered(whole, value, state), origin))
        self._became[var] = self._bind("present", relax.op.permute_dims(whole, state.back))

    def _scattered(self, rows: relax.Var, call: relax.Call, state: Growing) -> relax.Expr:
        """``scatter_nd`` into rows: the same updates, whose coordinates have the rows' first."""
        indices = call.args[1]
        count = int(shape_of(indices)[-1])
        if sorted(state.order[:count]) != list(range(count)) or call.attrs.reduction != "update":
            raise CompileError(
                f"{state.what} becomes the result of scatter_nd with {count} coordinates; need one"
                f" for each of the first {state.axis + 1} axes, and updates that replace"
            )
        key = indices, tuple(state.order[:count])
        if key not in self._places:
            order = relax.const(np.array(state.order[:count]), "int64")
            places = relax.op.take(self.read(indices), order, axis=len(shape_of(indices)) - 1)
            self._places[key] = self._bind("places", places)
        return relax.op.scatter_nd(rows, self._places[key], self.read(call.args[2]), "update")

    def _itself(self, expr: relax.Expr) -> relax.Expr:
        """What an expression is but for joins of one part, as an optional cache leaves behind."""
        value = self._values.get(expr)
        while op_name(value) == "relax.concat" and len(value.args[0].fields) == 1:
            expr = value.args[0].fields[0]
            value = self._values.get(expr)
        return expr

    def _bind(self, name: str, expr: relax.Expr) -> relax.Var:
        value = typed(expr)
        var = relax.DataflowVar(name, value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var


def scattered(main: relax.Function) -> set[relax.Var]:
    """The parameters of what ``rows_first`` gives whose new rows are put in places of their own."""
    made: dict[relax.Var, relax.Var] = {}
    found: set[relax.Var] = set()
    for binding in bindings_of(main):
        name, value = op_name(binding.value), binding.value
        if name == "relax.strided_slice" and value.args[0] in main.params:
            made[binding.var] = value.args[0]
        elif name == "relax.concat" and (first := value.args[0].fields[0]) in made:
            made[binding.var] = made[first]
        elif name == _SCATTER and value.args[0] in made:
            found.add(made[value.args[0]])
    return found


def mark_states(
    mod: tvm.IRModule, growing: Mapping[int, str], placed: Collection[int] = ()
) -> tvm.IRModule:
    """Tell regions which of their inputs are states; the module is not changed.

    ``growing`` names the states among the parameters of ``main``; the new rows of those in
    ``placed`` are scattered, which has to happen in the same region. Raises ``CompileError`` for
    one that no region writes rows into.
    """
    if not growing:
        return mod
    main, out = mod["main"], mod.clone()
    same_as: dict[relax.Var, relax.Var] = {}
    waiting = {main.params[place]: name for place, name in growing.items()}
    apart = {main.params[place] for place in placed}
    for binding in bindings_of(main):
        value = binding.value
        if isinstance(value, relax.Var):
            same_as[binding.var] = same_as.get(value, value)
        called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar)
        region = mod[value.op] if called else None
        if not is_region(region):
            continue
        tensors = [p for p in region.params if isinstance(p.ty, relax.TensorType)]
        given = list(value.args)[len(region.params) - len(tensors) :]
        sources = [same_as.get(argument, argument) for argument in given]
        states = {p: source in apart for p, source in enumerate(sources) if source in waiting}
        places = _appended(region, states)
        if places:
            out[value.op] = region.with_attr(STATES_ATTRIBUTE, places)
        for place in places:
            del waiting[sources[place]]
    if waiting:
        name = next(iter(waiting.values()))
        raise CompileError(
            f"state {name!r}: no region writes its new rows; the report of a compilation without "
            "states says what is left to TVM"
        )
    return out


def _appended(function: relax.Function, places: Mapping[int, bool]) -> list[int]:
    """The inputs, of these, that a region puts new rows behind the first ones of, in their shape.

    True is for those whose rows are scattered then.
    """
    if not places:
        return []
    region = read_region(function.with_attr(STATES_ATTRIBUTE, list(places)))
    grown = [grown_state(region, node) for node in region.nodes]
    put = [scattered_state(region, node) for node in region.nodes]
    return [
        place for place, late in places.items() if region.inputs[place] in (put if late else grown)
    ]
