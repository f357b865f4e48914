"""The nodes of a traced program: inputs, what is known, checks, and what draws numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

#: Checks of a traced program, which compute nothing.
_CHECKS = ("_assert", "sym_constrain_range")

#: What computes single elements, though PyTorch does not tag it so.
_UNTAGGED = [getattr(torch.ops.aten, n) for n in ("floor_divide", "rsub", "masked_fill", "where")]


def inputs_of(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    """The inputs of a traced program, without its parameters and buffers."""
    given = torch.export.graph_signature.InputKind.USER_INPUT
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = program.graph_signature.input_specs
    return [node for node, spec in zip(nodes, specs, strict=True) if spec.kind is given]


def without_input(
    program: torch.export.ExportedProgram, kept: Collection[str]
) -> set[torch.fx.Node]:
    """The nodes that depend on no input and no buffer that is ``kept``: PyTorch computes them."""
    given = torch.export.graph_signature.InputKind.USER_INPUT
    specs = iter(program.graph_signature.input_specs)
    known = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            spec = next(specs)
            if spec.kind is not given and spec.target not in kept:
                known.add(node)
        elif known.issuperset(node.all_input_nodes) and not is_random(node):
            known.add(node)
    return known


def for_checks(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Checks of a traced program, and the nodes that nothing but these reads."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "call_function":
            continue
        if _is_check(node) or (node.users and found.issuperset(node.users)):
            found.add(node)
    return found


def graphs_inside(module: torch.fx.GraphModule) -> Iterator[torch.fx.Graph]:
    """The graph of a module, and those of the nodes in it."""
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            yield part.graph


def is_random(node: torch.fx.Node) -> bool:
    """Whether a node gives others each time."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_of_each(node: torch.fx.Node) -> bool:
    """Whether an operator computes each element of those at its place."""
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or getattr(node.target, "overloadpacket", None) in _UNTAGGED


def _is_check(node: torch.fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._opname.startswith(_CHECKS)
