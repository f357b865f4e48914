"""Arguments for functions that nobody described: seeded, small, of the declared types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, tirx

#: Sizes that symbols of shapes get, one set after another until plain TVM takes one.
SIZES = (
    (4, 3, 5, 2, 6, 7, 8, 9),
    (4, 4, 4, 4, 4, 4, 4, 4),
    (1, 1, 1, 1, 1, 1, 1, 1),
    (8, 2, 16, 4, 32, 12, 24, 48),
)


class NoArgument(Exception):
    """A parameter has a type that no value can be made for; the message names it."""


def draws(func: relax.Function) -> Iterator[Draw]:
    """One way after another to draw the arguments of a function."""
    found = relax.analysis.defined_symbolic_vars(func) + relax.analysis.free_symbolic_vars(func)
    symbols = [var for var in found if str(var.ty).startswith("int")]
    ways = SIZES if symbols else SIZES[:1]
    for sizes in ways:
        yield Draw(func, {var: sizes[i % len(sizes)] for i, var in enumerate(symbols)})


class Draw:
    """Draws the same arguments each time that it is called, in fresh memory."""

    def __init__(self, func: relax.Function, sizes: dict[tirx.Var, int]) -> None:
        self._types = [param.ty for param in func.params]
        self._analyzer = tvm.sym.Analyzer()
        for var, size in sizes.items():
            self._analyzer.bind(var, tirx.IntImm(var.ty.dtype, size))

    def __call__(self) -> list[Any]:
        """The arguments. Raises ``NoArgument``."""
        rng = np.random.default_rng(7)
        return [self._value(ty, rng) for ty in self._types]

    def _value(self, ty: tvm.ir.Type, rng: np.random.Generator) -> Any:
        if isinstance(ty, relax.TupleType):
            return [self._value(field, rng) for field in ty.fields]
        if isinstance(ty, relax.ShapeType):
            if ty.values is None:
                raise NoArgument("a shape without extents")
            return tvm.runtime.ShapeTuple([self._extent(value) for value in ty.values])
        if isinstance(ty, relax.TensorType):
            return self._tensor(ty, rng)
        if isinstance(ty, tvm.ir.PrimType):
            return {"b": True, "i": 3, "u": 3}.get(str(ty)[0], 0.5)
        raise NoArgument(type(ty).__name__)

    def _extent(self, value: tvm.ir.Expr) -> int:
        found = self._analyzer.simplify(value)
        if not isinstance(found, tirx.IntImm):
            raise NoArgument(f"a size of {value}")
        return int(found)

    def _tensor(self, ty: relax.TensorType, rng: np.random.Generator) -> tvm.runtime.Tensor:
        if isinstance(ty.shape, relax.ShapeExpr):
            shape = [self._extent(value) for value in ty.shape.values]
        elif ty.ndim >= 0:
            shape = [4] * ty.ndim
        else:
            shape = [4, 4]
        dtype = "float32" if ty.dtype is None else str(ty.dtype)
        return tvm.runtime.tensor(_array(shape, dtype, rng))


def _array(shape: list[int], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if "float" in dtype:
        kind = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
        return rng.standard_normal(shape).astype(kind)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.startswith(("int", "uint")):
        raise NoArgument(f"tensor of {dtype}")
    # Small enough to be indices.
    return rng.integers(0, 2, shape).astype(np.dtype(dtype))
