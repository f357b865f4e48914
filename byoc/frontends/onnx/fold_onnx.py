"""Evaluate what of an ONNX graph does not depend on its inputs, and drop what nobody reads.

Exporters write the arithmetic of shapes as operators, and TVM's converters want its results. One
walk in the order of the nodes follows the types and shapes of values (ONNX's own inference, one
node at a time, with the constants found so far) and replaces

    Constant                            by an initializer
    Shape, Size of a known shape        by its numbers
    operators on constants              by what ONNX's reference evaluator makes of them
    Identity, Dropout without training  by what they read
    If on a constant                    by the branch that is taken
    If an extent is 1, to squeeze it    by Squeeze (``squeeze_if_one``)
    states of a Loop that stay          by the values around it (``loop_invariants``)
    Loop over steps of a layer, or bags by the layer (``recurrent_loops``, ``bag_loops``)
    Loop, Scan of few, known rounds     by their rounds (``unroll``)
    sequences, optionals                by the tensors that they hold (``resolve_sequences``)
    calls of functions                  by their bodies (``function_bodies``)

Each step sees all those before it, so that one walk finds all there is to find. The size of a
result is known from its inferred type before it is evaluated, and a result of another type is not
used. Large results stay operators; ``byoc.canonicalise`` folds those of weights.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from byoc.errors import ModelError
from byoc.frontends.onnx.bodies.own_types import types_of_own
from byoc.frontends.onnx.converters.old_broadcast import has_axis
from byoc.frontends.onnx.custom_operators import record_for
from byoc.frontends.onnx.followed_shapes import FollowedShapes
from byoc.frontends.onnx.function_bodies import Functions
from byoc.frontends.onnx.graph_names import (
    FreshNames,
    all_tensors,
    definitions,
    reads,
    reads_of,
    rename_reads,
    replace_nodes,
    subgraphs,
)
from byoc.frontends.onnx.honoured import ONNX_DOMAINS, OWN, defined, schema_of
from byoc.frontends.onnx.inferred_shapes import (
    NUMBERS,
    bytes_of,
    correct,
    extents_of,
    fits,
    shape_of,
)
from byoc.frontends.onnx.loop_shapes import shape_states
from byoc.frontends.onnx.quantised_operators import MICROSOFT, result_types
from byoc.frontends.onnx.resolve_sequences import INLINED, Resolver, Sequences, with_sequences
from byoc.frontends.onnx.rewritten_loops import REWRITTEN, Around, rewritten
from byoc.frontends.onnx.squeeze_if_one import squeezing_branch
from byoc.frontends.onnx.unroll import Round
from byoc.frontends.onnx.weights_apart import MAX_SHAPE

#: Operators that are evaluated. None of them is random, none takes long for operands of this size,
#: and quantized weights stay what they are.
# fmt: off
FOLDED = frozenset((
    "Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "CastLike", "Ceil", "Clip", "Concat",
    "ConstantOfShape", "CumSum", "Div", "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather",
    "GatherElements", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min",
    "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceMax",
    "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND",
    "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where", "Xor",
))
# fmt: on

#: Largest operand or result in bytes, and the sum of the results of one model.
MAX_BYTES, MAX_TOTAL = 1 << 18, 1 << 26

#: Bytes of one value that is made of constants, and of all together, which TVM's converters would
#: write out; or as many times what the model stores, if that is more.
MAX_MADE, MAX_MADE_TOTAL, MAX_TIMES, MAX_TIMES_TOTAL = 1 << 28, 1 << 30, 2, 16


def fold_constants(model: onnx.ModelProto, absent: Iterable[str] = ()) -> None:
    """Fold the graph of a valid model, in place; its inputs and outputs stay.

    ``absent`` are initializers whose data are not in the model; their types alone are used. The
    graph gets the types that were inferred in place of those that it had.

    Raises ``ModelError`` where a few constants ask for a value of hundreds of megabytes.
    """
    stored = sum(8 * prod(tensor.dims) for tensor in all_tensors(model.graph))
    names = FreshNames(model.graph)
    functions = Functions(model, names)
    walk = _Walk(model, names, functions, definitions(model.graph), stored)
    scope = _Scope(absent=frozenset(absent))
    walk.graph(model.graph, scope)
    drop_unused(model.graph)
    del model.graph.value_info[:]
    for node in model.graph.node:
        for name in node.output:
            if name in scope.types:
                model.graph.value_info.add(name=name, type=scope.types[name])


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and initializers that no output depends on, in place."""
    needed = {value.name for value in graph.output}
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if needed.intersection(filter(None, node.output)):
            needed |= reads_of(node)
            for inner in subgraphs(node):
                drop_unused(inner)
        else:
            del graph.node[index]
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]


