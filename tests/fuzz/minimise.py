"""Make a failing graph small: fewer outputs, inputs in place of computed values, short axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.draft import Drawn
from tests.fuzz.evaluate import Unrunnable, expected
from tests.fuzz.shrink import shrink
from tests.fuzz.trial import Outcome

Try = Callable[[Drawn], Outcome]


def minimise(graph: Drawn, outcome: Outcome, attempt: Try) -> tuple[Drawn, Outcome]:
    """A smaller graph with an outcome of the same kind, and that outcome."""
    smallest, kept = graph, outcome
    again = attempt(graph)
    if again.kind != outcome.kind:
        return graph, Outcome(outcome.kind, f"{outcome.text} (alone: {again.kind} {again.text})")
    progress = True
    while progress:
        progress = False
        for candidate in _smaller(smallest):
            found = attempt(candidate)
            if found.kind == outcome.kind:
                smallest, kept, progress = candidate, found, True
                break

    def still_fails(candidate: Drawn) -> bool:
        nonlocal kept
        found = attempt(candidate) if _runs(candidate) else None
        if found is None or found.kind != outcome.kind:
            return False
        kept = found
        return True

    return shrink(smallest, still_fails), kept


def _smaller(graph: Drawn) -> list[Drawn]:
    """Smaller graphs that ONNX Runtime takes, the smallest first."""
    found = []
    if len(graph.feeds) > 1:
        found += [Drawn(graph.model, [feeds], graph.shapes, graph.special) for feeds in graph.feeds]
    values = all_values(graph)
    computed = [name for node in graph.model.graph.node for name in node.output if name]
    outputs = [value.name for value in graph.model.graph.output]
    for name in computed:
        if outputs != [name]:
            found.append(_cut(graph, values, [name], None))
    for name in computed:
        if name not in outputs:
            found.append(_cut(graph, values, outputs, name))
    if len(outputs) > 1:
        found += [_cut(graph, values, [n for n in outputs if n != name], None) for name in outputs]
    fits = [g for g in found if g is not None and _size(g) < _size(graph) and _runs(g)]
    return sorted(fits, key=_size)


def _size(graph: Drawn) -> tuple[int, int, int]:
    return len(graph.model.graph.node), len(graph.model.graph.output), len(graph.feeds)


def _runs(graph: Drawn) -> bool:
    try:
        for feeds in graph.feeds:
            expected(graph.model, feeds)
    except Unrunnable:
        return False
    return True


def all_values(graph: Drawn) -> list[dict[str, np.ndarray]]:
    """Every value of the outer graph in each world."""
    model = onnx.ModelProto.FromString(graph.model.SerializeToString())
    known = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    # ONNX Runtime finds out the types of outputs that have none.
    model.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in names if name not in known
    )
    try:
        return [feeds | expected(model, feeds) for feeds in graph.feeds]
    except Unrunnable:
        return [dict(feeds) for feeds in graph.feeds]


def _cut(
    graph: Drawn, values: list[dict[str, np.ndarray]], outputs: list[str], given: str | None
) -> Drawn | None:
    """The part of a graph that the outputs need, with one value as an input."""
    if any(
        name not in world for world in values for name in [*outputs, *([given] if given else [])]
    ):
        return None
    source = graph.model.graph
    shapes = dict(graph.shapes)
    infos = {value.name: value for value in source.input}
    if given:
        extents = _extents(graph, [world[given] for world in values])
        if extents is None:
            return None
        code = helper.np_dtype_to_tensor_dtype(values[0][given].dtype)
        infos[given] = helper.make_tensor_value_info(given, code, extents)
        if any(isinstance(extent, str) for extent in extents):
            shapes[given] = extents
    needed, nodes = set(outputs), []
    for node in reversed(source.node):
        made = {name for name in node.output if name}
        if made & needed and given not in made:
            nodes.insert(0, node)
            needed |= set(node.input) | _inside(node)
        elif made & needed and given in made and made & needed - {given}:
            return None
    model = onnx.ModelProto.FromString(graph.model.SerializeToString())
    for field in ("node", "input", "output", "initializer"):
        model.graph.ClearField(field)
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(t for t in source.initializer if t.name in needed)
    kept = [name for name in infos if name in needed]
    model.graph.input.extend(infos[name] for name in kept)
    for name in outputs:
        code = helper.np_dtype_to_tensor_dtype(values[0][name].dtype)
        model.graph.output.append(helper.make_tensor_value_info(name, code, None))
    feeds = [{name: world[name] for name in kept} for world in values]
    return Drawn(model, feeds, {n: s for n, s in shapes.items() if n in kept}, graph.special)


def _inside(node: onnx.NodeProto) -> set[str]:
    graphs = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {name for g in graphs for inner in g.node for name in (*inner.input, *_inside(inner))}


def _extents(graph: Drawn, arrays: list[np.ndarray]) -> list[int | str] | None:
    """The shape of an inner value in the graph's symbols; None where it is no symbol alone."""
    if not graph.shapes:
        return list(arrays[0].shape)
    worlds = []
    for feeds in graph.feeds:
        worlds.append(
            {
                extent: feeds[name].shape[axis]
                for name, shape in graph.shapes.items()
                for axis, extent in enumerate(shape)
                if isinstance(extent, str)
            }
        )
    extents: list[int | str] = []
    for axis in range(arrays[0].ndim):
        seen = [array.shape[axis] for array in arrays]
        symbols = [s for s in worlds[0] if seen == [world[s] for world in worlds]]
        if len(set(seen)) == 1 and (len(seen) > 1 or not symbols):
            extents.append(seen[0])
        elif symbols:
            extents.append(symbols[0])
        else:
            return None
    return extents


def print_model(graph: Drawn) -> str:
    """A graph as text, with the shapes of what it is fed with."""
    text = onnx.printer.to_text(graph.model)
    fed = [{name: list(x.shape) for name, x in feeds.items()} for feeds in graph.feeds]
    lines = [t if len(t) < 600 else f"{t[:200]} ... {t[-300:]}" for t in text.splitlines()]
    text = "\n".join(lines)
    return f"{text[:4000]}\nshapes {graph.shapes}, fed with {fed}"
