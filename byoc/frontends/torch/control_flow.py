"""Nodes with graphs of their own: torch.cond, while_loop, map and scan.

A branch is a function of the values around it that it reads, and so are the rounds of a loop
(``byoc.frontends.rounds``). What map does to each row is done to all of them at once where PyTorch
knows how (``torch.vmap``); the few rounds of a short scan are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import tvm
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from tvm import relax

from byoc.frontends.named_builder import NamedBuilder
from byoc.frontends.relax_functions import Functions, Kind, Variables, call, choice, items
from byoc.frontends.rounds import FLAG, Body, Part, Rounds
from byoc.frontends.torch.decompositions import decompositions
from byoc.frontends.torch.nodes import graphs_inside, is_random
from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.symbols import Symbols, decided_by_data
from byoc.frontends.torch.values import Graph, dtype_name
from codegen_cc.dim import Dim

#: Rounds of a scan that are written out, and nodes of them all.
MAX_ROUNDS, MAX_NODES = 32, 1024
#: More rounds than any loop has.
_ENDLESS = 2**63 - 1

#: Converts a graph, whose inputs have these values, by a builder; gives its results.
Inner = Callable[
    [torch.fx.GraphModule, Sequence[Any], NamedBuilder, Symbols], list[relax.Expr | None]
]


class ControlFlow:
    """Converts such nodes of one graph. ``functions`` are those of the whole module."""

    def __init__(self, graph: Graph, functions: Functions, inner: Inner) -> None:
        self._graph = graph
        self._builder = graph.builder
        self._symbols = graph.symbols
        self._functions = functions
        self._inner = inner

    def convert(self, node: torch.fx.Node, arguments: Sequence[Any]) -> list[relax.Expr | None]:
        """The results of a node. Raises ``ValueError`` for what no function can say."""
        return CONVERTERS[node.target.name()](self, node, *arguments)

    # ------------------------------------------------------------------ branches

    def _cond(
        self,
        node: torch.fx.Node,
        flag: Any,
        yes: torch.fx.GraphModule,
        no: torch.fx.GraphModule,
        operands: Sequence[Any] = (),
    ) -> list[relax.Expr | None]:
        if isinstance(flag, bool | torch.Tensor):
            return self._here(yes if bool(flag) else no, operands)
        outside = _varying(operands)
        known, kinds = self._symbols.known(), self._kinds(outside)
        one, other = (self._branch(graph, operands, known, kinds) for graph in (yes, no))

        def make(
            builder: relax.BlockBuilder, variables: Variables, given: list[relax.Expr]
        ) -> relax.Expr:
            pair = (call(gvar, variables, given[1:]) for gvar in (one, other))
            return choice(builder, given[0], *pair)

        gvar = self._functions.add("cond", known, [FLAG, *kinds], make)
        return self._arrived(node, self._called(gvar, [self._scalar(flag), *outside]))

    def _branch(
        self,
        graph: torch.fx.GraphModule,
        operands: Sequence[Any],
        known: Sequence[Any],
        kinds: Sequence[Kind],
    ) -> tvm.ir.GlobalVar:
        """A graph as a function of those of its operands that are no constants."""

        def make(
            builder: NamedBuilder, variables: Variables, given: list[relax.Expr]
        ) -> relax.Expr:
            with builder.dataflow():
                values = _filled(operands, given)
                results = self._inner(graph, values, builder, self._symbols.within(variables))
                made = [builder.emit(result) for result in results if result is not None]
                made = builder.emit_output(relax.Tuple(made))
            return made

        return self._functions.add("branch", known, kinds, make, computes=True)

    def _here(self, graph: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        """What a graph gives, whose nodes become part of the graph around it."""
        return self._inner(graph, operands, self._builder, self._symbols)

    def _wrapped(
        self, node: torch.fx.Node, graph: torch.fx.GraphModule, *operands: Any
    ) -> list[relax.Expr | None]:
        operands = [value for value in operands if not isinstance(value, str)]
        return self._here(graph, operands)

    # ------------------------------------------------------------------ loops

    def _while(
        self,
        node: torch.fx.Node,
        condition: torch.fx.GraphModule,
        round_: torch.fx.GraphModule,
        carried: Sequence[Any],
        operands: Sequence[Any] = (),
    ) -> list[relax.Expr | None]:
        _require_plain_rounds(round_, condition)
        states = self._states(node, carried)
        (going,) = self._here(condition, [*states, *operands])
        outside = _varying(operands)

        def one(
            builder: NamedBuilder,
            variables: Variables,
            number: relax.Expr,
            given: list[relax.Expr],
            around: list[relax.Expr],
        ) -> tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]]:
            symbols, values = self._symbols.within(variables), _filled(operands, around)
            made = self._inner(round_, [*given, *values], builder, symbols)
            (more,) = self._inner(condition, [*made, *values], builder, symbols)
            return builder.emit(relax.op.reshape(more, [])), made, []

        limit = relax.const(_ENDLESS, "int64")
        results = self._rounds("while", one, limit, self._scalar(going), states, [], outside)
        return self._arrived(node, results)

    def _scan(
        self,
        node: torch.fx.Node,
        round_: torch.fx.GraphModule,
        carried: Sequence[Any],
        rows: Sequence[Any],
        operands: Sequence[Any] = (),
    ) -> list[relax.Expr | None]:
        _require_plain_rounds(round_)
        count = self._symbols.dim(node.args[2][0].meta["val"].shape[0])
        nodes = len(round_.graph.nodes)
        if isinstance(count, int) and count <= MAX_ROUNDS and count * nodes <= MAX_NODES:
            return self._written_out(round_, carried, rows, operands, count)
        states = self._states(node, carried)
        found = node.meta["val"][len(states) :]
        parts = [Part(self._kind(value, 1)) for value in found]
        return self._along(node, round_, states, rows, operands, parts)

    def _written_out(
        self,
        round_: torch.fx.GraphModule,
        carried: Sequence[Any],
        rows: Sequence[Any],
        operands: Sequence[Any],
        count: int,
    ) -> list[relax.Expr | None]:
        states, parts = list(carried), []
        for number in range(count):
            at = relax.const(number, "int64")
            given = [
                x[number] if isinstance(x, torch.Tensor) else self._take(self._builder, x, at)
                for x in rows
            ]
            made = self._here(round_, [*states, *given, *operands])
            states, each = made[: len(states)], made[len(states) :]
            parts.append([self._builder.emit(relax.op.expand_dims(x, 0)) for x in each])
        joined = [self._builder.emit(relax.op.concat(list(p), 0)) for p in zip(*parts, strict=True)]
        return [*states, *joined]

    def _map(
        self,
        node: torch.fx.Node,
        round_: torch.fx.GraphModule,
        rows: Sequence[Any],
        operands: Sequence[Any] = (),
    ) -> list[relax.Expr | None]:
        at_once = _at_once(node, round_)
        if at_once is not None:
            return self._here(at_once, [*rows, *operands])
        _require_plain_rounds(round_)
        parts = [Part(self._kind(value, 1)) for value in node.meta["val"]]
        return self._along(node, round_, [], rows, operands, parts)

    def _along(
        self,
        node: torch.fx.Node,
        round_: torch.fx.GraphModule,
        states: list[relax.Expr],
        rows: Sequence[Any],
        operands: Sequence[Any],
        parts: list[Part],
    ) -> list[relax.Expr | None]:
        """A round for each row of tensors, which are operands of all rounds."""
        scanned = [self._graph.tensor(value) for value in rows]
        outside = [*scanned, *_varying(operands)]

        def one(
            builder: NamedBuilder,
            variables: Variables,
            number: relax.Expr,
            given: list[relax.Expr],
            around: list[relax.Expr],
        ) -> tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]]:
            each = [self._take(builder, value, number) for value in around[: len(scanned)]]
            values = _filled(operands, around[len(scanned) :])
            symbols = self._symbols.within(variables)
            made = self._inner(round_, [*given, *each, *values], builder, symbols)
            return None, made[: len(given)], made[len(given) :]

        extent = scanned[0].ty.shape.values[0]
        count = self._symbols.dim(node.meta["val"][-1].shape[0]) if parts else None
        limit = size_tensor(self._builder, extent, "int64")
        going = self._builder.emit(relax.op.less(relax.const(0, "int64"), limit))
        results = self._rounds("scan", one, limit, going, states, parts, outside, count)
        return self._arrived(node, results)

    def _rounds(
        self,
        name: str,
        body: Body,
        limit: relax.Expr,
        going: relax.Expr,
        states: list[relax.Expr],
        parts: list[Part],
        outside: list[relax.Expr],
        count: Dim | None = None,
    ) -> list[relax.Expr]:
        known, kinds = self._symbols.known(), self._kinds(states)
        around = self._kinds(outside)
        rounds = Rounds(self._functions, known, name, kinds, parts, around, body)
        run = rounds.run(count if isinstance(count, int) else None)
        operands = [relax.const(0, "int64"), going, *states, limit, *outside]
        return self._called(run, operands)[2:]

    # ------------------------------------------------------------------ values

    def _states(self, node: torch.fx.Node, carried: Sequence[Any]) -> list[relax.Expr]:
        """What a loop carries, as tensors whose sizes no round changes."""
        for value in node.meta["val"][: len(carried)]:
            sizes = value.shape if isinstance(value, torch.Tensor) else [value]
            for size in sizes:
                if isinstance(size, torch.SymInt) and any(
                    map(decided_by_data, size.node.expr.free_symbols)
                ):
                    raise ValueError("a number, or a size, that a loop changes; need tensors")
        if not all(isinstance(value, torch.Tensor | relax.Expr) for value in carried):
            raise ValueError("a number that a loop changes; need tensors")
        return [self._builder.emit(self._graph.tensor(value)) for value in carried]

    def _kind(self, value: torch.Tensor, first: int = 0) -> Kind:
        """The type of a tensor, without its first axes."""
        dims = tuple(map(self._symbols.dim, value.shape[first:]))
        return Kind(dtype_name(value.dtype), dims)

    def _kinds(self, values: Sequence[relax.Expr]) -> list[Kind]:
        return [Kind.of(value.ty, self._symbols.known()) for value in values]

    def _scalar(self, value: Any) -> relax.Expr:
        value = self._graph.tensor(value, "bool")
        return value if value.ty.ndim == 0 else self._builder.emit(relax.op.reshape(value, []))

    def _take(self, builder: NamedBuilder, rows: relax.Expr, at: relax.Expr) -> relax.Expr:
        return builder.emit(relax.op.take(rows, at, 0))

    def _called(self, gvar: tvm.ir.GlobalVar, operands: Sequence[relax.Expr]) -> list[relax.Expr]:
        variables = self._symbols.variables()
        return items(self._builder, self._builder.emit(call(gvar, variables, operands)))

    def _arrived(
        self, node: torch.fx.Node, results: Sequence[relax.Expr]
    ) -> list[relax.Expr | None]:
        """Results of a function as PyTorch knows them; what data decide gets its symbols here."""
        arrived, given = [], iter(results)
        for wanted in node.meta["val"]:
            if wanted is None:
                arrived.append(None)
                continue
            for size in wanted.shape:
                if isinstance(size, torch.SymInt):
                    self._symbols.found(size)
            kind = relax.TensorType(self._graph.extents(wanted.shape), dtype_name(wanted.dtype))
            value = next(given)
            known = isinstance(value.ty.shape, relax.ShapeExpr)
            arrived.append(value if known else self._builder.match_cast(value, kind))
        return arrived


def converts(target: Any) -> bool:
    """Whether a node's operator has graphs of its own that are converted."""
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() in CONVERTERS


