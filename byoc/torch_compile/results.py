"""What a graph of ``torch.compile`` gives: tensors of a library, and numbers beside them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from byoc.errors import ImportFailure


class _OfNumbers(PythonReferenceAnalysis):
    """What operators on sizes give, as Python has it: of a quotient, PyTorch makes SymPy's number,
    which other operators of PyTorch refuse."""

    int_truediv = staticmethod(operator.truediv)


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
        return sympy_interp(_OfNumbers, known, self.expr)


@dataclass(frozen=True)
class View:
    """A result in the memory of an input, or of another result (``of_result``), at ``place``.

    ``numbers`` are its sizes, its strides, and how far behind the other's first element it begins;
    None where it lies as the other does.
    """

    place: int
    of_result: bool
    rank: int
    numbers: tuple[Number, ...] | None

    def of(self, base: torch.Tensor, inputs: Sequence[Any]) -> torch.Tensor:
        """What it is in a call."""
        if self.numbers is None:
            return base.as_strided(base.size(), base.stride(), base.storage_offset())
        found = [number.of(inputs) for number in self.numbers]
        sizes, strides = found[: self.rank], found[self.rank : -1]
        return base.as_strided(sizes, strides, base.storage_offset() + found[-1])


#: A result: the order of a tensor's axes in memory, a view of another one, a number, or nothing.
Result = tuple[int, ...] | View | Number | None


def results_of(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> tuple[Result, ...]:
    """What each result is.

    Those of the library have memory of their own. Views of an input, or of a result that has all of
    its memory, are made of these. Raises ``ImportFailure`` for others, which share memory too.
    """
    (node,) = (n for n in graph.graph.nodes if n.op == "output")
    values = [_example(result) for result in node.args[0]]
    given = {_memory(value): p for p, value in enumerate(inputs) if _is_tensor(value)}
    whole = {_memory(v): p for p, v in reversed([*enumerate(values)]) if _is_whole(v)}
    found: list[Result] = []
    taken: set[int | None] = set()
    for place, (result, value) in enumerate(zip(node.args[0], values, strict=True)):
        memory = _memory(value) if _is_tensor(value) else None
        kind: Result = None
        if memory in given:
            kind = _view(value, given[memory], inputs[given[memory]], False, inputs)
        elif whole.get(memory, place) != place:
            kind = _view(value, whole[memory], values[whole[memory]], True, inputs)
        elif memory is None or memory not in taken:
            kind = _result(result, value, inputs)
            taken.add(memory)
        if kind is None and memory is not None:
            raise failure("a result shares memory with an input or another result", result)
        found.append(kind)
    if not any(isinstance(kind, tuple) for kind in found):
        raise ImportFailure("a graph whose results are no tensors")
    return tuple(found)


def failure(why: str, *nodes: Any) -> ImportFailure:
    """An error that names the nodes at fault."""
    made = ImportFailure(why)
    computed = (n for n in nodes if isinstance(n, torch.fx.Node) and n.op.startswith("call"))
    made.sources = {node.name: why for node in computed}
    return made


def _example(result: Any) -> Any:
    return result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _result(result: Any, value: Any, inputs: Sequence[Any]) -> Result:
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        number = _number(value, inputs)
        if number is None:
            raise failure(f"a result is {value}; need tensors, or numbers that inputs tell", result)
        return number
    if value.is_complex():
        raise failure("a result is complex; need torch.view_as_real of it", result)
    return _order_of(value)


def _is_whole(value: Any) -> bool:
    """Whether a result has all of its memory, without room between its elements."""
    if not _is_tensor(value) or value.is_complex():
        return False
    elements = value.untyped_storage().nbytes() // value.element_size()
    return _same(value.numel(), elements) and not _leaves_room(value)


def _view(
    value: torch.Tensor, place: int, base: torch.Tensor, of_result: bool, inputs: Sequence[Any]
) -> View | None:
    """A result that lies in the memory of ``base``; None where that cannot be told in numbers."""
    if value.dtype != base.dtype or value.is_conj() != base.is_conj():
        return None
    first = value.storage_offset() - base.storage_offset()
    wanted = [*value.shape, *value.stride(), first]
    lying = [*base.shape, *base.stride(), 0]
    if len(wanted) == len(lying) and all(map(_same, wanted, lying)):
        return View(place, of_result, value.dim(), None)
    numbers = tuple(_number(number, inputs) for number in wanted)
    return None if None in numbers else View(place, of_result, value.dim(), numbers)


def _same(a: Any, b: Any) -> bool:
    """Whether two sizes are the same in every call."""
    expressions = (n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n) for n in (a, b))
    return sympy.expand(next(expressions) - next(expressions)) == 0


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
    return tuple(range(tensor.dim())) if _leaves_room(tensor) else _by_stride(tensor)


def _hints(numbers: Sequence[Any]) -> list[int | None]:
    return [int(n) if isinstance(n, int) else n.node.hint for n in numbers]


def _by_stride(tensor: torch.Tensor) -> tuple[int, ...]:
    strides = _hints(tensor.stride())
    return tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))


def _leaves_room(tensor: torch.Tensor) -> bool:
    """Whether a tensor has room between elements, or nobody knows."""
    sizes, strides = _hints(tensor.shape), _hints(tensor.stride())
    if None in sizes or None in strides:
        return True
    dense = 1
    for axis in reversed(_by_stride(tensor)):
        if sizes[axis] != 1 and strides[axis] != dense:
            return True
        dense *= sizes[axis]
    return False


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
