"""If, Loop and Scan, as functions: what their bodies compute becomes regions like all else.

Each graph inside a node becomes a function of its own, of the values around it that it reads. Only
functions without operators branch, and only on what others computed: ``if(c, ...)`` is
``then(...)`` where c, else ``otherwise(...)``; for loops see ``rounds``. Relax types what it can of
the results; extents that values decide get symbols where the results arrive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.frames import frames
from byoc.frontends.onnx.graph_names import all_graphs, reads
from byoc.frontends.onnx.loop_states import goes_on, is_lone, runs, unread
from byoc.frontends.onnx.symbolic_import import SymbolicImporter
from byoc.frontends.onnx.tangled_extents import TangledExtents
from byoc.frontends.relax_functions import (
    Functions,
    Kind,
    Variables,
    call,
    choice,
    inlined,
    items,
    parameters,
)
from byoc.frontends.rounds import FLAG, NUMBER, Body, Part, Rounds
from byoc.ir.dataflow import array_of, shape_of
from codegen_cc.dim import Dim, at_most, normal
from codegen_cc.region.relax_dims import relax_extent, variable_symbols

#: More rounds than any loop has.
_ENDLESS = 2**63 - 1

_FLOWS = ("If", "Loop", "Scan")

Types = Sequence[Kind]


class ControlFlowImporter(SymbolicImporter):
    """Converts nodes with graphs inside into calls of functions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.functions = Functions(relax.BlockBuilder)

    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> tvm.IRModule:
        """Import a graph, and the functions that it calls."""
        module = super().from_onnx(graph, opset)
        for gvar, function in self.functions.made.items():
            module[gvar] = function
        return module

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        others = [node for node in graph.node if node.op_type not in _FLOWS]
        super()._check_for_unsupported_ops(SimpleNamespace(node=others))

    def convert_node(self, node: onnx.NodeProto) -> None:
        """Convert a node, one with graphs inside by functions."""
        if node.op_type not in _FLOWS:
            super().convert_node(node)
            return
        self._begin(node)
        self._parse_value_proto(node)
        convert = {"If": self._if, "Loop": self._loop, "Scan": self._scan}[node.op_type]
        for name, result in zip(node.output, convert(node), strict=False):
            if name:
                self._nodes[name] = result
                self._check_result(node, name, result)

    # ------------------------------------------------------------------ values

    def _arrived(self, value: relax.Expr, kind: Kind | None = None) -> relax.Expr:
        """A result of a function as what it is known to be, with symbols for other extents."""
        if not isinstance(value.ty, relax.TensorType) or isinstance(
            value.ty.shape, relax.ShapeExpr
        ):
            return value
        kind = kind or self._kind(value)
        if not kind.dims:
            return value
        ty = kind.type(self._variables, f"v{len(self._variables)}")
        self._variables |= variable_symbols(relax.analysis.tir_vars_in_type(ty))
        return self.bb.match_cast(value, ty)

    def _operand(self, name: str) -> relax.Expr:
        """A value of the graph as a tensor that a function can be called with."""
        if name in self._values:
            return self._tensor(self._values[name])
        value = self._nodes[name]
        if isinstance(value.ty, relax.ShapeType):
            value = self.bb.normalize(relax.op.shape_to_tensor(value))
        if not isinstance(value.ty, relax.TensorType):
            raise ValueError(f"value {name!r} is no tensor")
        if isinstance(value, relax.Var | tvm.ir.GenericConst):
            return value
        self._nodes[name] = self.bb.emit(value)
        return self._nodes[name]

    def _scalar(self, value: relax.Expr) -> relax.Expr:
        if value.ty.ndim == 0:
            return value
        known = array_of(value)
        if known is not None and known.size == 1:
            return relax.const(known.reshape(()), str(value.ty.dtype))
        return self.bb.emit(relax.op.reshape(value, []))

    def _around(self, graphs: Iterable[onnx.GraphProto]) -> list[str]:
        """The values around graphs that they read and that are no constants, each once."""
        found: dict[str, None] = {}
        for graph in graphs:
            own = {name for part in all_graphs(graph) for name in _given(part)}
            found |= dict.fromkeys(name for name in reads(graph) if name and name not in own)
        return [name for name in found if self._is_computed(name)]

    def _is_computed(self, name: str) -> bool:
        if name in self._values:
            return False
        return name in self._nodes and not isinstance(self._nodes[name], tvm.ir.GenericConst)

    def _kind(self, value: relax.Expr) -> Kind:
        return Kind.of(value.ty, list(self._variables))

    def _called(self, gvar: tvm.ir.GlobalVar, operands: Sequence[relax.Expr]) -> list[relax.Expr]:
        return items(self.bb, self.bb.emit(call(gvar, self._variables, operands)))

    # ------------------------------------------------------------------ bodies

    def _body(
        self,
        graph: onnx.GraphProto,
        kinds: Types,
        around: Sequence[str],
        lone: Collection[int] = (),
    ) -> tuple[tvm.ir.GlobalVar, list[Kind | None]]:
        """A graph as a function of its inputs and of values around; also what it gives.

        That is None for a sequence. Scalars among results whose numbers are ``lone`` become [1].
        """
        inner = type(self)({}, "float32")
        for name in ("weights", "refusals", "expected", "opset", "functions"):
            setattr(inner, name, getattr(self, name))
        inner.in_branch = True
        inner._check_for_unsupported_ops(graph)
        known = list(self._variables)
        outside = [self._kind(self._operand(name)) for name in around]
        variables, params = parameters(known, [*kinds, *outside])
        inner._variables = dict(variables)
        inner.tangled = TangledExtents(
            self.tangled.of_inputs, dict(self.tangled.names), self.tangled.computed
        )
        inner._values = dict(self._values)
        constants = {n: e for n, e in self._nodes.items() if isinstance(e, tvm.ir.GenericConst)}
        names = [*(value.name for value in graph.input), *around]
        operands = params[1:] if known else params
        inner._nodes = {**constants, **dict(zip(names, operands, strict=True))}
        for param in operands:
            inner._variables |= variable_symbols(relax.analysis.tir_vars_in_type(param.ty))
        inner._take_weights(graph)
        with inner.bb.function("f", params, private=True):
            with inner.bb.dataflow():
                inner._construct_nodes(graph)
                results = [inner._result(value, bool(kinds)) for value in graph.output]
                results = [
                    inner._lone(result) if number in lone else result
                    for number, result in enumerate(results)
                ]
                result = inner.bb.emit_output(relax.Tuple(results))
            inner.bb.emit_func_output(result)
        function = self.functions.with_loop_nests(inner.bb.get())["f"]
        found = [
            Kind.of(value.ty, known) if isinstance(value.ty, relax.TensorType) else None
            for value in results
        ]
        return self.functions.named(graph.name or "body", function), found

    def _take_weights(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._nodes[tensor.name] = relax.const(self._parse_array(tensor))

    def _result(self, value: onnx.ValueInfoProto, checked: bool) -> relax.Expr:
        """What a graph gives; where it is to be ``checked``, of the declared shape, if any.

        That counts where the shape is not known otherwise, or has extents of computed slices.
        """
        if value.name not in self._nodes:
            raise ValueError(f"result {value.name!r} of its body is an optional without an element")
        result = self._nodes[value.name]
        declared = value.type.tensor_type
        if not (checked and isinstance(result.ty, relax.TensorType) and declared.HasField("shape")):
            return result
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared.shape.dim]
        shape = shape_of(result)
        if None in dims or (shape is not None and not self.tangled.has_cuts(shape)):
            return result
        ty = relax.TensorType(dims, str(result.ty.dtype))
        # TVM lowers no operator inside of a check.
        return self.bb.match_cast(self.bb.emit(result), ty)

    def _if(self, node: onnx.NodeProto) -> list[relax.Expr]:
        graphs = {a.name: a.g for a in node.attribute}
        known = self._value(node.input[0])
        if known is not None and known.elements.size == 1:  # such as whether sizes are equal
            taken = "then_branch" if known.elements.item() else "else_branch"
            return self._in_place(graphs[taken], node.output)
        flag = self._scalar(self._operand(node.input[0]))
        around = self._around(graphs.values())
        yes, one = self._body(graphs["then_branch"], [], around)
        no, other = self._body(graphs["else_branch"], [], around)
        pairs = list(zip(one, other, strict=True))
        if lone := [n for n, pair in enumerate(pairs) if is_lone(*pair) or is_lone(*pair[::-1])]:
            yes, one = self._body(graphs["then_branch"], [], around, lone)
            no, other = self._body(graphs["else_branch"], [], around, lone)
            pairs = list(zip(one, other, strict=True))
        operands = [self._operand(name) for name in around]

        def make(
            builder: relax.BlockBuilder, variables: Variables, given: list[relax.Expr]
        ) -> relax.Expr:
            one, other = (call(gvar, variables, given[1:]) for gvar in (yes, no))
            return choice(builder, given[0], one, other)

        kinds = [FLAG, *map(self._kind, operands)]
        gvar = self.functions.add("if", list(self._variables), kinds, make)
        results = self._called(gvar, [flag, *operands])
        return [
            result if None in pair else self._arrived(result, pair[0].meet(pair[1]))
            for result, pair in zip(results, pairs, strict=True)
        ]

    def _in_place(self, graph: onnx.GraphProto, outputs: Sequence[str]) -> list[relax.Expr]:
        """What a branch gives, whose nodes become part of the graph around it."""
        self._check_for_unsupported_ops(graph)
        for name in _given(graph):  # a branch before may have given others of these names
            self._values.pop(name, None)
            self._nodes.pop(name, None)
        self._take_weights(graph)
        self._construct_nodes(graph)
        results = [self._result(value, checked=False) for value in graph.output]
        for name, value in zip(outputs, graph.output, strict=True):
            if value.name in self._values:
                self._values[name] = self._values[value.name]
        return results

    # ------------------------------------------------------------------ loops

    def _loop(self, node: onnx.NodeProto) -> list[relax.Expr]:
        (graph,) = (a.g for a in node.attribute if a.name == "body")
        limit, flag = (
            self._scalar(self._operand(name)) if name else None
            for name in [*node.input, "", ""][:2]
        )
        states = [self._operand(name) for name in node.input[2:]]
        around = self._around([graph])
        limit = relax.const(_ENDLESS, "int64") if limit is None else limit
        kinds = [self._kind(state) for state in states]
        endless = goes_on(graph)
        alone = unread(graph) if runs(limit, flag) else frozenset()
        body, kinds, results = self._stable(graph, [NUMBER, FLAG], kinds, [], around, alone)
        states = [
            self._zeros(kind) if number in alone else self._lone(state, kind)
            for number, (state, kind) in enumerate(zip(states, kinds, strict=True))
        ]

        def one(
            builder: relax.BlockBuilder,
            variables: Variables,
            number: relax.Expr,
            given: list[relax.Expr],
            outside: list[relax.Expr],
        ) -> tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]]:
            yes = relax.const(True, "bool")
            operands = [number, yes, *given, *outside]
            done = items(builder, inlined(builder, self.functions.made[body], variables, operands))
            going = None if endless else done[0]
            if going is not None and going.ty.ndim != 0:
                going = builder.emit(relax.op.reshape(going, []))
            return going, done[1 : 1 + len(given)], done[1 + len(given) :]

        parts = [Part(kind) for kind in results[1 + len(states) :]]
        count = self._extent_of(node.input[0]) if flag is None and endless else None
        return self._run(node, kinds, parts, around, one, limit, flag, states, count)

    def _scan(self, node: onnx.NodeProto) -> list[relax.Expr]:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if self.opset < 9:
            raise ValueError("a batch of sequences whose length is not known")
        graph, count = attributes["body"], attributes["num_scan_inputs"]
        names = list(node.input)
        states = [self._operand(name) for name in names[: len(names) - count]]
        scanned = names[len(names) - count :]
        given = [*states, *map(self._operand, scanned)]
        if (framed := frames(self.bb, attributes, given, self._constant, self._extent)) is not None:
            return framed
        sources = [self._kind(self._operand(name)) for name in scanned]
        nothing = [0] * count
        axes = attributes.get("scan_input_axes", nothing)
        backward = attributes.get("scan_input_directions", nothing)
        if any(kind.dims is None for kind in sources):
            raise ValueError("scans a tensor of unknown rank")
        axes = [axis % len(kind.dims) for kind, axis in zip(sources, axes, strict=True)]
        slices = [
            Kind(kind.dtype, kind.dims[:axis] + kind.dims[axis + 1 :])
            for kind, axis in zip(sources, axes, strict=True)
        ]
        extent = sources[0].dims[axes[0]]
        if extent is None:
            raise ValueError("scans an axis whose extent is not known")
        limit = self._number(extent)
        around = [*scanned, *(n for n in self._around([graph]) if n not in scanned)]
        kinds = [self._kind(state) for state in states]
        body, kinds, results = self._stable(graph, [], kinds, slices, around)

        def one(
            builder: relax.BlockBuilder,
            variables: Variables,
            number: relax.Expr,
            given: list[relax.Expr],
            outside: list[relax.Expr],
        ) -> tuple[None, list[relax.Expr], list[relax.Expr]]:
            last = relax_extent(extent - 1, variables)
            if not isinstance(last, int):
                shape = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([last])))
                last = builder.emit(relax.op.reshape(shape, []))
            else:
                last = relax.const(last, "int64")
            parts = []
            for value, axis, back in zip(outside, axes, backward, strict=False):
                at = builder.emit(relax.op.subtract(last, number)) if back else number
                parts.append(builder.emit(relax.op.take(value, at, axis)))
            operands = [*given, *parts, *outside]
            done = items(builder, inlined(builder, self.functions.made[body], variables, operands))
            return None, done[: len(given)], done[len(given) :]

        found = results[len(states) :]
        zeros = [0] * len(found)
        places = attributes.get("scan_output_axes", zeros)
        prepended = attributes.get("scan_output_directions", zeros)
        parts = [
            Part(kind, axis % (len(kind.dims or ()) + 1), bool(back))
            for kind, axis, back in zip(found, places, prepended, strict=True)
        ]
        return self._run(node, kinds, parts, around, one, limit, None, states, extent)

    def _extent_of(self, name: str) -> Dim | None:
        """A number of the graph as an extent; None where it is not known to be one."""
        value = self._value(name) if name else None
        if value is None or value.elements.size != 1:
            return None
        number = normal(value.elements.item())
        return number if at_most(0, number) else None

    def _constant(self, name: str) -> np.ndarray | None:
        """The value of a constant of the graph."""
        value = self._nodes.get(name)
        return array_of(value) if isinstance(value, tvm.ir.GenericConst) else None

    def _lone(self, value: relax.Expr, kind: Kind | None = None) -> relax.Expr:
        """A scalar as [1], where that is the ``kind``, if one is given; others as they are."""
        is_scalar = isinstance(value.ty, relax.TensorType) and value.ty.ndim == 0
        if not is_scalar or (kind is not None and kind.dims != (1,)):
            return value
        return self.bb.emit(relax.op.reshape(value, [1]))

    def _zeros(self, kind: Kind) -> relax.Expr:
        """A tensor of this type; extents that vary are 0."""
        dims = [0 if dim is None else relax_extent(dim, self._variables) for dim in kind.dims or ()]
        return self.bb.emit(relax.op.zeros(relax.ShapeExpr(dims), kind.dtype))

    def _number(self, extent: sympy.Expr | int) -> relax.Expr:
        """An extent as a scalar."""
        if isinstance(extent, int):
            return relax.const(extent, "int64")
        shape = relax.ShapeExpr([relax_extent(extent, self._variables)])
        return self.bb.emit(relax.op.reshape(self.bb.emit(relax.op.shape_to_tensor(shape)), []))

    def _stable(
        self,
        graph: onnx.GraphProto,
        before: Types,
        states: list[Kind],
        after: Types,
        around: Sequence[str],
        alone: Collection[int] = (),
    ) -> tuple[tvm.ir.GlobalVar, list[Kind], list[Kind]]:
        """The body for states whose types a round does not change; these, and what it gives.

        States that no round reads, by their numbers in ``alone``, have the types that it gives.
        """
        first = 1 if before else 0
        while True:
            body, results = self._body(graph, [*before, *states, *after], around)
            if None in results:
                raise ValueError("a sequence whose length may change from round to round")
            found = results[first : first + len(states)]
            met = [
                other if number in alone or is_lone(one, other) else one.meet(other)
                for number, (one, other) in enumerate(zip(states, found, strict=True))
            ]
            if any(kind.dims is None for kind in met):
                raise ValueError("a state whose rank changes from round to round")
            if met == states:
                return body, states, results
            states = met

    def _run(
        self,
        node: onnx.NodeProto,
        kinds: list[Kind],
        parts: list[Part],
        around: Sequence[str],
        body: Body,
        limit: relax.Expr,
        flag: relax.Expr | None,
        states: list[relax.Expr],
        count: Dim | None,
    ) -> list[relax.Expr]:
        """The rounds from the states on; ``count`` of them, where that is known."""
        if any(part.kind.dims is None or None in part.kind.dims for part in parts):
            raise ValueError("results of rounds whose shapes are not known")
        outside = [self._operand(name) for name in around]
        name = node.op_type.lower()
        known = list(self._variables)
        rounds = Rounds(
            self.functions, known, name, kinds, parts, list(map(self._kind, outside)), body
        )
        most = array_of(limit)
        run = rounds.run(None if most is None or int(most) == _ENDLESS else int(most))
        going = self.bb.emit(relax.op.less(relax.const(0, "int64"), limit))
        if flag is not None:
            going = self.bb.emit(relax.op.logical_and(going, flag))
        operands = [relax.const(0, "int64"), going, *states, limit, *outside]
        results = [*kinds, *(part.whole(count) for part in parts)]
        return list(map(self._arrived, self._called(run, operands)[2:], results))


def _given(graph: onnx.GraphProto) -> list[str]:
    """The names of the values that a graph gives itself."""
    values = [value.name for value in (*graph.input, *graph.initializer)]
    return [*values, *(name for node in graph.node for name in node.output)]
