"""What a graph of ``torch.compile`` gives: tensors of a library, and numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from byoc.errors import ImportFailure


@dataclass(frozen=True)
class Number:
    """A result that is no tensor: a constant, or ``expr``, whose symbols a call's inputs tell."""

    expr: Any
    told: dict[sympy.Symbol, Callable[[Sequence[Any]], Any]]

    def of(self, inputs: Sequence[Any]) -> Any:
        """What it is in a call."""
        if not self.told:
            return self.expr
        if isinstance(self.expr, sympy.Symbol):
            return self.told[self.expr](inputs)
        known = {symbol: find(inputs) for symbol, find in self.told.items()}
        return sympy_interp(PythonReferenceAnalysis, known, self.expr)


#: A result: the order of a tensor's axes in memory, a number, or nothing.
Result = tuple[int, ...] | Number | None


def results_of(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[Result, ...]:
    """What each result is. Those of the library have memory of their own, so none may be a view of
    an input or of another one. Raises ``ImportFailure``."""
    (node,) = (n for n in graph.graph.nodes if n.op == "output")
    taken = {_memory(value) for value in inputs if isinstance(value, torch.Tensor)}
    found = [_result(result, inputs, taken) for result in node.args[0]]
    if not any(isinstance(kind, tuple) for kind in found):
        raise ImportFailure("a graph whose results are no tensors")
    return tuple(found)


def failure(why: str, *nodes: Any) -> ImportFailure:
    """An error that names the nodes at fault."""
    made = ImportFailure(why)
    computed = (n for n in nodes if isinstance(n, torch.fx.Node) and n.op.startswith("call"))
    made.sources = {node.name: why for node in computed}
    return made


def _result(result: Any, inputs: Sequence[Any], taken: set[int]) -> Result:
    value = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        number = _number(value, inputs)
        if number is None:
            raise failure(f"a result is {value}; need tensors, or numbers that inputs tell", result)
        return number
    if _memory(value) in taken:
        raise failure("a result shares memory with an input or another result", result)
    taken.add(_memory(value))
    if value.is_complex():
        raise failure("a result is complex; need torch.view_as_real of it", result)
    return _order_of(value)


def _number(value: Any, inputs: Sequence[Any]) -> Number | None:
    """A number as one that inputs tell; None where they do not."""
    if isinstance(value, bool | int | float | str):
        return Number(value, {})
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return None
    expr = value.node.expr
    if expr.is_number:
        return Number({torch.SymInt: int, torch.SymFloat: float}.get(type(value), bool)(expr), {})
    told = {symbol: _found(symbol, inputs) for symbol in expr.free_symbols}
    return None if None in told.values() else Number(expr, told)


def _found(symbol: sympy.Symbol, inputs: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
    """What takes a symbol's value out of a call's inputs; None where none has it."""
    for place, value in enumerate(inputs):
        if _is_symbol(value, symbol):
            return lambda given, place=place: given[place]
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                if _is_symbol(extent, symbol):
                    return lambda given, place=place, axis=axis: given[place].shape[axis]
            if _is_symbol(getattr(value, "item_memo", None), symbol):
                return lambda given, place=place: given[place].item()
    return None


def _is_symbol(value: Any, symbol: sympy.Symbol) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat) and value.node.expr == symbol


def _order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The axes of a tensor from the one with the widest stride on; as they are named where the
    tensor leaves room between elements."""
    plain = tuple(range(tensor.dim()))
    sizes, strides = (
        [int(n) if isinstance(n, int) else n.node.hint for n in numbers]
        for numbers in (tensor.shape, tensor.stride())
    )
    if None in sizes or None in strides:
        return plain
    order = sorted(plain, key=lambda axis: (-strides[axis], axis))
    dense = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != dense:
            return plain
        dense *= sizes[axis]
    return tuple(order)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
