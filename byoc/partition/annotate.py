"""Find what kernels can run, and wrap each find in a composite function.

Every call in a dataflow block is offered to the pattern table. A contraction is then extended
along its chain of single uses by bias, activation, residual and activation, one step at a time
while the kernel library that took it accepts the node. Order of the claims:

1. nodes of several operators and operands, such as attention (see ``patterns.composites``);
2. contractions, the last one first. Where two convolutions meet in an addition (the end of a
   ResNet stage), the later one takes it, and the other one's result is its residual operand;
3. binary operators, with an activation;
4. unary functions of several operators (see ``patterns.idioms``), then of one;
5. everything else, on its own.

The results of a composite are those of its last binding, the only one that is read outside, so
none of them can lie on a cycle. Several results are a tuple, from which they are taken one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tvm
from tvm import relax

from byoc.canonicalise.dequantised_weights import fold_weights
from byoc.ir.dataflow import (
    Block,
    describe,
    is_candidate,
    map_blocks,
    op_name,
    sequence,
    substitute,
    variables,
)
from byoc.ir.symbols import defined_symbols
from byoc.partition.epilogues import Epilogues
from byoc.partition.rules import FREE, Rules
from byoc.patterns import (
    BIAS,
    Candidate,
    Group,
    Idiom,
    Row,
    Unfit,
    find_groups,
    find_idioms,
)
from byoc.patterns.block_weight import with_block_weight
from byoc.patterns.grouped_matmul import own_comparisons
from byoc.patterns.quantised import on_integers
from byoc.patterns.registry import row_for
from byoc.patterns.unmatched import reason_of
from byoc.report.reasons import Reasons
from codegen_cc.dim import symbols
from codegen_cc.libraries.measured_choice import able_elsewhere
from codegen_cc.node import NODE_ATTRIBUTE, Node


@dataclass(frozen=True)
class Match:
    """A node, the expressions of its operands, and the bindings that it stands for, in order."""

    node: Node
    arguments: tuple[relax.Expr, ...]
    bindings: tuple[relax.Var, ...]


def annotate(
    mod: tvm.IRModule, reasons: Reasons | None = None, rules: Rules = FREE
) -> tvm.IRModule:
    """Replace every supported call, or chain of calls, by a call of a local composite function.

    Calls that ``rules`` refuses are left alone. Reasons of calls that stay are added to
    ``reasons``.
    """
    collected: Reasons = {} if reasons is None else reasons
    defined = {
        block: defined_symbols(func)
        for func in mod.functions.values()
        if is_candidate(func)
        for block in func.body.blocks
    }

    def rewrite(block: relax.DataflowBlock) -> relax.DataflowBlock:
        known = Block(block, mod)
        own_comparisons(known)
        matcher = Matcher(known, collected, rules, defined[block])
        return _annotate_block(matcher)

    return map_blocks(mod, rewrite)


def _annotate_block(matcher: Matcher) -> relax.DataflowBlock:
    """A composite stands where its last binding stood: all that it reads is defined by then."""
    block = matcher.block
    found = [_with_items(block, match) for match in matcher.run()]
    matches = {match.bindings[-1]: match for match in found}
    inside = {var for match in matches.values() for var in match.bindings[:-1]}
    bindings: list[relax.Binding] = []
    count = 0
    for binding in block.finish().bindings:
        match = matches.get(binding.var)
        if match is not None:
            bindings += composite_call(block, match, count)
            count += 1
        elif binding.var not in inside:
            bindings.append(binding)
    return relax.DataflowBlock(bindings)


def _with_items(block: Block, match: Match) -> Match:
    """The match, with a tuple of results that is read as a whole written as one of its items.

    Regions give tensors: what is returned, or passed to a call, is a tuple of these.
    """
    var = match.bindings[-1]
    if not isinstance(var.ty, relax.TupleType):
        return match
    items = [user for user in block.users(var) if _takes_item(block, user)]
    if len(items) == len(block.users(var)) and not block.is_fixed(var):
        return match
    call = block.emit(var, block.values[var], var.name)
    results = [
        block.emit(var, relax.TupleGetItem(call, index)) for index in range(len(var.ty.fields))
    ]
    for item in items:
        block.replace(item, relax.TupleGetItem(call, block.values[item].index))
    block.replace(var, relax.Tuple(results))
    return replace(match, bindings=(*match.bindings[:-1], call))


def _takes_item(block: Block, var: relax.Var) -> bool:
    return isinstance(block.values[var], relax.TupleGetItem) and not block.is_cast(var)


class Matcher:
    """Claims the bindings of one block for nodes."""

    def __init__(
        self,
        block: Block,
        reasons: Reasons,
        rules: Rules = FREE,
        defined: frozenset[str] = frozenset(),
    ) -> None:
        block.remove_unused()
        self.block = block
        self.defined = defined
        self.reasons = reasons
        self.libraries = rules.libraries
        self.precision = rules.precision
        self.exact = rules.exact
        self.order = block.ordered()
        self.position = {var: i for i, var in enumerate(self.order)}
        self.matches: list[Match] = []
        self.idioms = find_idioms(block)
        by_source: dict[relax.Expr, list[Idiom]] = {}
        for idiom in self.idioms:
            by_source.setdefault(idiom.source, []).append(idiom)
        self.refused = rules.refusals(block, self.idioms)
        # What the user refuses is out of reach for every pattern, as if claimed by another.
        self.claimed: set[relax.Var] = set(self.refused)
        self.epilogues = Epilogues(block, self.claimed, by_source, rules.libraries, self._names)

    def run(self) -> list[Match]:
        """Claim in the order that the module's docstring gives."""
        contractions, binaries, others = [], [], []
        for var, call in self.block.calls():
            row = row_for(op_name(call))
            if row is None:
                continue
            kind = contractions if BIAS in row.epilogue else binaries if row.epilogue else others
            kind.append((var, call, row))
        for group in find_groups(self.block):
            if not self.claimed.intersection(group.bindings):
                found = self._assign(group.candidate, group.bindings, len(group.results))
                if isinstance(found, Candidate):
                    several = len(group.results) > 1
                    self._claim(found, self._gather(group) if several else group.bindings)
        self.block.remove_unused()
        for var, call, row in reversed(contractions):
            self._claim_root(var, call, row)
        reserved = self._reserve_idioms()
        for var, call, row in reversed(binaries):
            if var not in reserved:
                self._claim_root(var, call, row)
        for idiom in self.idioms:
            self._claim_idiom(idiom)
        for var, call, row in (*binaries, *others):
            self._claim_root(var, call, row)
        self._note_reasons()
        return sorted(self.matches, key=lambda match: self.position[match.bindings[-1]])

    # ------------------------------------------------------------------ claims

    def _claim(self, found: Candidate, bindings: tuple[relax.Var, ...]) -> None:
        names = self._names(bindings)
        node = self.precision.apply(self.libraries.measured(found.node, names), names)
        node = able_elsewhere(node)
        node = replace(node, source=names)
        self.matches.append(Match(node, found.arguments, bindings))
        self.claimed.update(bindings)

    def _gather(self, group: Group) -> tuple[relax.Var, ...]:
        """A group's bindings, the last of which is a tuple of its results; these are its items."""
        block, last = self.block, group.bindings[-1]
        copies: dict[relax.Expr, relax.Expr] = {}
        for var in group.bindings:
            copies[var] = block.emit(last, substitute(block.values[var], copies), var.name)
        whole = block.emit(last, relax.Tuple([copies[result] for result in group.results]))
        for index, result in enumerate(group.results):
            block.replace(result, relax.TupleGetItem(whole, index))
            if index:
                block.move_behind(result, last)
        self.position[whole] = self.position[last]
        self.claimed.update(group.bindings)
        return (*copies.values(), whole)

    def _assign(
        self, found: Candidate, bindings: tuple[relax.Var, ...], results: int = 0
    ) -> Candidate | str:
        """The candidate with the library that is to compute it, or the reason why none can.

        It has so many ``results``, by default as many as the last binding.
        """
        node = replace(found.node, exact=self.exact)
        library = _miscounted(node, results or _results_of(bindings[-1]))
        library = library or self._undefined(node) or self._unpassed(found, bindings)
        if library is None:
            library = self.libraries.pick(node, self._names(bindings))
        if isinstance(library, str):
            return library
        return Candidate(replace(node, library=library.name), found.arguments)

    def _undefined(self, node: Node) -> str | None:
        """Why a region could not learn a symbol of the results' shapes, or None.

        Its caller passes what the shapes of its inputs do not tell, if the caller knows it.
        """
        known = set(symbols(dim for operand in node.operands for dim in operand.shape))
        shapes = [dim for result in node.results for dim in result.shape]
        new = [symbol.name for symbol in symbols(shapes) if symbol not in known]
        if any(name not in self.defined for name in new):
            return f"dimension {', '.join(new)} of the result is in no operand's shape; need one"
        for name, what in (("begin", "bound"), ("end", "bound"), ("sizes", "number")):
            for symbol in symbols(node.attrs.get(name, ())):
                if symbol not in known and symbol.name not in self.defined:
                    return f"dimension {symbol.name} of a {what} is in no shape; need it in one"
        return None

    def _unpassed(self, found: Candidate, bindings: tuple[relax.Var, ...]) -> str | None:
        """Why the bindings could not be a function of the operands alone, or None."""
        inside = {*found.arguments, *bindings}
        for var in _read_by(self.block, bindings):
            symbol = isinstance(var.ty, tvm.ir.PrimType)  # in the bounds of a slice
            if var not in inside and not symbol and _known_shape(var) is None:
                return f"{var.name} is {describe(var)} and no operand; need its value"
        return None

    def _names(self, bindings: tuple[relax.Var, ...]) -> tuple[str, ...]:
        """Names of the model's nodes that the bindings stand for; of variables where unknown."""
        names = dict.fromkeys(name for var in bindings for name in self.block.origin(var).names)
        return tuple(names) or tuple(var.name for var in bindings)

    def _claim_root(self, var: relax.Var, call: relax.Call, row: Row) -> None:
        if var in self.claimed or var not in self.block.values:  # a weight that was folded
            return
        try:
            found = row.build(call)
            whole = self._on_integers(found, var)
            if whole is None and fold_weights(self.block, call):
                found = row.build(self.block.values[var])
        except Unfit as unfit:
            self.reasons[var] = str(unfit) or f"refused by the builder of {row.root}"
            return
        assigned, bindings = whole or (self._assign(found, (var,)), (var,))
        if isinstance(assigned, str):
            self.reasons[var] = assigned
            return
        self._claim(*self.epilogues.extend(assigned, bindings, row))

    def _on_integers(
        self, found: Candidate, var: relax.Var
    ) -> tuple[Candidate, tuple[relax.Var, ...]] | None:
        """A product as one of the integers behind its operands, where a library computes that."""
        quantised = on_integers(self.block, found) or with_block_weight(self.block, found)
        if quantised is None or self.claimed.intersection(quantised[1]):
            return None
        bindings = (*quantised[1], var)
        assigned = self._assign(quantised[0], bindings)
        return None if isinstance(assigned, str) else (assigned, bindings)

    def _reserve_idioms(self) -> set[relax.Var]:
        """Bindings of unclaimed functions of several operators that a kernel can run."""
        reserved: set[relax.Var] = set()
        for idiom in self.idioms:
            parts = set(idiom.bindings)
            if len(parts) < 2 or parts & (self.claimed | reserved):
                continue
            try:
                if isinstance(self._assign(idiom.candidate(), idiom.bindings), Candidate):
                    reserved |= parts
            except Unfit:
                continue
        return reserved

    def _claim_idiom(self, idiom: Idiom) -> None:
        if self.claimed.intersection(idiom.bindings):
            return
        try:
            found = idiom.candidate()
        except Unfit as unfit:
            self.reasons[idiom.result] = str(unfit)
            return
        assigned = self._assign(found, idiom.bindings)
        if isinstance(assigned, Candidate):
            self._claim(assigned, idiom.bindings)
        elif len(idiom.bindings) == 1:
            self.reasons[idiom.result] = assigned

    # ------------------------------------------------------------------ reasons

    def _note_reasons(self) -> None:
        for var, call in self.block.calls():
            if var in self.refused:
                self.reasons[var] = self.refused[var]
            elif var in self.claimed:
                self.reasons.pop(var, None)
            elif var not in self.reasons:
                self.reasons[var] = reason_of(call)


