"""A partitioned module as a drawing: nodes with what people ask about them, and edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from byoc.ir.dataflow import describe, is_candidate, is_region, variables
from byoc.ir.walk import bindings_of, composites_of, items_of
from byoc.report.kernels import Kernel, kernel_of
from byoc.report.left import NAMES, Left, left_of_binding
from codegen_cc.dim import at_unit
from codegen_cc.node import Node

#: What computes a box that is no operator.
NONE = Kernel()

#: What computes a call that stays.
TVM = Kernel("TVM", "generated loops")

#: Kinds of nodes in a drawing.
INPUT, OUTPUT, OFFLOADED, LEFT, CONTROL = "input", "output", "offloaded", "left", "control"


@dataclass(frozen=True)
class GraphNode:
    """One box. ``name`` is arbitrary text from the model: whoever prints it escapes it.

    ``operator`` is the composite's name or the Relax operator, ``kernel`` the kernel library and
    its algorithm, ``region`` the region's name; all are empty where they make no sense.
    """

    kind: str
    name: str
    operator: str
    shapes: str = ""
    region: str = ""
    kernel: Kernel = NONE
    reason: str = ""
    macs: int = 0
    #: What its result is off by, where it was compared, and what its calls took, where it was
    #: timed; and how bad that is from 0 to 1.
    error: str = ""
    time: str = ""
    heat: float | None = None


@dataclass(frozen=True)
class Graph:
    """Boxes, and edges as (index of the source, index of the target, tensor)."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[int, int, str], ...] = ()


#: Where a value comes from: a box, or one such for each element of a tuple; None for constants.
Source = "int | list[Source] | None"


@dataclass
class _Drawing:
    reasons: Mapping[relax.Var, str]
    nodes: list[GraphNode] = field(default_factory=list)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)

    def add(self, node: GraphNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def connect(self, source: Source, target: int, tensor: str) -> None:
        if isinstance(source, list):
            for item in source:
                self.connect(item, target, tensor)
        elif source is not None:
            self.edges.setdefault((source, target), tensor)


def graph_of(mod: tvm.IRModule, reasons: Mapping[relax.Var, str]) -> Graph:
    """Draw the ordinary functions of a partitioned module, with the regions that they call."""
    drawing = _Drawing(reasons)
    for func in mod.functions.values():
        if is_candidate(func):
            _draw(mod, func, drawing)
    edges = tuple((source, target, text) for (source, target), text in drawing.edges.items())
    return Graph(tuple(drawing.nodes), edges)


def _draw(mod: tvm.IRModule, func: relax.Function, drawing: _Drawing) -> None:
    sources: dict[relax.Expr, Source] = {}
    for param in func.params:
        sources[param] = drawing.add(GraphNode(INPUT, param.name, "input", describe(param)))
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and _is_region(mod, value.op):
                sources[binding.var] = _draw_region(mod[value.op], value, sources, drawing)
            else:
                straight = isinstance(block, relax.DataflowBlock)
                sources[binding.var] = _draw_left(binding, straight, sources, drawing)
    result = func.body.body
    found = sources.get(result)
    if isinstance(found, list):
        each = [
            (source, relax.Var("", ty)) for source, ty in zip(found, result.ty.fields, strict=True)
        ]
    else:
        each = [(_source(item, sources), item) for item in items_of(result)]
    for index, (source, item) in enumerate(each):
        name = "result" if len(each) == 1 else f"result {index}"
        target = drawing.add(GraphNode(OUTPUT, name, "output", describe(item)))
        drawing.connect(source, target, describe(item))


def _is_region(mod: tvm.IRModule, op: relax.Expr) -> bool:
    func = mod[op] if isinstance(op, tvm.ir.GlobalVar) else None
    return is_region(func)


def _source(expr: relax.Expr, sources: Mapping[relax.Expr, Source]) -> Source:
    if isinstance(expr, relax.Tuple):
        return [_source(item, sources) for item in expr.fields]
    if isinstance(expr, relax.TupleGetItem):
        inner = _source(expr.tuple_value, sources)
        return inner[expr.index] if isinstance(inner, list) else inner
    return sources.get(expr)


def _draw_left(
    binding: relax.Binding,
    straight: bool,
    sources: Mapping[relax.Expr, Source],
    drawing: _Drawing,
) -> Source:
    value = binding.value
    if isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem):
        return _source(value, sources)
    entries: list[Left] = list(left_of_binding(binding, straight, drawing.reasons))
    if isinstance(value, relax.Call) and len(entries) == 1:
        (entry,) = entries
        fields = (LEFT, entry.name, entry.op, entry.shapes, "", TVM, entry.reason, entry.macs)
        target = drawing.add(GraphNode(*fields))
    elif isinstance(value, relax.Call | relax.If | relax.Function):
        count = f"{len(entries)} operators inside" if entries else ""
        what = "branch" if isinstance(value, relax.If) else "function"
        reason = entries[0].reason if entries else ""
        target = drawing.add(GraphNode(CONTROL, binding.var.name, what, count, "", TVM, reason))
    else:
        return None
    for var in variables(value):
        drawing.connect(sources.get(var), target, describe(var))
    return target


