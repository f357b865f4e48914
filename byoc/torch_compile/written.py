"""What the operators of a graph write in place, and where the tensors that they write lie."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor

#: Python's operators in place.
_IN_PLACE = (
    *("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"),
    *("ilshift", "irshift", "imatmul", "setitem"),
)


def written_by(node: torch.fx.Node) -> torch.fx.Node | None:
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


def written_inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The inputs of a graph in whose memory an operator writes, be it through a view."""
    written = {memory_of(written_by(node)) for node in graph.graph.nodes}
    return [node for node in _inputs(graph) if memory_of(node) in written - {None}]


def that_write_inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The operators of a graph that write in the memory of its inputs."""
    given = {memory_of(node) for node in _inputs(graph)} - {None}
    return [node for node in graph.graph.nodes if memory_of(written_by(node)) in given]


def _inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def memory_of(node: torch.fx.Node | None) -> int | None:
    """Which memory a node's tensor has, also one that ``torch.vmap`` batches; None for what is
    none."""
    value = None if node is None else node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return None
    while is_functorch_wrapped_tensor(value):
        value = get_unwrapped(value)
    return value.untyped_storage()._cdata


def bounds(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor's first element begins and the last one ends, in bytes; the same twice for one
    without elements."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    pairs: Any = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in pairs)
    return start, start + (last + 1) * tensor.element_size()