def _results_of(var: relax.Var) -> int:
    return len(var.ty.fields) if isinstance(var.ty, relax.TupleType) else 1


def _miscounted(node: Node, count: int) -> str | None:
    """Why a node of a registered builder does not have the results of its call, or None."""
    if len(node.results) == count:
        return None
    return f"node {node.op} has {len(node.results)} results; need the {count} of the call"


def _read_by(block: Block, bindings: tuple[relax.Var, ...]) -> list[relax.Var]:
    return [read for var in bindings for read in variables(block.values[var])]


def _known_shape(var: relax.Var) -> relax.ShapeExpr | None:
    """The shape that a variable stands for, where its type tells it."""
    if isinstance(var.ty, relax.ShapeType) and var.ty.values is not None:
        return relax.ShapeExpr(var.ty.values)
    return None


def composite_call(block: Block, match: Match, index: int) -> list[relax.Binding]:
    """Two bindings: the local composite function, and its call in place of the originals."""
    node = match.node
    params: list[relax.Var] = []
    mapping: dict[relax.Expr, relax.Expr] = {}
    for operand, argument in zip(node.operands, match.arguments, strict=True):
        param = relax.Var(operand.role, argument.ty)
        params.append(param)
        mapping.setdefault(argument, param)
    for read in _read_by(block, match.bindings):
        shape = _known_shape(read)
        if shape is not None:
            mapping.setdefault(read, shape)
    *inner, last = match.bindings
    body = [relax.VarBinding(var, substitute(block.values[var], mapping)) for var in inner]
    result = relax.Var("result", last.ty)
    body.append(relax.VarBinding(result, substitute(block.values[last], mapping)))
    func = relax.Function(
        params, sequence([relax.DataflowBlock(body)], result), last.ty
    ).with_attrs({"Composite": node.composite, NODE_ATTRIBUTE: node.to_json()})
    local = relax.DataflowVar(f"{node.composite.replace('.', '_')}_{index}", func.ty)
    call = relax.Call(local, list(match.arguments), ret_ty=last.ty)
    return [relax.VarBinding(local, func), relax.VarBinding(last, call)]