@dataclass
class _Scope:
    """What is known of the values that a graph sees, by name."""

    types: dict[str, onnx.TypeProto] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    #: What a value is another name of.
    renamed: dict[str, str] = field(default_factory=dict)
    #: Values that depend on no input, known or not.
    fixed: set[str] = field(default_factory=set)
    absent: frozenset[str] = frozenset()
    sequences: Sequences = field(default_factory=Sequences)
    shapes: FollowedShapes = field(default_factory=FollowedShapes)

    def inner(self) -> _Scope:
        known = dict(self.types), dict(self.constants), dict(self.renamed), set(self.fixed)
        return _Scope(*known, sequences=self.sequences.copy(), shapes=self.shapes.copy())

    def value(self, name: str) -> np.ndarray | None:
        """The value of a constant."""
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_extent(self, number: str, name: str, axis: int) -> bool:
        """Whether a number is known to be an extent of a tensor."""
        extents, known = extents_of(self.types.get(name)), self.value(number)
        if known is not None or not extents:
            return bool(extents) and known.size == 1 and extents[axis] == known.item()
        return self.shapes.is_extent(number, name, self.types[name], axis)

    def is_count(self, number: str, name: str) -> bool:
        """Whether a number is known to be how many elements a tensor has."""
        return name in self.types and self.shapes.is_count(number, self.types[name])

    def add(self, tensor: onnx.TensorProto) -> None:
        self.types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        self.fixed.add(tensor.name)
        if tensor.name not in self.absent:
            self.constants[tensor.name] = tensor


