"""Gather composites into as few regions as can be, each one a function for the codegen.

Terms
    A *node* is a binding of a dataflow block: offloaded if it calls a composite, else TVM's own.
    A *region* is a set of offloaded nodes that becomes one function, called once.
    A region is *convex* if no path leaves it and comes back.
    A composite with several results gives a tuple. The bindings that take a result out of it belong
    to its node; ``annotate`` sees to it that nothing else reads the tuple.

Conditions of a merge
    1. Regions are convex, and no two of them wait for each other: a call must be able to run
       after all that it reads has been computed.
    2. Regions lie within one dataflow block.

    A counter-example: a, b and c are offloaded, t is not.

        a ──▶ t ──▶ c        {a, b, c} is not convex: c waits for t and t for a, so a call that
        │           ▲        computes a and c could neither precede nor follow t.
        └───▶ b ────┘        {a, b} and {c}, or {a} and {b, c}, are fine.

Algorithm
    Every node gets a level: the greatest number of times that any path to it enters offloaded
    nodes from TVM's (parameters count as TVM's). The offloaded nodes of one level are one region:
    a path from one to another through a node of TVM's would raise the level. Levels never fall
    along a path, so regions and nodes of TVM's run in the order of their levels, and there are
    no fewer regions in any other partition, because a path of level k needs k calls.
    A node that only later regions read is then moved to the first of these, if that
    passes fewer bytes between regions.

Time is linear in the number of uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import (
    CODEGEN,
    dtype_of,
    global_var,
    is_candidate,
    sequence,
    shape_of,
    substitute,
    variables,
    with_blocks,
)
from byoc.ir.symbols import named_in, told_by
from byoc.ir.walk import expressions_of
from codegen_cc import dtypes
from codegen_cc.dim import at_unit, product
from codegen_cc.node import NODE_ATTRIBUTE

#: Longest part of a function's name in a symbol; linkers take more, people do not.
MAX_NAME = 40


@dataclass
class Item:
    """One node: its bindings (the composite and its call, or one), what it reads, its level.

    ``parts`` take the results of a composite that has several out of their tuple. ``follows`` are
    casts that define symbols of shapes which the node names: it reads no value of theirs and must
    come after them.
    """

    binding: relax.Binding
    composite: relax.Binding | None
    reads: list[relax.Var]
    follows: list[relax.Var] = field(default_factory=list)
    parts: list[relax.Binding] = field(default_factory=list)
    level: int = 0

    @property
    def symbols(self) -> list[tirx.Var]:
        """The symbols that the composite knows from no operand: in bounds, say."""
        if self.composite is None:
            return []
        return list(relax.analysis.free_symbolic_vars(self.composite.value))

    @property
    def values(self) -> list[relax.Var]:
        """The variables that hold the node's value, or those of its values that are read."""
        several = self.composite is not None and isinstance(self.binding.var.ty, relax.TupleType)
        return [part.var for part in self.parts] if several else [self.binding.var]


@dataclass
class Region:
    """Offloaded nodes of one level, in order."""

    items: list[Item] = field(default_factory=list)


def merge(mod: tvm.IRModule) -> tvm.IRModule:
    """Move the composite calls of every function into region functions.

    A region function has the attributes ``Codegen`` and ``global_symbol``; its parameters are the
    tensors that it reads from outside, after the symbols that their shapes do not tell, if any; its
    result is a tensor, or a tuple if several of its values are read outside. Constants stay
    arguments of the composites.
    """
    out = mod.clone()
    taken = {gvar.name_hint for gvar in mod.get_global_vars()} | _external_symbols(mod)
    for gvar, func in mod.functions.items():
        if not is_candidate(func):
            continue
        fresh = _namer(gvar.name_hint, taken)
        read_last = set(variables(func.body.body))
        blocks: list[relax.BindingBlock] = []
        for block in func.body.blocks:
            if isinstance(block, relax.DataflowBlock):
                block = _merge_block(block, out, fresh, read_last)
            blocks.append(block)
        out[gvar] = with_blocks(func, blocks)
    return out


def _external_symbols(mod: tvm.IRModule) -> set[str]:
    """Functions outside of the module that it calls, such as regions that were compiled already."""
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    return {
        str(expr.global_symbol)
        for func in functions
        for expr in expressions_of(func)
        if isinstance(expr, relax.ExternFunc)
    }


