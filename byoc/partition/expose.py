"""Let a partitioned network tell what its nodes computed, and compute on what it is told.

The pass runs after ``annotate``: which operators are one composite, and which library computes it,
is decided by then, so that what is looked at is what a library without outputs of this kind does.

A *judged value* is a result of a composite, or of a call that stays with TVM, that the imported
model has a name for, and hence something that another engine knows: front ends write such names
into origins (``byoc.ir.origin``). Rules of canonicalisation give a variable another expression of
the same value, never another value, so that the variable that was bound to it before them still is.

    as it is              x ──▶ a ──▶ b ──▶ c ──▶ y
    Exposed.TOTAL         main(x) gives y, and a, b, c besides
    Exposed.OWN           main(x, a', b') gives a(x), b(a'), c(b')

In the second form each composite computes on values of the caller, such as a reference's: what its
result is off by is its own error, without those of what it reads. Values that are not judged are
computed as ever, from the judged ones before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import tvm
from tvm import relax

from byoc.deploy.metadata import TensorInfo
from byoc.ir.dataflow import (
    Var,
    dtype_of,
    is_candidate,
    is_plain,
    op_name,
    sequence,
    static_shape_of,
    substitute,
    variables,
)
from byoc.ir.origin import origin_of
from byoc.ir.walk import bindings_of, composites_of
from codegen_cc.node import Node

#: Before the value's name in the names of what the pass adds, as outputs are values as well.
INPUT, OUTPUT = "given:", "judged:"


class Exposed(Enum):
    """What the additional outputs are computed on: all that ran before, or the caller's values.

    With ``NOTHING`` there are none, and the module stays as it is.
    """

    NOTHING = "nothing"
    TOTAL = "total"
    OWN = "own"


@dataclass(frozen=True)
class Judged:
    """A judged value: the imported model's name of it, its type, and what computes it.

    ``node`` is the composite's descriptor, None for a call of the operator ``operator`` that stays
    with TVM; ``names`` are the nodes that it stands for. It may be ``is_one_of_several`` results.
    """

    name: str
    info: TensorInfo
    operator: str
    names: tuple[str, ...]
    node: Node | None
    is_one_of_several: bool


def named_values(mod: tvm.IRModule) -> dict[Var, str]:
    """The variables of ``main`` that hold values of the model, before canonicalisation: the names.

    Of a value in 16 bits that is also held in 32, it is the variable of the model's own dtype.
    """
    found = {origin_of(binding.value).value: binding.var for binding in bindings_of(mod["main"])}
    return {var: name for name, var in found.items() if name}


@dataclass
class Expose:
    """The pass: judged values become outputs of ``main``; ``OWN``: and inputs.

    ``known`` says of a value's name whether another engine has it; None for all. Of these, those in
    ``wanted`` become outputs; None for all. ``note`` is to be called with the module that is to be
    canonicalised. After the pass ``judged`` holds all judged values, in order, ``unknown`` counts
    composites none of whose results is one, ``inputs`` and ``outputs`` are what ``main`` has got.
    """

    known: Callable[[str], bool] | None = None
    how: Exposed = Exposed.TOTAL
    wanted: Collection[str] | None = None
    judged: list[Judged] = field(default_factory=list)
    unknown: int = 0
    inputs: list[TensorInfo] = field(default_factory=list)
    outputs: list[TensorInfo] = field(default_factory=list)
    _values: dict[Var, str] = field(default_factory=dict, repr=False)

    def note(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Note which variables hold values of the model; the module stays as it is."""
        named = named_values(mod).items()
        self._values = {v: n for v, n in named if self.known is None or self.known(n)}
        return mod

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with another ``main``; the given one is not changed."""
        main = mod["main"]
        found = self._find(main)
        chosen = {v: j for v, j in found.items() if self.wanted is None or j.name in self.wanted}
        self.judged = list(found.values())
        if self.how is Exposed.NOTHING:
            return mod
        self.outputs = [_named(OUTPUT, judged) for judged in chosen.values()]
        out = mod.clone()
        out["main"] = self._rewritten(main, found, chosen)
        return out

    def signature(
        self, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]
    ) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
        """What ``main`` takes and gives after the pass, where it took and gave these before."""
        before = () if self.how is Exposed.OWN else outputs
        return (*inputs, *self.inputs), (*before, *self.outputs)

    def _find(self, main: relax.Function) -> dict[Var, Judged]:
        composites = {var: node for var, _, node in composites_of(main)}
        held = {v for b in bindings_of(main) if _is_opaque(b.value) for v in variables(b.value)}
        found: dict[Var, Judged] = {}
        calls: dict[Var, relax.Call] = {}
        unknown: set[Var] = set()
        for binding in bindings_of(main):
            var, value = binding.var, binding.value
            if isinstance(binding, relax.MatchCast):
                continue
            if isinstance(value, relax.Call):
                calls[var] = value
                unknown |= {var} if value.op in composites else set()
            # Of several results each is taken out by a binding of its own.
            giver = value.tuple_value if isinstance(value, relax.TupleGetItem) else var
            name, shape = self._values.get(var), static_shape_of(var)
            if giver not in calls or name is None or shape is None or var in held:
                continue
            unknown.discard(giver)
            call = calls[giver]
            node = composites.get(call.op)
            operator = op_name(call) or str(call.op) if node is None else node.composite
            names = origin_of(call).names if node is None else node.source
            info = TensorInfo(name, tuple(map(int, shape)), dtype_of(var))
            found[var] = Judged(name, info, operator, names, node, giver is not var)
        self.unknown = len(unknown)
        return found

    def _rewritten(
        self, main: relax.Function, found: Mapping[Var, Judged], chosen: Mapping[Var, Judged]
    ) -> relax.Function:
        # Outputs of a function are no variables of a dataflow block.
        outside: dict[relax.Expr, relax.Expr] = {var: relax.Var(var.name, var.ty) for var in chosen}
        results: list[relax.Expr] = [outside[var] for var in chosen]
        fed: dict[Var, relax.Var] = {}
        if self.how is Exposed.OWN:
            fed = {var: relax.Var(f"{var.name}_given", var.ty) for var in found}
            reads = {**fed}
        else:
            results = [*_results_before(main, outside), *results]
            reads = outside
        blocks = _living(
            [_with_reads(block, outside, reads) for block in main.body.blocks], results
        )
        read = {v for block in blocks for b in block.bindings for v in variables(b.value)}
        given = [(var, param) for var, param in fed.items() if param in read]
        self.inputs = [_named(INPUT, found[var]) for var, _ in given]
        params = [*main.params, *(param for _, param in given)]
        result = relax.Tuple(results)
        body = sequence(blocks, result)
        return relax.Function(params, body, result.ty, main.is_pure, main.attrs, main.span)


def _results_before(
    main: relax.Function, outside: dict[relax.Expr, relax.Expr]
) -> list[relax.Expr]:
    """What ``main`` gives anyway, as single tensors; adds to ``outside`` what these are."""
    result = main.body.body
    if not isinstance(result.ty, relax.TupleType):
        return [outside.get(result, result)]
    values = {binding.var: binding.value for binding in bindings_of(main)}
    whole = values.get(result, result)
    if not isinstance(whole, relax.Tuple):
        return [relax.TupleGetItem(result, i) for i in range(len(result.ty.fields))]
    for item in whole.fields:
        if isinstance(item, relax.DataflowVar) and item not in outside:
            outside[item] = relax.Var(item.name, item.ty)
    return [outside.get(item, item) for item in whole.fields]


def _named(prefix: str, judged: Judged) -> TensorInfo:
    return replace(judged.info, name=prefix + judged.name)


def _is_opaque(value: relax.Expr) -> bool:
    """Whether variables in an expression cannot be exchanged; composites have none from outside."""
    return not is_plain(value) and (not isinstance(value, relax.Function) or is_candidate(value))


def _with_reads(
    block: relax.BindingBlock,
    outside: Mapping[relax.Expr, relax.Expr],
    reads: dict[relax.Expr, relax.Expr],
) -> relax.BindingBlock:
    """The block with other variables bound, and others read."""
    bindings: list[relax.Binding] = []
    for binding in block.bindings:
        var, value = outside.get(binding.var, binding.var), binding.value
        value = substitute(value, reads) if is_plain(value) else value
        if isinstance(binding, relax.MatchCast):
            bindings.append(relax.MatchCast(var, value, binding.ty))
        else:
            bindings.append(relax.VarBinding(var, value))
    return type(block)(bindings)


def _living(
    blocks: list[relax.BindingBlock], results: list[relax.Expr]
) -> list[relax.BindingBlock]:
    """The blocks without pure bindings that nothing reads; casts check, and stay."""
    live = {var for result in results for var in variables(result)}
    kept: list[relax.BindingBlock] = []
    for block in reversed(blocks):
        pure = isinstance(block, relax.DataflowBlock)
        bindings: list[relax.Binding] = []
        for binding in reversed(block.bindings):
            if not pure or binding.var in live or isinstance(binding, relax.MatchCast):
                live.update(variables(binding.value))
                bindings.append(binding)
        kept.append(type(block)(bindings[::-1]))
    return kept[::-1]
