"""What the body of a loop makes of a row and its states, as sums of products.

    MatMul(row, w) [:, 16:32] + b        {row w[:, 16:32]: 1, b: 1}
    Sigmoid(that) * h                    {sigmoid(...) h: 1}
    1 - z                                {(): 1, z: -1}

Sums that are equal as formulas are equal here, in whatever order an exporter wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from byoc.frontends.onnx.honoured import ONNX_DOMAINS
from byoc.frontends.onnx.inferred_shapes import extents_of

#: Functions that a recurrent layer can have, with what is left out of alpha and beta.
FUNCTIONS: dict[str, tuple[float, ...]] = {
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
}

#: More products than any cell adds up.
_MOST = 16

#: Slices with bounds as inputs, and Split with sizes as one.
_BOUNDS_ARE_INPUTS, _SIZES_ARE_INPUTS = 10, 13
#: Clip with bounds as inputs.
_CLIP_READS_BOUNDS = 11


@dataclass(frozen=True)
class Row:
    """The row of a round: that of a tensor [rounds, batch, columns]."""

    name: str
    width: int


@dataclass(frozen=True)
class Held:
    """A state [batch, width], by its number."""

    place: int
    width: int


@dataclass(frozen=True)
class Columns:
    """Columns from ``begin`` to ``end`` of a vector, or of a product with a matrix of weights."""

    name: str
    begin: int
    end: int
    #: What is multiplied by the matrix; nothing where this is a vector itself.
    factors: tuple[Any, ...] = ()

    @property
    def width(self) -> int:
        """How many there are."""
        return self.end - self.begin


@dataclass(frozen=True)
class Applied:
    """A function of a sum."""

    function: str
    numbers: tuple[float, ...]
    of: Sum

    @property
    def width(self) -> int | None:
        """How many columns it has."""
        return self.of.width


@dataclass(frozen=True)
class Sum:
    """Products of factors, each with how often it is added."""

    products: frozenset[tuple[tuple[Any, ...], float]]

    @classmethod
    def of(cls, products: Mapping[tuple[Any, ...], float]) -> Sum:
        """Products without those that vanish."""
        return cls(frozenset((factors, n) for factors, n in products.items() if n))

    @classmethod
    def single(cls, factor: object) -> Sum:
        """One factor."""
        return cls.of({(factor,): 1.0})

    @property
    def counts(self) -> dict[tuple[Any, ...], float]:
        """How often each product is added."""
        return dict(self.products)

    @property
    def factors(self) -> tuple[Any, ...] | None:
        """Those of the only product, if there is one, added once."""
        (only, *more) = [*self.products, None]
        return only[0] if len(more) == 1 and only[1] == 1.0 else None

    @property
    def width(self) -> int | None:
        """How many columns it has; None for a number, and where factors differ."""
        widths = {factor.width for factors, _ in self.products for factor in factors}
        return widths.pop() if len(widths) == 1 else None

    def plus(self, other: Sum, times: float = 1.0) -> Sum:
        """This and some of another."""
        total = self.counts
        for factors, count in other.products:
            total[factors] = total.get(factors, 0.0) + times * count
        return Sum.of(total)

    def times(self, other: Sum) -> Sum | None:
        """Each product by each; None for too many."""
        if len(self.products) * len(other.products) > _MOST:
            return None
        total: dict[tuple[Any, ...], float] = {}
        for factors, count in self.products:
            for more, number in other.products:
                key = tuple(sorted((*factors, *more), key=repr))
                # A sixth of six is one, as the numbers are float32.
                total[key] = total.get(key, 0.0) + float(np.float32(count * number))
        return Sum.of(total)

    def clipped(self, high: float) -> Sum | None:
        """Clip(k y + c, 0, high), as high HardSigmoid(y): of Keras, Clip(y + 3, 0, 6) / 6."""
        terms = self.counts
        added = terms.pop((), 0.0)
        scales = set(terms.values())
        if len(scales) != 1 or min(*scales, high) <= 0:
            return None
        numbers = (scales.pop() / high, added / high)
        return Sum.of({(Applied("HardSigmoid", numbers, Sum.of(dict.fromkeys(terms, 1.0))),): high})

    def columns(self, begin: int, end: int) -> Sum | None:
        """Some of the columns; None for those of a row or state."""
        total: dict[tuple[Any, ...], float] = {}
        for factors, count in self.products:
            parts = [_columns(factor, begin, end) for factor in factors]
            if None in parts:
                return None
            total[tuple(sorted(parts, key=repr))] = count
        return Sum.of(total)


def _columns(factor: object, begin: int, end: int) -> object | None:
    if isinstance(factor, Columns):
        return replace(factor, begin=factor.begin + begin, end=factor.begin + end)
    if isinstance(factor, Applied):
        of = factor.of.columns(begin, end)
        return None if of is None else replace(factor, of=of)
    return None


@dataclass
class CellReader:
    """Reads the values of a body whose row and states are known in ``values``, by name.

    ``types`` and ``constant`` tell of the values around it and of its own constants.
    """

    types: Mapping[str, onnx.TypeProto]
    constant: Callable[[str], np.ndarray | None]
    opset: int
    values: dict[str, Sum]
    #: What is between a least and a greatest value, of them the sums.
    bounds: dict[str, tuple[Sum, float, float]] = field(default_factory=dict)

    def read(self, node: onnx.NodeProto) -> None:
        """Note what a node makes of known values; nothing is noted of others."""
        if node.domain not in ONNX_DOMAINS:
            return
        if node.op_type == "Split":
            self._split(node)
            return
        if node.op_type in FUNCTIONS:
            found = self._applied(node)
        else:
            reader = {
                "MatMul": self._product,
                **dict.fromkeys(("Clip", "Max", "Min"), self._bounded),
                "Gemm": self._gemm,
                "Slice": self._slice,
                "Identity": lambda node: self.values.get(node.input[0]),
                **dict.fromkeys(("Add", "Sub", "Mul"), self._arithmetic),
            }.get(node.op_type)
            found = None if reader is None else reader(node)
        if found is not None:
            self.values[node.output[0]] = found

    def _product(self, node: onnx.NodeProto) -> Sum | None:
        return self._by_matrix(node.input[0], node.input[1])

    def _by_matrix(self, left: str, matrix: str) -> Sum | None:
        value, shape = self.values.get(left), extents_of(self.types.get(matrix))
        factors = None if value is None else value.factors
        if not factors or shape is None or len(shape) != 2 or None in shape:
            return None
        if value.width != shape[0] or matrix in self.values:
            return None
        return Sum.single(Columns(matrix, 0, shape[1], factors))

    def _gemm(self, node: onnx.NodeProto) -> Sum | None:
        plain = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if any(value != plain.get(name) for name, value in given.items()):
            return None
        product = self._by_matrix(node.input[0], node.input[1])
        if product is None or len(node.input) < 3 or not node.input[2]:
            return product
        bias = self._operand(node.input[2], product.width)
        return None if bias is None else product.plus(bias)

    def _operand(self, name: str, width: int | None) -> Sum | None:
        """A value, a number, or a vector from around that has as many columns."""
        if name in self.values:
            return self.values[name]
        known = self.constant(name)
        if known is not None and known.size == 1 and known.ndim <= 1:
            return Sum.of({(): float(known.item())})
        shape = extents_of(self.types.get(name))
        if not shape or width is None or shape not in ([width], [1, width]):
            return None
        return Sum.single(Columns(name, 0, width))

    def _arithmetic(self, node: onnx.NodeProto) -> Sum | None:
        known = [self.values[name].width for name in node.input if name in self.values]
        widths = [width for width in known if width is not None]
        if len(set(widths)) != 1:
            return None
        left, right = (self._operand(name, widths[0]) for name in node.input)
        if left is None or right is None:
            return None
        if node.op_type == "Mul":
            return left.times(right)
        return left.plus(right, 1.0 if node.op_type == "Add" else -1.0)

    def _applied(self, node: onnx.NodeProto) -> Sum | None:
        of = self.values.get(node.input[0])
        if of is None or of.width is None:
            return None
        given = {a.name: a.f for a in node.attribute}
        defaults = zip(("alpha", "beta"), FUNCTIONS[node.op_type], strict=False)
        numbers = tuple(given.get(name, default) for name, default in defaults)
        return Sum.single(Applied(node.op_type, numbers, of))

    def _bounded(self, node: onnx.NodeProto) -> Sum | None:
        """Values between 0 and a number, by Clip or by Min and Max; notes what has other bounds."""
        place = int(node.input[0] not in self.values.keys() | self.bounds.keys())
        operands = [*node.input, "", "", ""]
        name, number = operands[place], self._number(operands[1 - place])
        least = most = None
        if node.op_type == "Clip":
            given = {a.name: a.f for a in node.attribute}
            least, most = given.get("min"), given.get("max")
            if self.opset >= _CLIP_READS_BOUNDS:
                least, most = (self._number(bound) for bound in operands[1:3])
        elif number is None or len(node.input) != 2:
            return None
        else:
            least, most = (None, number) if node.op_type == "Min" else (number, None)
        of, low, high = self.bounds.get(name, (self.values.get(name), -np.inf, np.inf))
        if least is not None:
            low, high = max(low, least), max(high, least)
        if most is not None:
            low, high = min(low, most), min(high, most)
        if of is not None:
            self.bounds[node.output[0]] = (of, low, high)
        return None if of is None or low != 0 or np.isinf(high) else of.clipped(high)

    def _number(self, name: str) -> float | None:
        known = self.constant(name) if name else None
        return known.item() if known is not None and known.size == 1 else None

    def _slice(self, node: onnx.NodeProto) -> Sum | None:
        """Columns, of all rows."""
        of = self.values.get(node.input[0])
        if of is None or of.width is None or self.opset < _BOUNDS_ARE_INPUTS:
            return None
        given = [self.constant(name) if name else None for name in node.input[1:]]
        if any(array is None for array, name in zip(given, node.input[1:], strict=True) if name):
            return None
        begins, ends, axes, steps = (
            None if array is None else array.tolist() for array in [*given, None, None][:4]
        )
        found = (0, of.width)
        for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            axis = place if axes is None else axes[place]
            if steps is not None and steps[place] != 1:
                return None
            if axis in (1, -1):
                found = slice(begin, end).indices(of.width)[:2]
            elif begin != 0 or end < 2**31 - 1:
                return None
        return of.columns(*found) if found[0] < found[1] else None

    def _split(self, node: onnx.NodeProto) -> None:
        """Columns for each result."""
        of = self.values.get(node.input[0])
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if of is None or of.width is None or given.get("axis", 0) not in (1, -1):
            return
        sizes = given.get("split")
        if self.opset >= _SIZES_ARE_INPUTS and len(node.input) > 1 and node.input[1]:
            listed = self.constant(node.input[1])
            if listed is None:
                return
            sizes = listed.tolist()
        elif sizes is None:
            if of.width % len(node.output):
                return
            sizes = [of.width // len(node.output)] * len(node.output)
        begin = 0
        for name, size in zip(node.output, sizes, strict=True):
            part = of.columns(begin, begin + size)
            if name and part is not None:
                self.values[name] = part
            begin += size