@dataclass
class _Walk:
    """A walk through all graphs of a model."""

    model: onnx.ModelProto
    names: FreshNames
    functions: Functions
    #: In how many graphs each name is defined: branches may use the same ones.
    definitions: Counter[str]
    #: Bytes that the model stores, were each element of 8.
    stored: int
    #: Bytes of results that were evaluated, and of all that depend on no input.
    spent: int = 0
    made: int = 0
    #: Whether only types are wanted, of a copy of a graph.
    tentative: bool = False

    def graph(self, graph: onnx.GraphProto, scope: _Scope) -> None:
        """Fold one graph, in place; ``scope`` knows the values around it, and gets its own."""
        for value in graph.input:
            scope.types[value.name] = value.type
        for tensor in graph.initializer:
            scope.add(tensor)
        wanted, outputs = reads(graph), {value.name for value in graph.output}
        work, kept = deque(enumerate(graph.node)), []
        while work:
            index, node = work.popleft()
            rename_reads([node], scope.renamed)
            branch = _branch_taken(node, scope)
            made: dict[str, onnx.NodeProto] = {}
            if branch is None and node.op_type in ("If", *REWRITTEN):
                made = {name: other for _, other in kept for name in other.output}
            if branch is None and node.op_type == "If":
                branch = squeezing_branch(node, made, scope.value)
            inlined = (
                self._written_out(node, scope, made)
                if branch is None
                else self._inlined(node, branch, graph, scope)
            )
            if inlined is not None:
                wanted.update(name for inner in inlined for name in reads_of(inner))
                work.extendleft((INLINED, inner) for inner in reversed(inlined))
            elif _passes_on(node, scope, wanted) and node.output[0] not in outputs:
                scope.renamed[node.output[0]] = node.input[0]
            elif not self._fold(node, graph, scope, outputs):
                for inner in subgraphs(node):
                    self._shape_states(node, inner, scope)
                    self.graph(inner, scope.inner())
                kept.append((index, node))
        _keep(graph, with_sequences(kept, graph, scope.sequences, scope.renamed))

    def _shape_states(self, node: onnx.NodeProto, body: onnx.GraphProto, scope: _Scope) -> None:
        """Give the inputs of a body the shapes that they have in every round, in place."""

        def inferred(copy: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
            inner = scope.inner()
            replace(self, tentative=True).graph(copy, inner)
            return inner.types

        # A walk within one supposes nothing: it would take as long as 2 to the depth of the loops.
        shape_states(node, body, scope.types, None if self.tentative else inferred)

    def _fold(
        self, node: onnx.NodeProto, graph: onnx.GraphProto, scope: _Scope, outputs: set[str]
    ) -> bool:
        """Note what is known of a node's results; True if they are initializers now."""
        if node.domain in ONNX_DOMAINS:
            schema = schema_of(node.op_type, self._version(node.domain))
            if schema is not None and any(a.name not in schema.attributes for a in node.attribute):
                return False  # the importer refuses it
        results = _constant(node)
        if results is None:
            types = self._inferred(node, scope)
            correct(node, types, scope.types, scope.value)
            scope.shapes.follow(node, scope.types, scope.value, self._version(""))
            if node.output and node.output[0] in types and node.input:
                first = scope.types.get(node.input[0])
                scope.shapes.tell(node, types[node.output[0]], first, scope.value)
            scope.types.update(types)
            self._note_fixed(node, scope)
            results = _extents(node, scope) or self._evaluated(node, scope, types)
        if results is None:
            return False
        for tensor in results:
            scope.add(tensor)
        if outputs.intersection(node.output):
            return False
        graph.initializer.extend(results)
        return True

    def _inferred(self, node: onnx.NodeProto, scope: _Scope) -> dict[str, onnx.TypeProto]:
        """The types of a node's results, as far as they can be told."""
        names = [name for name in node.input if name]
        if any(name not in scope.types for name in names):
            return {}
        types = scope.types if list(subgraphs(node)) else {n: scope.types[n] for n in names}
        constants = (scope.constants.get(name) for name in names)
        data = {t.name: t for t in constants if t is not None and prod(t.dims) <= MAX_SHAPE}
        try:
            if node.domain == MICROSOFT and record_for(node) is None:
                return result_types(node, types, self._version(""))
            if node.domain == OWN:
                return types_of_own(node, types)
            schema = defined(node.op_type, self._version(node.domain), node.domain)
            return onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=list(self.model.opset_import)
            )
        except Exception:  # an operator unknown, or not for these operands: the importer will say
            return {}

    def _note_fixed(self, node: onnx.NodeProto, scope: _Scope) -> None:
        """Note results that depend on no input. Raises ``ModelError`` where they get too large."""
        names, outputs = (list(filter(None, part)) for part in (node.input, node.output))
        if not names or not scope.fixed.issuperset(names):
            return
        scope.fixed.update(outputs)
        size = sum(bytes_of(scope.types.get(name)) or 0 for name in outputs)
        self.made += size
        if size > max(MAX_MADE, MAX_TIMES * self.stored) or self.made > max(
            MAX_MADE_TOTAL, MAX_TIMES_TOTAL * self.stored
        ):
            who = repr(node.name) if node.name else f"with output {outputs[0]!r}"
            raise ModelError(
                f"operator {node.op_type} (node {who}) makes {size / 1e9:.1f} GB of constants,"
                f" {self.made / 1e9:.1f} GB with those before; make them inputs of the model"
            )

    def _version(self, domain: str) -> int:
        versions = {entry.domain: entry.version for entry in self.model.opset_import}
        if domain in ONNX_DOMAINS:
            return versions.get("", versions.get("ai.onnx", 1))
        return versions[domain]

    def _evaluated(
        self, node: onnx.NodeProto, scope: _Scope, types: dict[str, onnx.TypeProto]
    ) -> list[onnx.TensorProto] | None:
        """What the reference evaluator makes of constants; None if that is not to be asked."""
        if node.op_type not in FOLDED or node.domain not in ONNX_DOMAINS or has_axis(node):
            return None
        operands = {name: scope.constants.get(name) for name in node.input if name}
        if None in operands.values() or any(t.data_type not in NUMBERS for t in operands.values()):
            return None
        outputs = [name for name in node.output if name]
        sizes = [bytes_of(types.get(name)) for name in outputs]
        if node.op_type == "NonZero":  # at most as many indices per axis as there are elements
            sizes = [8 * len(t.dims) * prod(t.dims) for t in operands.values()]
        sizes += [bytes_of(scope.types[name]) for name in operands]
        if any(size is None or size > MAX_BYTES for size in sizes):
            return None
        self.spent += sum(sizes[: len(outputs)])
        if self.spent > MAX_TOTAL:
            return None
        infos = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
        single = onnx.helper.make_graph([node], "fold", [], infos, list(operands.values()))
        imports = [entry for entry in self.model.opset_import if entry.domain in ONNX_DOMAINS]
        try:
            with np.errstate(all="ignore"):
                values = ReferenceEvaluator(
                    onnx.helper.make_model(single, opset_imports=imports)
                ).run(None, {})
        except Exception:  # an operator may refuse its operands; the importer will say so better
            return None
        results = [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in zip(outputs, values, strict=True)
        ]
        return results if all(fits(t, types.get(t.name)) for t in results) else None

    def _written_out(
        self, node: onnx.NodeProto, scope: _Scope, makers: dict[str, onnx.NodeProto]
    ) -> list[onnx.NodeProto] | None:
        """A function as its body, a loop as its rounds, and what sequences are as tensors.

        ``makers`` of the values before a loop. None where a node stays.
        """
        write, nodes = Round(self.names.fresh, self._version("")), None
        around = Around(scope.types, scope.value, makers, scope.is_extent, scope.is_count)
        if node.op_type in REWRITTEN and node.domain in ONNX_DOMAINS:
            nodes = rewritten(node, around, write)
        if nodes is None:
            nodes = self.functions.body(node, scope.types, scope.constants)
            if nodes is not None or node.domain not in ONNX_DOMAINS:
                return nodes
        if nodes is None and node.op_type not in REWRITTEN:
            nodes = Resolver(scope.sequences, scope.value, around.shape, write).nodes(node)
        for copy in nodes or ():
            for inner in subgraphs(copy):
                self.definitions.update(definitions(inner))
        return nodes

    def _inlined(
        self,
        node: onnx.NodeProto,
        branch: onnx.GraphProto,
        graph: onnx.GraphProto,
        scope: _Scope,
    ) -> list[onnx.NodeProto]:
        """A branch as nodes of the graph around it, under names that are used nowhere else."""
        body = onnx.GraphProto.FromString(branch.SerializeToString())
        own = [tensor.name for tensor in body.initializer]
        own += [name for inner in body.node for name in inner.output if name]
        new = {name: self.names.fresh(name) for name in own if self.definitions[name] > 1}
        rename_reads(body.node, new)
        for inner in body.node:
            inner.output[:] = [new.get(name, name) for name in inner.output]
        for tensor in body.initializer:
            tensor.name = new.get(tensor.name, tensor.name)
            scope.add(tensor)
        graph.initializer.extend(body.initializer)
        return [
            *body.node,
            *(
                onnx.helper.make_node("Identity", [new.get(value.name, value.name)], [name])
                for value, name in zip(body.output, node.output, strict=False)
                if name
            ),
        ]


