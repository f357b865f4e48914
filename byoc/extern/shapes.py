"""What the generated operators share: extents by name, and checks with one line of error.

Extents are integers or TVM's expressions of symbols.  What cannot be decided before a call, because
it depends on a symbol, is left to the packed function, which checks every call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from codegen_cc.plan.tensors import MAX_AXES

#: An integer, or an expression of TVM's.
Extent = Any
Shape = Sequence[Extent]

#: Shapes of the results, and the numbers that a packed function takes after its inputs.
Inferred = tuple[list[list[Extent]], list[int | float]]


def extents(shape: Iterable[Extent]) -> list[Extent]:
    """A shape with plain integers wherever it is static."""
    return [int(d) if isinstance(d, int | tirx.IntImm) else d for d in shape]


def differ(left: Extent, right: Extent) -> bool:
    """Whether two extents are certainly not the same."""
    if isinstance(left, int) and isinstance(right, int):
        return left != right
    difference = tvm.sym.Analyzer().simplify(left - right)
    return isinstance(difference, tirx.IntImm) and int(difference) != 0


def product(run: Sequence[Extent]) -> Extent:
    """Number of elements of a run of axes."""
    return math.prod(run)


class Sizes:
    """The extents of one call by name, each taken from the first tensor that has it.

    A name may stand for a run of axes (``*outer``); it is then a list of extents.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self._found: dict[str, Any] = {}

    def bind(
        self, tensor: str, shape: Sequence[Extent], *axes: str | int | None, split: int = 0
    ) -> None:
        """Match a shape with names, numbers and None (anything).

        Of two runs the first has ``split`` axes.  Raises ``ValueError`` where the rank or an
        extent is another one, or the rank is above ``MAX_AXES``.
        """
        given = self._within_rank(tensor, extents(shape), "has")
        runs = [axis for axis in axes if isinstance(axis, str) and axis.startswith("*")]
        single = len(axes) - len(runs)
        short = len(given) < single if runs else len(given) != single
        if short:
            self._mismatch(tensor, given, axes)
        lengths = [split, len(given) - single - split][: len(runs)]
        if len(runs) == 1:
            lengths = [len(given) - single]
        position = 0
        for axis in axes:
            count = lengths.pop(0) if axis in runs else 1
            found = given[position : position + count]
            position += count
            if axis in runs:
                self._take(tensor, given, axes, str(axis)[1:], found)
            elif isinstance(axis, str):
                self._take(tensor, given, axes, axis, found[0])
            elif axis is not None and differ(found[0], axis):
                self._mismatch(tensor, given, axes)

    def _take(
        self,
        tensor: str,
        given: list[Extent],
        axes: Sequence[str | int | None],
        name: str,
        found: Any,
    ) -> None:
        known = self._found.setdefault(name, found)
        left, right = (value if isinstance(value, list) else [value] for value in (known, found))
        if len(left) != len(right) or any(map(differ, left, right)):
            self._mismatch(tensor, given, axes)

    def _mismatch(self, tensor: str, given: list[Extent], axes: Sequence[str | int | None]) -> None:
        wanted = ", ".join("?" if axis is None else str(axis) for axis in axes)
        known = [
            f"{axis} = {self._found[axis.lstrip('*')]}"
            for axis in axes
            if isinstance(axis, str) and axis.lstrip("*") in self._found
        ]
        where = f" with {', '.join(known)}" if known else ""
        raise ValueError(f"{self.function}: {tensor} has shape {given}; expected [{wanted}]{where}")

    def need(self, tensor: str, found: Extent, wanted: Extent, text: str) -> None:
        """Raise ``ValueError`` if an extent of a tensor is not what an expression says."""
        (found,) = extents([found])
        if differ(found, wanted):
            raise ValueError(
                f"{self.function}: {tensor} has an axis of {found}; expected {text} = {wanted}"
            )

    def result(self, tensor: str, shape: Sequence[Extent]) -> list[Extent]:
        """The shape of a result.

        Raises ``ValueError`` where an extent is negative or the rank above ``MAX_AXES``.
        """
        shape = self._within_rank(tensor, extents(shape), "would have")
        if any(isinstance(extent, int) and extent < 0 for extent in shape):
            raise ValueError(f"{self.function}: {tensor} would have shape {shape}")
        return shape

    def _within_rank(self, tensor: str, shape: list[Extent], verb: str) -> list[Extent]:
        if len(shape) > MAX_AXES:
            raise ValueError(
                f"{self.function}: {tensor} {verb} rank {len(shape)}, shape {shape}; "
                f"at most {MAX_AXES} is possible"
            )
        return shape

    def __getitem__(self, names: str | tuple[str, ...]) -> Any:
        if isinstance(names, str):
            return self._found[names]
        return tuple(self._found[name] for name in names)


def integer(function: str, name: str, value: Any, least: int | None = None) -> int:
    """An attribute that is a whole number. Raises ``TypeError`` or ``ValueError``."""
    try:
        number = operator.index(int(value) if isinstance(value, tirx.IntImm) else value)
    except TypeError:
        raise TypeError(f"{function}: {name} is {value!r}; need a whole number") from None
    if least is not None and number < least:
        raise ValueError(f"{function}: {name} is {number}; need {least} or more")
    return number


def integers(
    function: str, name: str, values: Iterable[Any], count: int, least: int | None = None
) -> list[int]:
    """An attribute that is a list of so many whole numbers."""
    found = [integer(function, name, value, least) for value in values]
    if len(found) != count:
        raise ValueError(f"{function}: {name} is {found}; need {count} numbers")
    return found


def axis_in(function: str, axis: Any, rank: int, fixed: int) -> int:
    """An axis counted from the front; ``fixed`` axes begin there."""
    number = integer(function, "axis", axis)
    if not -rank <= number <= rank - fixed:
        raise ValueError(f"{function}: axis is {number}; expected {-rank} to {rank - fixed}")
    return number + rank if number < 0 else number


def immediates(numbers: Iterable[int | float]) -> list[tvm.ir.Expr]:
    """Attributes as arguments of a packed call: 64-bit integers and doubles."""
    return [
        tirx.FloatImm("float64", number)
        if isinstance(number, float)
        else tirx.IntImm("int64", int(number))
        for number in numbers
    ]


def need_dtypes(function: str, *tensors: tuple[str, object, str]) -> None:
    """Raise ``TypeError`` for a tensor (name, dtype, needed dtype) of another dtype."""
    for name, found, needed in tensors:
        if str(found) != needed:
            raise TypeError(f"{function}: {name} has dtype {found}; expected {needed}")


def shape_of(function: str, name: str, expr: relax.Expr) -> list[Extent]:
    """The shape of a Relax expression. Raises ``ValueError`` where it is not known."""
    shape = getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        raise ValueError(f"{function}: {name} is {expr.ty}; need a tensor of known shape")
    return extents(shape.values)


def dtype_of(expr: relax.Expr) -> str:
    """The dtype of a Relax expression, or its type where it is no tensor."""
    return str(getattr(expr.ty, "dtype", expr.ty))
