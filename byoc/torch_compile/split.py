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

from byoc.torch_compile.capture import freeze, thaw

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

    Returns a module that calls the pieces, and these in order; None where nothing else is left.
    """
    numbers = _numbers(graph, left)
    reasons: dict[int, dict[str, None]] = {number: {} for number in numbers.values()}
    for node, number in numbers.items():
        if node.name in left:
            reasons[number][left[node.name]] = None
    if all(reasons.values()) or not any(reasons.values()):
        return None
    _thaw_written(graph)
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


def _thaw_written(graph: torch.fx.GraphModule) -> None:
    """Let pieces be given the parameters, buffers and the like that are written between them.

    Where one is written that this does not see, the pieces see other weights, and are PyTorch's.
    """
    for node in graph.graph.nodes:
        written = _written_by(node)
        if written is not None and written.op == "placeholder":
            thaw(written)


def _written_by(node: torch.fx.Node) -> torch.fx.Node | None:
    """What an operator writes, by the ways in which its name or arguments say so."""
    if not node.op.startswith("call"):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place or name in _IN_PLACE:
        found = node.args[0] if node.args else None
    else:
        found = node.kwargs.get("out")
    return found if isinstance(found, torch.fx.Node) else None


#: Python's operators in place.
_IN_PLACE = (
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"),
    *("ilshift", "irshift", "imatmul", "setitem"),
)


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
