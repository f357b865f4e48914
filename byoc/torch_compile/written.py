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

#: What gives the tensor itself other axes, and leaves its elements as they are.
_OTHER_AXES = ("unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "swapdims_", "t_")


def written_by(node: torch.fx.Node) -> torch.fx.Node | None:
    """What an operator writes, by the ways in which its name or arguments say so."""
    if not node.op.startswith("call"):
        return None
    name = _name_of(node)
    in_place = name.endswith("_") and not name.endswith("__") and name not in _OTHER_AXES
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


def that_turn_inputs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The operators of a graph that give its inputs themselves, not views of them, other axes.

    What is an input under another name, as ``x.contiguous()`` may be, has the tensor of the input.
    """
    given = [_tensor_of(node) for node in _inputs(graph)]
    turned = ((node, _tensor_of(node.args[0])) for node in that_turn(graph))
    return [node for node, t in turned if t is not None and any(t is one for one in given)]


def that_turn(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The operators of a graph that give a tensor itself other axes; its node then tells the last
    of them only."""
    return [n for n in graph.graph.nodes if n.args and _name_of(n) in _OTHER_AXES]


def _name_of(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", "")


def _tensor_of(node: torch.fx.Node) -> Any:
    return node.meta.get("example_value")


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
