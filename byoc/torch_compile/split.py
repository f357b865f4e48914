"""A graph of which PyTorch runs some operators, as pieces that are taken or left as a whole.

Pieces run in the order of the graph, one after another, so that what writes tensors in place does
so when it did before. Each is a graph of its own, whose inputs are tensors of the whole graph's and
of pieces before it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx.passes.split_module import split_module

from byoc.torch_compile.capture import freeze, levels_of, thaw
from byoc.torch_compile.written import that_turn, written_inputs

#: What changes how PyTorch runs all that follows.
_STATES = (torch.amp._enter_autocast, torch.amp._exit_autocast, torch._C._set_grad_enabled)


@dataclass(frozen=True)
class Piece:
    """A piece of a split graph: the module's name for it, and why PyTorch runs it; empty where it
    does not."""

    name: str
    graph: torch.fx.GraphModule
    reason: str


def operators_of(graph: torch.fx.GraphModule) -> int:
    """How many operators a graph has."""
    return sum(node.op.startswith("call") for node in graph.graph.nodes)


def split_at(
    graph: torch.fx.GraphModule, left: Mapping[str, str]
) -> tuple[torch.fx.GraphModule, list[Piece]] | None:
    """A graph split around the nodes that PyTorch runs, whose names ``left`` has with the reasons.

    Returns a module that calls the pieces, and these in order; None where nothing else is left, and
    for a graph that batches tensors on the way (``torch.vmap``), which pieces cannot be given, or
    gives some other axes in place, as nobody notes which of these a piece is given.
    """
    if levels_of(graph) or that_turn(graph):
        return None
    numbers = _numbers(graph, left)
    reasons: dict[int, dict[str, None]] = {number: {} for number in numbers.values()}
    for node, number in numbers.items():
        if node.name in left:
            reasons[number][left[node.name]] = None
    if all(reasons.values()) or not any(reasons.values()):
        return None
    for written in written_inputs(graph):  # pieces are given what is written between them
        thaw(written)
    whole = split_module(
        graph, graph, numbers.__getitem__, keep_original_order=True, tuple_return=True
    )
    pieces = []
    for number in sorted(reasons):
        name = f"submod_{number}"
        pieces.append(Piece(name, getattr(whole, name), "; ".join(reasons[number])))
    _freeze_constants(whole)
    return whole, pieces


def _numbers(graph: torch.fx.GraphModule, left: Mapping[str, str]) -> dict[torch.fx.Node, int]:
    """The number of each operator's piece. Those that take a result out of several stay with what
    gives these, as only tensors go from one piece to another."""
    nodes = [node for node in graph.graph.nodes if node.op.startswith("call")]
    in_order = any(node.target in _STATES for node in nodes)
    numbers: dict[torch.fx.Node, int] = {}
    last, was_left = 0, None
    for node in nodes:
        if not in_order and node.target is operator.getitem and _gives_several(node.args[0]):
            numbers[node] = numbers[node.args[0]]
            continue
        is_left = node.name in left
        if was_left is not None and is_left != was_left:
            last += 1
        was_left = is_left
        numbers[node] = last
    return numbers


def _gives_several(node: torch.fx.Node) -> bool:
    return node.op.startswith("call") and isinstance(node.meta.get("example_value"), list | tuple)


def _freeze_constants(whole: torch.fx.GraphModule) -> None:
    """Mark inputs of pieces that are constants of the graph."""
    for call in whole.graph.nodes:
        if call.op == "call_module":
            piece = getattr(whole, call.target)
            places = (node for node in piece.graph.nodes if node.op == "placeholder")
            for node, given in zip(places, call.args, strict=True):
                if given.op == "get_attr":
                    freeze(node)
