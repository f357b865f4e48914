"""From an exported program of PyTorch to a module of Relax.

Nodes are converted in order. What depends on no input is computed by PyTorch itself: masks, weights
that a module normalises. Sizes are taken from the shapes that PyTorch's tracer found, so that its
arithmetic on them need not be followed, and every result is compared with these shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
import tvm
from tvm import relax

from byoc.errors import ByocError, ImportFailure, ModelError, UnsupportedForm
from byoc.frontends.named_builder import NamedBuilder, with_values
from byoc.frontends.relax_functions import Functions
from byoc.frontends.torch.buffers import (
    Changed,
    changed,
    changes_refused,
    is_as_before,
    require_values,
)
from byoc.frontends.torch.control_flow import ControlFlow, converts
from byoc.frontends.torch.converters.table import (
    complex_converter_of,
    converter_of,
    draws,
    keeps_integers,
)
from byoc.frontends.torch.names import (
    module_path,
    node_names,
    operator_name,
    source_node,
    value_name,
)
from byoc.frontends.torch.nodes import (
    for_checks,
    graphs_inside,
    is_of_each,
    is_random,
    without_input,
)
from byoc.frontends.torch.plain_values import (
    as_real,
    computed,
    is_complex,
    is_constant,
    require_dense,
    require_plain,
)
from byoc.frontends.torch.program import Program
from byoc.frontends.torch.read_numbers import read_number
from byoc.frontends.torch.set_data import require_noted_data
from byoc.frontends.torch.sizes import element_tensor, float_tensor, truth_tensor
from byoc.frontends.torch.sparse_products import PARTS
from byoc.frontends.torch.symbols import Symbols, is_size
from byoc.frontends.torch.taken_apart import taken_apart
from byoc.frontends.torch.values import Graph, dtype_name
from byoc.ir.dataflow import describe, dtype_of, shape_of
from byoc.ir.define_symbols import define_symbols
from codegen_cc.dim import same
from codegen_cc.errors import one_line

#: Elements that a result of constants may have, however few its operands have.
MAX_FOLDED = 1 << 22

#: What is told the extents of its result.
_RESHAPES = tuple(
    getattr(torch.ops.aten, name).default for name in ("view", "reshape", "_unsafe_view")
)

#: What reads a number from a tensor, or makes a size of one.
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default, torch.sym_max)


def import_traced(program: Program, states: bool = False) -> tuple[tvm.IRModule, Changed]:
    """Import a program; ``main`` takes its inputs and returns its outputs in order.

    Where ``states`` are kept, buffers that the program changes are inputs and outputs behind the
    others, and so is what becomes of inputs; their names are told as well. Raises ``ModelError``
    for them where they are not; ``ImportFailure`` that names module and operator where one has no
    converter, and ``UnsupportedForm`` where one would give a wrong result.
    """
    require_values(program.exported)
    require_noted_data(program.exported)
    apart = taken_apart(program.exported)
    kept = changed(apart) if states else None
    _require_converters(apart, kept.buffers if kept else ())
    importer = _Importer(apart, program.sizes(), kept)
    outputs = [place for _, place in program.outputs()]
    module = importer.run([name for name, _ in program.inputs()], outputs)
    return define_symbols(module), kept or Changed()


def _require_converters(program: torch.export.ExportedProgram, kept: Collection[str]) -> None:
    """Raise ``ImportFailure`` for operators without a converter; it names all of them."""
    missing: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    known = without_input(program, kept)
    for graph in graphs_inside(program.graph_module):
        known |= for_checks(graph)
    nodes = (n for graph in graphs_inside(program.graph_module) for n in graph.nodes)
    for node in nodes:
        if node.op == "call_function" and node not in known and not _needs_none(node):
            where = module_path(node) or "the model itself"
            name = operator_name(node.target)
            places = missing.setdefault(name, [])
            if where not in places:
                places.append(where)
            if (source := source_node(node)) is not None:
                sources.setdefault(source, f"no converter for {name} (in {where})")
    if missing:
        listed = "; ".join(
            f"{name} (in {', '.join(places[:3])}{', ...' if len(places) > 3 else ''})"
            for name, places in missing.items()
        )
        failure = ImportFailure(f"no converter for {listed}")
        failure.sources = sources
        raise failure


def _needs_none(node: torch.fx.Node) -> bool:
    """Whether a node has a converter, or needs none; what PyTorch would draw at each call of a
    graph that it traced once more is left to it."""
    if draws(node.target) and source_node(node) is not None:
        return False
    return (
        node.target is operator.getitem
        or converts(node.target)
        or is_size(node.meta.get("val"))
        or isinstance(node.meta.get("val"), int | float | bool)
        or converter_of(node.target) is not None
    )


class _Importer:
    """The values of a program's nodes so far: tensors, where they are known, or expressions."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        symbols: Symbols,
        kept: Changed | None,
        module: torch.fx.GraphModule | None = None,
        builder: NamedBuilder | None = None,
        functions: Functions | None = None,
    ) -> None:
        self._program = program
        self._kept = kept
        self._symbols = symbols
        self._module = module or program.graph_module
        self._builder = builder or NamedBuilder()
        self._functions = functions or Functions(NamedBuilder)
        self._graph = Graph(self._builder, symbols)
        self._flow = ControlFlow(self._graph, self._functions, self._inside)
        self._values: dict[torch.fx.Node, Any] = {}
        self._names = node_names(self._module.graph.nodes)
        self._find = converter_of

    def run(self, inputs: Sequence[str], outputs: Sequence[int]) -> tvm.IRModule:
        """The module, whose outputs are those at these places among the user's."""
        parameters = self._placeholders(inputs)
        with self._builder.function("main", parameters):
            with self._builder.dataflow():
                self._compute()
                results = [self._output(node) for node in self._user_outputs(outputs)]
                made = results[0] if len(results) == 1 else relax.Tuple(results)
                made = self._builder.emit_output(made)
            self._builder.emit_func_output(made)
        module = self._builder.finalize()
        module["main"] = with_values(module["main"], self._named_values())
        for gvar, function in self._functions.made.items():
            module[gvar] = function
        return module

    def _named_values(self) -> dict[relax.Var, str]:
        """The variables that hold results of nodes, by the names that a judge has for these."""
        found: dict[relax.Var, str] = {}
        for node, name in self._names.items():
            made = self._values.get(node)
            several = isinstance(made, list | tuple)
            for place, value in enumerate(made if several else [made]):
                if isinstance(value, relax.Var):
                    found.setdefault(value, value_name(name, place if several else None))
        return found

    def _compute(self) -> None:
        checks = for_checks(self._module.graph)
        for node in self._module.graph.nodes:
            if node.op == "call_function" and node not in checks:
                self._convert(node)
            elif node.op == "get_attr":
                self._values[node] = self._attribute(str(node.target))

    def _inside(
        self,
        module: torch.fx.GraphModule,
        values: Sequence[Any],
        builder: NamedBuilder,
        symbols: Symbols,
    ) -> list[relax.Expr | None]:
        """What a graph inside of this one gives, of inputs with these values."""
        inner = _Importer(self._program, symbols, None, module, builder, self._functions)
        given = (node for node in module.graph.nodes if node.op == "placeholder")
        inner._values = dict(zip(given, values, strict=True))
        inner._compute()
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        results = output.args[0]
        return [
            None if node is None else inner._graph.tensor(inner._value(node))
            for node in (results if isinstance(results, list | tuple) else [results])
        ]

    def _placeholders(self, inputs: Sequence[str]) -> list[relax.Var]:
        """Bind what the program is given; returns the parameters of ``main``."""
        kinds = torch.export.graph_signature.InputKind
        stored = {**self._program.state_dict, **self._program.constants}
        parameters, behind = [], {}
        nodes = [node for node in self._program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(nodes, self._program.graph_signature.input_specs, strict=True):
            if spec.kind is kinds.USER_INPUT:
                if spec.arg.name in inputs:
                    parameters.append(self._parameter(node, f"input {spec.arg.name!r}"))
                else:
                    self._values[node] = spec.arg.value
            elif self._kept is not None and spec.target in self._kept.buffers:
                behind[spec.target] = self._parameter(node, f"buffer {spec.target!r}")
            elif spec.kind in (kinds.PARAMETER, kinds.BUFFER, kinds.CONSTANT_TENSOR):
                if any(user.target not in PARTS for user in node.users):
                    require_dense(stored[spec.target], f"{spec.target!r}")
                self._values[node] = stored[spec.target].detach()
            else:
                raise ModelError(f"input {spec.arg.name!r} is no tensor ({spec.kind.name})")
        kept = self._kept.buffers if self._kept else ()
        return [*parameters, *(behind[name] for name in kept)]

    def _parameter(self, node: torch.fx.Node, what: str) -> relax.Var:
        value = node.meta["val"]
        require_plain(value, what)
        kind = relax.TensorType(self._graph.extents(value.shape), dtype_name(value.dtype))
        self._values[node] = relax.Var(node.name, kind)
        return self._values[node]

    def _attribute(self, path: str) -> Any:
        value: Any = self._module
        for part in path.split("."):
            value = getattr(value, part)
        return value

    def _user_outputs(self, places: Sequence[int]) -> list[torch.fx.Node]:
        kinds = torch.export.graph_signature.OutputKind
        changes = (kinds.BUFFER_MUTATION, kinds.USER_INPUT_MUTATION)
        (node,) = (n for n in self._program.graph.nodes if n.op == "output")
        results, behind = [], {}
        specs = self._program.graph_signature.output_specs
        written = []
        for spec, result in zip(specs, node.args[0], strict=True):
            if spec.kind is kinds.USER_OUTPUT:
                results.append(result)
            elif self._kept is not None and spec.kind in changes:
                behind[spec.target] = result
            elif not is_as_before(self._program, spec, result):
                written.append((spec, result))
        if written:
            raise changes_refused(written)
        kept = self._kept.all if self._kept else ()
        return [*(results[place] for place in places), *(behind[name] for name in kept)]

    def _output(self, node: torch.fx.Node) -> relax.Expr:
        """An output, which is never an input or a constant itself."""
        value = self._values[node]
        if is_complex(node.meta.get("val")):
            raise ModelError(f"output {node.name!r} is complex; need torch.view_as_real of it")
        expr = self._graph.tensor(value)
        if isinstance(value, torch.Tensor) or expr in set(self._builder_parameters()):
            expr = self._builder.emit(relax.op.astype(expr, dtype_of(expr)))
        return expr

    def _builder_parameters(self) -> list[relax.Expr]:
        nodes = (n for n in self._program.graph.nodes if n.op == "placeholder")
        return [self._values[n] for n in nodes if isinstance(self._values.get(n), relax.Var)]

    # ------------------------------------------------------------------ nodes

    def _convert(self, node: torch.fx.Node) -> None:
        found = node.meta.get("val")
        if is_size(found):
            if node.target in _READS:
                self._read(node, found)
            return
        if isinstance(found, int | float | bool):
            self._values[node] = found
            return
        if node.target is operator.getitem:
            whole, place = node.args
            self._values[node] = self._values[whole][place]
            if self._values[node] is None:
                raise self._failure(whole, "a result that no converter gives is read")
            return
        branches = converts(node.target)
        if not branches and self._is_known(node):
            self._values[node] = computed(node, self._value)
            return
        if node.target in _RESHAPES:
            for wanted, size in zip(node.args[1], found.shape, strict=False):
                if isinstance(wanted, int) and wanted >= 0:
                    self._symbols.equate(size, wanted)
        self._begin(node)
        try:
            made = self._branched(node) if branches else self._made(node)
        except UnsupportedForm:
            raise
        except Exception as error:  # converters raise whatever their code runs into
            raise self._failure(node, one_line(error)) from error
        self._values[node] = made if isinstance(found, list | tuple) else made[0]

    def _read(self, node: torch.fx.Node, size: Any) -> None:
        self._builder.begin(self._names[node])
        bounds = self._program.range_constraints.get(size.node.expr)
        read_number(self._graph, node, self._values.get(node.args[0]), bounds)

    def _begin(self, node: torch.fx.Node) -> None:
        found = node.meta["val"]
        self._builder.begin(self._names[node])
        results = found if isinstance(found, list | tuple) else [found]
        self._graph.results = [as_real(result) for result in results]
        taken = (user for user in node.users if user.target is operator.getitem and user.users)
        self._graph.read = {user.args[1] for user in taken}
        subtract = torch.ops.aten.sub.Tensor
        self._graph.is_taken_away = any(user.target is subtract for user in node.users)
        operands = [n for n in node.all_input_nodes if is_complex(n.meta.get("val"))]
        self._graph.complex = [self._values[operand] for operand in operands]
        self._find = converter_of
        if operands or any(map(is_complex, results)):
            self._find = complex_converter_of

    def _made(self, node: torch.fx.Node) -> list[relax.Expr | None]:
        """The results of a node, whose shapes and dtypes are what PyTorch found."""
        results = self._graph.results
        for result in results:
            if result is not None:
                require_plain(result, "its result")
        if len(results) == 1 and any(isinstance(n, int) and n == 0 for n in results[0].shape):
            # An extent of 0 in a shape means the operand's to Relax's reshape.
            if all(isinstance(size, int) for size in self._graph.shape):
                nothing = torch.zeros(self._graph.shape, dtype=results[0].dtype)
                return [self._builder.emit(self._graph.tensor(nothing))]
            number = self._graph.tensor(0, self._graph.dtype)
            return [self._builder.emit(relax.op.broadcast_to(number, self._graph.shape))]
        convert = self._find(node.target)
        if convert is None and self._find is complex_converter_of:
            raise ValueError("no converter for complex numbers")
        if convert is None:
            raise ValueError("no converter, and its result is too large to be computed now")
        made = convert(self._graph, **self._arguments(node))
        made = list(made) if isinstance(made, list | tuple) else [made]
        bound = [None if expr is None else self._builder.emit(expr) for expr in made]
        for expr, result in zip(bound, results, strict=False):
            if expr is not None:
                self._require_same(expr, result)
        return bound

    def _require_same(self, expr: relax.Expr, result: torch.Tensor) -> None:
        """Raise ``ValueError`` where an expression is not what PyTorch says that it is."""
        wanted = tuple(map(self._symbols.dim, result.shape))
        shape = shape_of(expr)
        fits = shape is not None and len(shape) == len(wanted)
        fits = fits and all(
            same(a, b) or not (isinstance(a, int) and isinstance(b, int))
            for a, b in zip(shape, wanted, strict=True)
        )
        if not fits or dtype_of(expr) != dtype_name(result.dtype):
            raise ValueError(
                f"the result would be {describe(expr)}; PyTorch has {dtype_name(result.dtype)}"
                f"{list(wanted)}"
            )

    def _arguments(self, node: torch.fx.Node) -> dict[str, Any]:
        """Arguments by name, with the defaults of the operator's schema."""
        named = {}
        for place, argument in enumerate(node.target._schema.arguments):
            if place < len(node.args):
                value = node.args[place]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                value = argument.default_value
            named["x" if argument.name == "self" else argument.name] = self._value(value)
        if is_of_each(node) and self._find is converter_of:
            return {name: self._graph.fitted(value) for name, value in named.items()}
        return named

    def _branched(self, node: torch.fx.Node) -> list[relax.Expr | None]:
        """The results of a node with graphs of its own, whose first argument may be a truth."""
        first, *others = node.args
        truth = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
        if isinstance(truth, torch.SymBool):
            first = truth_tensor(self._builder, self._symbols, truth)
        return self._flow.convert(node, [self._value(value) for value in (first, *others)])

    def _value(self, value: Any) -> Any:
        """An argument with values in place of nodes, and extents in place of sizes."""
        if isinstance(value, torch.fx.Node):
            found = value.meta.get("val")
            if isinstance(found, torch.SymInt):
                element = element_tensor(self._builder, self._symbols, found)
                return self._symbols.extent(found) if element is None else element
            if isinstance(found, torch.SymFloat):
                wide = self._graph.dtype == "float64"
                return float_tensor(
                    self._builder, self._symbols, found, "float64" if wide else "float32"
                )
            if is_size(found):
                raise ValueError(f"a truth that sizes decide ({found})")
            return self._values[value]
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return value

    def _is_known(self, node: torch.fx.Node) -> bool:
        """Whether all operands are constants, and the result is not much larger than these."""
        if is_random(node) or keeps_integers(node):
            return False
        operands = [self._values.get(operand) for operand in node.all_input_nodes]
        if not all(is_constant(operand) for operand in operands):
            return False
        found = node.meta["val"]
        results = found if isinstance(found, list | tuple) else [found]
        if not all(isinstance(r, torch.Tensor) for r in results):
            return False
        if any(not isinstance(size, int) for result in results for size in result.shape):
            return False
        if any(result.layout is not torch.strided for result in results):
            return False
        given = sum(t.numel() for t in operands if isinstance(t, torch.Tensor))
        return all(result.numel() <= max(MAX_FOLDED, given) for result in results)

    def _failure(self, node: torch.fx.Node, why: str) -> ByocError:
        name = operator_name(node.target)
        failure = UnsupportedForm(f"operator {name} (module {self._names[node]}): {why}", name)
        if (source := source_node(node)) is not None:
            failure.sources = {source: str(failure)}
        return failure
