"""Names for extents that values decide, and that no single symbol tells.

Detectors join what they find: an extent is then a sum of many numbers of rows, each of them cut,
min(n, 300) + min(m, 300) + ... Such an extent is of no use to what comes after, and grows from
operator to operator. It gets a symbol of its own, the same one wherever the same sum stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy
import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import shape_of
from codegen_cc.dim import Dim
from codegen_cc.region.relax_dims import relax_extent, variable_symbols


def numbers_as_symbols(
    bb: relax.BlockBuilder,
    numbers: relax.Expr,
    name: str,
    variables: dict[sympy.Symbol, tvm.ir.Var],
) -> list[sympy.Symbol]:
    """A symbol for each number of an int64 vector of known length; ``variables`` get the new ones.

    None of the numbers may be below 0.
    """
    count, (length,) = len(variables), shape_of(numbers)
    fresh = [tirx.Var(f"{name}_{count + place}", "int64") for place in range(length)]
    bb.match_cast(bb.emit(relax.op.tensor_to_shape(numbers)), relax.ShapeType(fresh))
    variables |= (found := variable_symbols(fresh))
    return list(found)


@dataclass
class TangledExtents:
    """The symbols of a graph's inputs, and those that stand for extents since."""

    #: Symbols that callers decide, or that sizes of images have (``sizes_of_images``): most of a
    #: network comes after these are known.
    of_inputs: set[sympy.Symbol] = field(default_factory=set)
    names: dict[sympy.Expr, sympy.Symbol] = field(default_factory=dict)
    #: Those of sizes of images: which rows of a detector's levels are cut depends on them.
    computed: set[sympy.Symbol] = field(default_factory=set)
    #: Those of slices with computed bounds and of computed fillings, and what is named after them.
    cuts: set[sympy.Symbol] = field(default_factory=set)

    def are_sizes(self, symbols: set[sympy.Symbol]) -> None:
        """Note symbols of sizes of images."""
        self.computed |= symbols
        self.of_inputs |= symbols

    def is_tangled(self, extent: Dim) -> bool:
        """Whether several symbols that values decide are in an extent, or one that is cut."""
        if not isinstance(extent, sympy.Expr):
            return False
        found = extent.free_symbols
        return len(found - self.of_inputs) > 1 or bool(
            found & (self.computed | self.cuts) and extent.has(sympy.Max)
        )

    def by_values(self, *extents: Dim) -> bool:
        """Whether one of these extents has a symbol that values decide."""
        found = {s for e in extents if isinstance(e, sympy.Expr) for s in e.free_symbols}
        return bool(found - self.of_inputs)

    def has_sizes(self, extents: Sequence[Dim]) -> bool:
        """Whether one of these extents has a symbol of a computed size of an image."""
        found = {s for e in extents if isinstance(e, sympy.Expr) for s in e.free_symbols}
        return bool(found & self.computed)

    def by_run(self, *extents: Dim) -> bool:
        """Whether values, or computed sizes, decide one of these extents."""
        return self.by_values(*extents) or self.has_sizes(extents)

    def has_cuts(self, extents: Sequence[Dim]) -> bool:
        """Whether one of these extents is that of a computed slice or filling."""
        return any(isinstance(e, sympy.Expr) and bool(e.free_symbols & self.cuts) for e in extents)

    def renamed(
        self,
        bb: relax.BlockBuilder,
        value: relax.Expr,
        variables: dict[sympy.Symbol, tvm.ir.Var],
    ) -> relax.Expr:
        """A tensor of a known shape with names for such extents; ``variables`` get the new ones."""
        shape = shape_of(value)
        if not any(map(self.is_tangled, shape)):
            return value
        cut = any(self.is_tangled(e) and e.free_symbols & self.cuts for e in shape)
        dims = [self._named(bb, e, variables) if self.is_tangled(e) else e for e in shape]
        extents = [relax_extent(d, variables) for d in dims]
        if cut:
            return bb.normalize(relax.op.reshape(value, relax.ShapeExpr(extents)))
        ty = relax.TensorType(extents, str(value.ty.dtype))
        # An operator that is cast where it is bound would be in no region.
        return bb.match_cast(value if isinstance(value, relax.Var) else bb.emit(value), ty)

    def _named(
        self, bb: relax.BlockBuilder, extent: sympy.Expr, variables: dict[sympy.Symbol, tvm.ir.Var]
    ) -> sympy.Symbol:
        symbol = self.names.get(extent)
        if symbol is not None and symbol in variables:
            return symbol
        if extent.free_symbols & self.cuts:
            # TVM would write the extent for the symbol, in some places and not in others: it does
            # not look through a tensor.
            size = relax.op.shape_to_tensor(relax.ShapeExpr([relax_extent(extent, variables)]))
            (symbol,) = numbers_as_symbols(bb, bb.emit(size), "rows", variables)
            self.cuts.add(symbol)
        else:
            found = variable_symbols([tirx.Var(f"rows_{len(variables)}", "int64")])
            variables |= found
            (symbol,) = found
        self.names[extent] = symbol
        return symbol