CONVERTERS: dict[str, Callable[..., list[relax.Expr | None]]] = {
    "cond": ControlFlow._cond,
    "while_loop": ControlFlow._while,
    "map_impl": ControlFlow._map,
    "scan": ControlFlow._scan,
    "invoke_subgraph": ControlFlow._wrapped,
}


def _varying(values: Sequence[Any]) -> list[relax.Expr]:
    """The tensors among values that are no constants."""
    return [value for value in values if _is_computed(value)]


def _filled(values: Sequence[Any], given: Sequence[relax.Expr]) -> list[Any]:
    """Values with others in place of those that are no constants."""
    following = iter(given)
    return [next(following) if _is_computed(value) else value for value in values]


def _is_computed(value: Any) -> bool:
    return isinstance(value, tvm.ir.Expr) and isinstance(value.ty, relax.TensorType)


def _require_plain_rounds(*graphs: torch.fx.GraphModule) -> None:
    for graph in graphs:
        for part in graphs_inside(graph):
            if any(is_random(node) for node in part.nodes):
                raise ValueError("random numbers of a loop, which each round would draw again")


def _at_once(node: torch.fx.Node, round_: torch.fx.GraphModule) -> torch.fx.GraphModule | None:
    """The graph for all rows at once; None where PyTorch does not know it."""
    _, rows, *others = node.args
    values = [_fake(value) for value in [*rows, *(others[0] if others else ())]]
    fakes = [value for value in values if isinstance(value, FakeTensor)]
    if not fakes:
        return None
    axes = tuple(0 if place < len(rows) else None for place, _ in enumerate(values))
    # An open size that would become that of the example is an error, and stays open.
    sizes = fakes[0].fake_mode.shape_env
    open_sizes = sizes.error_on_new_guards() if sizes else nullcontext()
    try:
        with open_sizes, fakes[0].fake_mode, torch.no_grad():
            traced = make_fx(torch.vmap(round_, axes), decompositions())(*values)
            # Rules of vmap change their results in place (``squeeze_``).
            traced = make_fx(torch.func.functionalize(traced))(*values)
    except Exception:  # whatever an operator without a rule for it raises
        return None
    traced.graph.eliminate_dead_code()  # lists of sizes, of which none is read
    return traced


def _fake(value: Any) -> Any:
    return value.meta["val"] if isinstance(value, torch.fx.Node) else value