def _draw_region(
    region: relax.Function,
    call: relax.Call,
    outside: Mapping[relax.Expr, Source],
    drawing: _Drawing,
) -> Source:
    name = str(region.attrs["global_symbol"])
    sources: dict[relax.Expr, Source] = {
        param: _source(argument, outside)
        for param, argument in zip(region.params, call.args, strict=True)
    }
    composites = {var: node for var, _, node in composites_of(region)}
    for binding in bindings_of(region):
        value = binding.value
        if isinstance(value, relax.Call) and value.op in composites:
            target = drawing.add(_box(composites[value.op], name))
            for argument in value.args:
                drawing.connect(_source(argument, sources), target, describe(argument))
            sources[binding.var] = target
        elif isinstance(value, relax.Tuple | relax.TupleGetItem):
            sources[binding.var] = _source(value, sources)
    return sources.get(region.body.body)


def _box(node: Node, region: str) -> GraphNode:
    operands = [
        f"{'' if operand.role == 'input' else operand.role + ' '}"
        f"{_tensor(operand.dtype, operand.shape)}{' constant' * operand.constant}"
        for operand in node.operands
    ]
    results = [_tensor(result.dtype, result.shape) for result in node.results]
    return GraphNode(
        OFFLOADED,
        NAMES.join(node.source),
        node.composite,
        f"{', '.join(operands)} -> {', '.join(results)}",
        region,
        kernel_of(node),
        macs=at_unit(node.macs),
    )


def _tensor(dtype: str, shape: tuple[object, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def dot_text(graph: Graph) -> Iterator[str]:
    """The lines of a Graphviz file: regions are clusters, operators that stay are dashed."""
    yield "digraph partition {"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];'
    regions: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        regions.setdefault(node.region, []).append(index)
    for number, (region, members) in enumerate(regions.items()):
        if region:
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={_quoted(region)}; style=filled; fillcolor=honeydew;"
        yield from (f"    n{index} [{_attributes(graph.nodes[index])}];" for index in members)
        if region:
            yield "  }"
    for source, target, tensor in graph.edges:
        yield f"  n{source} -> n{target} [label={_quoted(tensor)}];"
    yield "}"


def _attributes(node: GraphNode) -> str:
    label = _quoted(f"{node.operator}\n{node.name}")
    if node.kind in (INPUT, OUTPUT):
        return f"label={label}, shape=ellipse"
    text = "\n".join(part for part in (node.shapes, str(node.kernel), node.reason) if part)
    style = "" if node.region else ', style="rounded,dashed,filled", fillcolor=mistyrose'
    return f"label={label}, tooltip={_quoted(text)}{style}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "")
    return '"' + escaped.replace("\n", "\\n") + '"'