def _namer(function: str, taken: set[str]) -> Callable[[], str]:
    """Makes symbols ``ext_<function>_<number>`` that C accepts and no other function has."""
    stem = re.sub(r"[^0-9A-Za-z_]", "_", function, flags=re.ASCII)[:MAX_NAME]
    count = 0

    def fresh() -> str:
        nonlocal count
        while f"{CODEGEN}_{stem}_{count}" in taken:
            count += 1
        name = f"{CODEGEN}_{stem}_{count}"
        taken.add(name)
        return name

    return fresh


def _merge_block(
    block: relax.DataflowBlock,
    out: tvm.IRModule,
    fresh: Callable[[], str],
    read_last: set[relax.Var],
) -> relax.DataflowBlock:
    items = read_items(block)
    assign_levels(items)
    users = _users(items)
    bindings: list[relax.Binding] = []
    top = max((item.level for item in items), default=0)
    by_level: list[list[Item]] = [[] for _ in range(top + 1)]
    for item in items:
        by_level[item.level].append(item)
    for level in by_level:
        region = Region([item for item in level if item.composite is not None])
        if region.items:
            bindings += _call_region(region, users, out, fresh(), read_last)
        bindings += [item.binding for item in level if item.composite is None]
    return relax.DataflowBlock(bindings)


def read_items(block: relax.DataflowBlock) -> list[Item]:
    """The nodes of an annotated block, in order."""
    composites: dict[relax.Var, relax.Binding] = {}
    items: list[Item] = []
    tuples: dict[relax.Var, Item] = {}
    for binding in block.bindings:
        value = binding.value
        if _takes_item(binding) and value.tuple_value in tuples:
            tuples[value.tuple_value].parts.append(binding)
            continue
        if isinstance(value, relax.Function) and NODE_ATTRIBUTE in (value.attrs or {}):
            composites[binding.var] = binding
            continue
        function = composites.get(value.op) if isinstance(value, relax.Call) else None
        reads = variables(value)
        if function is not None:
            reads = [var for var in reads if var != value.op]
        items.append(Item(binding, function, reads))
        if function is not None and isinstance(binding.var.ty, relax.TupleType):
            tuples[binding.var] = items[-1]
    _follow_casts(items)
    return items


def _takes_item(binding: relax.Binding) -> bool:
    plain = isinstance(binding, relax.VarBinding)
    return plain and isinstance(binding.value, relax.TupleGetItem)


def _follow_casts(items: list[Item]) -> None:
    """Note which nodes name symbols that an earlier cast of the block defines."""
    casts: dict[str, relax.Var] = {}
    for item in items:
        binding = item.binding
        if casts:
            named = {casts[s] for s in _symbols_in(item) if s in casts}
            item.follows = [var for var in dict.fromkeys(casts.values()) if var in named]
        if isinstance(binding, relax.MatchCast):
            for symbol in told_by(binding.ty):
                casts.setdefault(symbol.name, binding.var)


def _symbols_in(item: Item) -> set[str]:
    """Names of the symbols in the type of a node, in the shapes that it reads, and inside of it."""
    found = [*relax.analysis.tir_vars_in_type(item.binding.var.ty), *item.symbols]
    value = item.binding.value
    for argument in value.args if isinstance(value, relax.Call) else (value,):
        found += relax.analysis.tir_vars_in_type(argument.ty)
    return {symbol.name for symbol in found}


def _users(items: list[Item]) -> dict[relax.Var, list[Item]]:
    users: dict[relax.Var, list[Item]] = {}
    for item in items:
        for var in item.reads:
            users.setdefault(var, []).append(item)
    return users


def assign_levels(items: list[Item]) -> None:
    """Number the nodes as the module's docstring says; they are in topological order."""
    defined: dict[relax.Var, Item] = {}
    for item in items:
        sources = [defined[var] for var in (*item.reads, *item.follows) if var in defined]
        if item.composite is None:
            item.level = max((source.level for source in sources), default=0)
        else:
            enter = (s.level + (s.composite is None) for s in sources)
            item.level = max(1, *enter, 1)
        defined.update(dict.fromkeys(item.values, item))
    users = _users(items)
    for item in reversed(items):
        _move_later(item, users, defined)


