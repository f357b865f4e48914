"""Numbers of a module that ``torch.compile`` leaves open, and operators that need them known.

With ``dynamic=True``, or when a number changes between calls, PyTorch's tracer gives it to a graph
as a tensor, which the graph reads. Where a library cannot be made so, as of a normalisation with
such an epsilon, the tracer is asked to begin again with the number as it is, as its own compiler
asks.
"""

from __future__ import annotations

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState

from byoc.errors import ByocError

#: What computes with an open number as with a tensor, or gives another number of it.
_ARITHMETIC = frozenset(
    (
        *("add", "sub", "mul", "truediv", "div", "pow", "neg", "iadd", "isub", "imul", "itruediv"),
        *("add_", "sub_", "mul_", "div_", "gt", "lt", "ge", "le", "eq", "ne", "where", "lerp"),
        *(
            "clamp",
            "clamp_min",
            "clamp_max",
            "masked_fill",
            "full",
            "full_like",
            "new_full",
            "output",
        ),
    )
)


def open_number(node: torch.fx.Node) -> str | None:
    """The tracer's name of the number that an input of a graph is; None where it is none."""
    value = node.meta.get("example_value") if node.op == "placeholder" else None
    number = getattr(value, "item_memo", None)
    if number is None or value.dtype != torch.float64:
        return None
    if not node.users or any(user.target != "item" for user in node.users):
        return None
    return getattr(number.node._expr, "name", None)


def require_arithmetic(graph: torch.fx.GraphModule) -> None:
    """Ask for another graph where an operator reads an open number that is likely to need it."""
    names = []
    for node in graph.graph.nodes:
        if (name := open_number(node)) is not None and not all(map(_computes, node.users)):
            names.append(name)
    _begin_again(names)


def trace_again_with_numbers(graph: torch.fx.GraphModule, error: ByocError) -> None:
    """Ask for another graph where open numbers are why this one cannot be taken."""
    names = [name for node in graph.graph.nodes if (name := open_number(node)) is not None]
    sources = getattr(error, "sources", {})
    by_name = {node.name: node for node in graph.graph.nodes}
    at_fault = [by_name[name] for name in sources if name in by_name]
    if not names or (at_fault and not any(map(_reads_number, at_fault))):
        return
    _begin_again(names)


def _begin_again(names: list[str]) -> None:
    names = [name for name in names if not TensorifyState.should_specialize(name)]
    for name in names:
        TensorifyState.specialize(name)
    if names:
        raise TensorifyScalarRestartAnalysis


def _computes(number: torch.fx.Node) -> bool:
    """Whether all that reads a number computes with it, or with what is computed of it alone."""
    for user in number.users:
        name = user.target if isinstance(user.target, str) else user.target.__name__
        if name not in _ARITHMETIC:
            return False
        is_number = isinstance(user.meta.get("example_value"), torch.SymFloat)
        if is_number and not _computes(user):
            return False
    return True


def _reads_number(node: torch.fx.Node) -> bool:
    return any(
        isinstance(given.meta.get("example_value"), torch.SymFloat)
        for given in node.all_input_nodes
    )
