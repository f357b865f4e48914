"""What a prototype and its annotation say together: tensors, attributes, sizes, the C call.

``byoc.extern.assemble`` builds a ``Signature`` and refuses what cannot be served; the products
(packed function, operators, tests) only print it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc.extern.expression import Expression
from byoc.extern.header import Prototype
from byoc.extern.operators import Operator
from byoc.extern.roles import Axis

#: Extents and attributes by name while a call is worked out; a run of axes has several extents.
Values = dict[str, "int | float | list[int]"]


@dataclass(frozen=True)
class Tensor:
    """A tensor argument: ``index`` is its place among the arguments of the packed function."""

    name: str
    dtype: str
    role: str
    layout: str | None
    shape: tuple[Axis, ...]
    index: int

    @property
    def runs(self) -> list[str]:
        """Names of the runs of axes in its shape."""
        return [axis.expression.text for axis in self.shape if axis.run]

    @property
    def fixed(self) -> int:
        """Number of axes outside of runs."""
        return sum(not axis.run for axis in self.shape)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Attribute:
    """A number that the caller chooses.

    ``name`` is the one in the annotation, ``keyword`` and ``index`` say where Python users find it;
    ``low`` and ``high`` are C constants.  ``default`` is Python's, if there is one; tests use
    ``values``.
    """

    name: str
    keyword: str
    index: int | None
    kind: str
    low: str
    high: str
    least: int | None
    default: int | float | bool | None
    values: tuple[int | float | bool, ...]
    axis: bool


@dataclass(frozen=True)
class Binding:
    """Where an extent is read: entry ``position`` of the shape of an input."""

    name: str
    tensor: Tensor
    position: int

    @property
    def run(self) -> bool:
        """Whether it is a run of axes."""
        return self.tensor.shape[self.position].run

    @property
    def before(self) -> int:
        """Number of single axes before it."""
        return sum(not axis.run for axis in self.tensor.shape[: self.position])

    @property
    def after(self) -> int:
        """Number of single axes after it."""
        return sum(not axis.run for axis in self.tensor.shape[self.position + 1 :])

    @property
    def from_end(self) -> bool:
        """Whether a run before it makes its place count from the end."""
        return any(axis.run for axis in self.tensor.shape[: self.position])


@dataclass(frozen=True)
class Argument:
    """An argument of the C call: its kind, what it names, and the range of an integer type.

    Kinds: ``tensor``, ``size`` (an extent), ``value`` (an expression), ``attribute``, ``rank``,
    ``shape``.
    """

    kind: str
    name: str
    text: str
    value: Expression | None = None
    low: str = ""
    high: str = ""


@dataclass(frozen=True)
class Signature:
    """One function that ``byoc extern`` can serve."""

    prototype: Prototype
    file: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: tuple[Attribute, ...]
    bindings: tuple[Binding, ...]
    lets: tuple[tuple[str, Expression], ...]
    arguments: tuple[Argument, ...]
    op: Operator | None
    relax: str | None
    reference: str | None

    @property
    def name(self) -> str:
        """The C function."""
        return self.prototype.name

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def axis(self) -> Attribute | None:
        """The attribute that splits shapes with two runs."""
        return next((attribute for attribute in self.attributes if attribute.axis), None)

    @property
    def title(self) -> str:
        """``c[m, n] = my_gemm(a[m, k], b[k, n])``."""
        results = ", ".join(map(str, self.outputs))
        given = ", ".join([*map(str, self.inputs), *self.keywords()])
        return f"{results} = {self.name}({given})"

    def keywords(self) -> dict[str, list[Attribute]]:
        """Attributes by the keyword under which Python takes them, by index."""
        found: dict[str, list[Attribute]] = {}
        for attribute in self.attributes:
            same = found.setdefault(attribute.keyword, [])
            if all(other.index != attribute.index for other in same):
                same.append(attribute)
        for same in found.values():
            same.sort(key=lambda attribute: attribute.index or 0)
        return found

    def runs(self) -> set[str]:
        """Names of runs of axes."""
        return {name for tensor in self.tensors for name in tensor.runs}

    def shared(self) -> set[str]:
        """Names that shapes or other sizes read: those that are not for the C call alone."""
        read = [axis.expression for tensor in self.tensors for axis in tensor.shape]
        read += [value for name, value in self.lets]
        return {name for expression in read for name in expression.names()}

    def needed(self) -> set[str]:
        """Names that the shapes of results, and checks of inputs, are worked out from."""
        lets = dict(self.lets)
        waiting = [axis.expression for tensor in self.outputs for axis in tensor.shape]
        waiting += [
            axis.expression
            for tensor in self.inputs
            for axis in tensor.shape
            if axis.expression.name is None or axis.expression.name in lets
        ]
        found: set[str] = set()
        while waiting:
            for name in waiting.pop().names():
                if name not in found and name in lets:
                    waiting.append(lets[name])
                found.add(name)
        return found

    def evaluate(self, values: Values) -> Values:
        """Add the sizes that follow to bound extents and attributes. Raises on division by 0."""
        values = dict(values)
        for name, expression in self.lets:
            values[name] = expression.evaluate(plain(values))
        return values

    def shape(self, tensor: Tensor, values: Values) -> list[int]:
        """The shape of a tensor for given extents."""
        return list(_extents(tensor.shape, values))


def plain(values: Mapping[str, object]) -> dict[str, int]:
    """One number per name: a run counts as its number of elements."""
    return {
        name: math.prod(value) if isinstance(value, list) else value  # type: ignore[misc]
        for name, value in values.items()
    }


def _extents(shape: Sequence[Axis], values: Values) -> Iterator[int]:
    for axis in shape:
        if axis.run:
            yield from values[axis.expression.text]  # type: ignore[misc]
        else:
            yield axis.expression.evaluate(plain(values))