def _move_later(
    item: Item, users: dict[relax.Var, list[Item]], defined: dict[relax.Var, Item]
) -> None:
    values = item.values
    readers = [reader for var in values for reader in users.get(var, ())]
    if item.composite is None or not readers:
        return
    if not all(isinstance(var, relax.DataflowVar) for var in values):
        return
    if any(reader.composite is None for reader in readers):
        return
    level = min(reader.level for reader in readers)
    if level == item.level:
        return
    # Operands of another level are passed in anyway; those of its own would be passed from now on.
    newly_passed = [
        var
        for var in dict.fromkeys(item.reads)
        if var in defined
        and defined[var].composite is not None
        and defined[var].level < level
        and not any(user.level >= level for user in users[var] if user is not item)
    ]
    if sum(map(_bytes, newly_passed)) < sum(map(_bytes, values)):
        item.level = level


def _bytes(var: relax.Var) -> int:
    shape = shape_of(var)
    return 0 if shape is None else at_unit(product(shape)) * dtypes.of(dtype_of(var)).bytes


def _call_region(
    region: Region,
    users: dict[relax.Var, list[Item]],
    out: tvm.IRModule,
    symbol: str,
    read_last: set[relax.Var],
) -> list[relax.Binding]:
    """Add the region's function to the module; return the bindings that call it."""
    members = {id(item) for item in region.items}
    inside = {var for item in region.items for var in item.values}
    inputs = dict.fromkeys(var for item in region.items for var in item.reads if var not in inside)
    outputs = [
        var
        for item in region.items
        for var in item.values
        if var in read_last
        or not isinstance(var, relax.DataflowVar)
        or any(id(user) not in members for user in users.get(var, ()))
    ]
    if not outputs:
        return []
    sizes = _untold_symbols(region, list(inputs))
    gvar = _add_function(region, list(inputs), sizes, outputs, out, symbol)
    arguments: list[relax.Expr] = [*inputs]
    if sizes:
        arguments.insert(0, relax.ShapeExpr(sizes))
    if len(outputs) == 1:
        call = relax.Call(gvar, arguments, ret_ty=outputs[0].ty)
        return [relax.VarBinding(outputs[0], call)]
    ty = relax.TupleType([var.ty for var in outputs])
    results = relax.DataflowVar(f"{symbol}_results", ty)
    bindings = [relax.VarBinding(results, relax.Call(gvar, arguments, ret_ty=ty))]
    for index, var in enumerate(outputs):
        bindings.append(relax.VarBinding(var, relax.TupleGetItem(results, index)))
    return bindings


def _untold_symbols(region: Region, inputs: list[relax.Var]) -> list[tirx.Var]:
    """The symbols of a region's shapes that are no axis of an input: 32 h does not tell h."""
    told = {symbol for var in inputs for symbol in told_by(var.ty)}
    types = [var.ty for item in region.items for var in (item.binding.var, *item.reads)]
    found = {*named_in(*types), *(s for item in region.items for s in item.symbols)}
    return sorted(found - told, key=lambda symbol: symbol.name)


def _add_function(
    region: Region,
    inputs: list[relax.Var],
    sizes: list[tirx.Var],
    outputs: list[relax.Var],
    out: tvm.IRModule,
    symbol: str,
) -> tvm.ir.GlobalVar:
    mapping: dict[relax.Expr, relax.Expr] = {var: relax.Var(var.name, var.ty) for var in inputs}
    params = [mapping[var] for var in inputs]
    if sizes:
        params.insert(0, relax.Var("sizes", relax.ShapeType(sizes)))
    results: list[relax.Expr] = []
    # The caller binds the outputs' own variables, so the region has others for them.
    for var in outputs:
        single = len(outputs) == 1
        mapping[var] = (relax.Var if single else relax.DataflowVar)(var.name, var.ty)
        results.append(mapping[var])
    bindings: list[relax.Binding] = []
    for item in region.items:
        bindings.append(item.composite)
        for binding in (item.binding, *item.parts):
            value = substitute(binding.value, mapping)
            bindings.append(relax.VarBinding(mapping.get(binding.var, binding.var), value))
    result = results[0]
    if len(results) > 1:
        packed = relax.Tuple(results)
        result = relax.Var("results", packed.ty)
        bindings.append(relax.VarBinding(result, packed))
    body = sequence([relax.DataflowBlock(bindings)], result)
    func = relax.Function(params, body, result.ty).with_attrs(
        {"Codegen": CODEGEN, "global_symbol": symbol}
    )
    gvar = global_var(symbol, func)
    out[gvar] = func
    return gvar
