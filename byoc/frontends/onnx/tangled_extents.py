"""Names for extents that values decide, and that no single symbol tells.

Detectors join what they find: an extent is then a sum of many numbers of rows, each of them cut,
min(n, 300) + min(m, 300) + ... Such an extent is of no use to what comes after, and grows from
operator to operator. It gets a symbol of its own, the same one wherever the same sum stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy
import tvm
from tvm import relax, tirx

from byoc.ir.dataflow import shape_of
from codegen_cc.dim import Dim
from codegen_cc.region.relax_dims import relax_extent, variable_symbols


@dataclass
class TangledExtents:
    """The symbols of a graph's inputs, and those that stand for extents since."""

    #: Symbols that callers decide, or that sizes of images have (``sizes_of_images``): most of a
    #: network comes after these are known.
    of_inputs: set[sympy.Symbol] = field(default_factory=set)
    names: dict[sympy.Expr, sympy.Symbol] = field(default_factory=dict)
    #: Those of sizes of images: which rows of a detector's levels are cut depends on them.
    computed: set[sympy.Symbol] = field(default_factory=set)

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
            found & self.computed and extent.has(sympy.Max)
        )

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
        dims = [self._named(e, variables) if self.is_tangled(e) else e for e in shape]
        ty = relax.TensorType([relax_extent(d, variables) for d in dims], str(value.ty.dtype))
        # An operator that is cast where it is bound would be in no region.
        return bb.match_cast(value if isinstance(value, relax.Var) else bb.emit(value), ty)

    def _named(self, extent: sympy.Expr, variables: dict[sympy.Symbol, tvm.ir.Var]) -> sympy.Symbol:
        symbol = self.names.get(extent)
        if symbol is None or symbol not in variables:
            found = variable_symbols([tirx.Var(f"rows_{len(variables)}", "int64")])
            variables |= found
            (symbol,) = found
            self.names[extent] = symbol
        return symbol