# ---------------------------------------------------------------------- single nodes


def _constant(node: onnx.NodeProto) -> list[onnx.TensorProto] | None:
    """The value of a Constant that is a tensor of numbers."""
    if node.op_type != "Constant" or node.domain not in ONNX_DOMAINS:
        return None
    tensor = onnx.TensorProto(name=node.output[0])
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            return [tensor] if tensor.data_type in NUMBERS else None
        listed = attribute.floats or attribute.ints
        number = {"value_float": attribute.f, "value_int": attribute.i}.get(attribute.name)
        if attribute.name in ("value_floats", "value_ints"):
            number = list(listed)
        if number is not None:
            dtype = np.float32 if "float" in attribute.name else np.int64
            return [numpy_helper.from_array(np.array(number, dtype), node.output[0])]
    return None


def _extents(node: onnx.NodeProto, scope: _Scope) -> list[onnx.TensorProto] | None:
    """The result of Shape or Size of known extents, and of arithmetic on these."""
    value = scope.shapes.number(node.output[0]) if node.output else None
    if node.op_type == "Size" and node.domain in ONNX_DOMAINS:
        shape = shape_of(scope.types.get(node.input[0]))
        value = None if shape is None else np.array(prod(shape), np.int64)
    return None if value is None else [numpy_helper.from_array(value, node.output[0])]


def _passes_on(node: onnx.NodeProto, scope: _Scope, wanted: Counter[str]) -> bool:
    """Whether the first result of a node is its first operand, and nobody reads another one."""
    if node.domain not in ONNX_DOMAINS or any(wanted[name] for name in node.output[1:] if name):
        return False
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        training = scope.constants.get(node.input[2])
        return training is not None and not numpy_helper.to_array(training).any()
    return node.op_type in ("Identity", "Dropout")


def _branch_taken(node: onnx.NodeProto, scope: _Scope) -> onnx.GraphProto | None:
    """The branch of an If whose condition is a constant."""
    if node.op_type != "If" or node.domain not in ONNX_DOMAINS:
        return None
    condition = scope.constants.get(node.input[0])
    if condition is None or prod(condition.dims) != 1:
        return None
    wanted = "then_branch" if numpy_helper.to_array(condition).item() else "else_branch"
    return next(a.g for a in node.attribute if a.name == wanted)


def _keep(graph: onnx.GraphProto, nodes: list[tuple[int, onnx.NodeProto]]) -> None:
    """Let the graph have these nodes, each with its place in it or ``INLINED``."""
    places = {index for index, _ in nodes}
    if INLINED in places:
        replace_nodes(graph, [node for _, node in nodes])
    else:
        for index in reversed(range(len(graph.node))):
            if index not in places:
                del graph.node[index]
