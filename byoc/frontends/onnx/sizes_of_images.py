"""Sizes of tensors that a network computes from values: of images that it resizes, and of fillings.

A detector scales its image until the shorter side is 800 pixels, or the longer one 1333. How fp32
rounds such a size is no expression of the symbols: it is computed while the model runs, as the file
says. It becomes a symbol of its own, and all that comes after the resize has extents of it. So do
the widths of zeros that are put around a mask, of which one side is known by symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
import sympy
import tvm
from tvm import relax, tirx

from byoc.frontends.onnx.honoured import SCALED_RESIZE
from byoc.frontends.onnx.shape_elements import ShapeValue
from byoc.frontends.onnx.tangled_extents import numbers_as_symbols
from byoc.ir.dataflow import dtype_of, shape_of
from codegen_cc.dim import at_most, normal
from codegen_cc.region.relax_dims import relax_extent, variable_symbols


@dataclass
class SizesOfImages:
    """The sizes that a graph's Resizes read, and the symbols of those that are computed."""

    #: Names of what is read as sizes of images, and of tensors of one number.
    read: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    found: dict[str, ShapeValue] = field(default_factory=dict)
    #: Symbols of computed sizes of images, and of tensors of one number.
    of_images: set[sympy.Symbol] = field(default_factory=set)
    of_fillings: set[sympy.Symbol] = field(default_factory=set)
    #: Symbols for computed sizes that were rounded up, such as to a multiple of 32.
    rounded: dict[sympy.Expr, sympy.Symbol] = field(default_factory=dict)

    @property
    def symbols(self) -> set[sympy.Symbol]:
        """All symbols of computed sizes of images."""
        return self.of_images | {s for part in self.rounded.values() for s in part.free_symbols}

    def note(self, graph: onnx.GraphProto) -> None:
        """Look which values of a graph are sizes."""
        for node in graph.node:
            if node.op_type == "Resize" and len(node.input) > 3:
                self.read.add(node.input[3])
            elif node.op_type == SCALED_RESIZE:
                self.read.add(node.input[2])
            elif node.op_type == "ConstantOfShape":
                self.filled.add(node.input[0])

    def joins(self, node: onnx.NodeProto) -> bool:
        """Whether a node puts sizes together, of which some may be computed."""
        return node.op_type == "Concat" and node.output[0] in self.read | self.filled

    def known(
        self,
        bb: relax.BlockBuilder,
        node: onnx.NodeProto,
        operands: Sequence[ShapeValue | None],
        values: Mapping[str, Any],
        variables: dict[sympy.Symbol, tvm.ir.Var],
    ) -> list[ShapeValue | None]:
        """The operands of such a node with symbols for those that are computed.

        ``variables`` get the new ones. None for what is no vector of a known number of integers.
        """
        found = [
            self._symbols(bb, name, values.get(name), variables) if operand is None else operand
            for name, operand in zip(node.input, operands, strict=True)
        ]
        kind = self.of_images if node.output[0] in self.read else self.of_fillings
        for name in self.found.keys() & {*node.input}:
            kind.update(self.found[name].elements.ravel())
        return found

    def _symbols(
        self,
        bb: relax.BlockBuilder,
        name: str,
        value: Any,
        variables: dict[sympy.Symbol, tvm.ir.Var],
    ) -> ShapeValue | None:
        if name in self.found:
            return self.found[name]
        shape = shape_of(value) if isinstance(value, relax.Expr) else None
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            return None
        if dtype_of(value) != "int64":
            return None
        self.found[name] = ShapeValue.of(numbers_as_symbols(bb, value, "resized", variables))
        return self.found[name]

    def padded(
        self,
        bb: relax.BlockBuilder,
        value: relax.Expr,
        variables: dict[sympy.Symbol, tvm.ir.Var],
    ) -> relax.Expr:
        """A tensor with symbols for what its extents round of computed sizes.

        With k for -floor(-n/32), the extents 32*k are halved five times and are whole numbers.
        ``variables`` get the new ones.
        """
        computed, shape = self.of_images, shape_of(value)
        parts = [
            part
            for extent in shape
            if isinstance(extent, sympy.Expr)
            for part in extent.atoms(sympy.floor)
            if part.free_symbols <= computed
        ]
        if not parts:
            return value
        for part in dict.fromkeys(parts):
            self._name(bb, part, variables)
        shape = [e if isinstance(e, int) else normal(e.xreplace(self.rounded)) for e in shape]
        ty = relax.TensorType([relax_extent(e, variables) for e in shape], dtype_of(value))
        # An operator that is cast where it is bound would be in no region.
        return bb.match_cast(value if isinstance(value, relax.Var) else bb.emit(value), ty)

    def _name(
        self,
        bb: relax.BlockBuilder,
        part: sympy.Expr,
        variables: dict[sympy.Symbol, tvm.ir.Var],
    ) -> None:
        if part in self.rounded:
            return
        up = at_most(part, 0)  # -floor(-n/32) is n/32, rounded up
        variable = tirx.Var(f"rounded_{len(variables)}", "int64")
        number = relax.ShapeExpr([relax_extent(-part if up else part, variables)])
        bb.match_cast(number, relax.ShapeType([variable]))
        variables |= (fresh := variable_symbols([variable]))
        self.rounded[part] = -next(iter(fresh)) if up else next(iter(fresh))
