"""TVM's ONNX importer, with what it lacks for symbolic axes.

It follows the values of shapes through a few operators only and computes the sizes of Resize in
fp32. Here every node on shapes that ``shape_values`` can evaluate becomes an expression of the
symbols, and Resize, Upsample and Range of such operands are converted here. Nodes that have to do
with no symbol go TVM's way, so models of static shapes are imported as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import sympy
import tvm
from tvm import relax, tirx

from byoc.frontends.onnx.checked_import import CheckedImporter
from byoc.frontends.onnx.contracted_axes import note_contracted, shapes_of
from byoc.frontends.onnx.fitting_extents import (
    broadcastable,
    concatenated,
    expanded,
    multipliable,
    require_equal,
    told_apart,
)
from byoc.frontends.onnx.graph_names import subgraphs
from byoc.frontends.onnx.honoured import RESIZES
from byoc.frontends.onnx.learned_axes import Unequal, rows_or_elements, unequal, unequal_beside
from byoc.frontends.onnx.open_squeeze import squeezed, squeezed_to_one
from byoc.frontends.onnx.paired_axes import least_of_data, note_paired
from byoc.frontends.onnx.shape_elements import MAX_ELEMENTS, ShapeValue, constant_value
from byoc.frontends.onnx.shape_values import results_of
from byoc.frontends.onnx.sizes_of_images import SizesOfImages
from byoc.frontends.onnx.symbolic_pad import cut, filling, joined, repeated, wrapped
from byoc.frontends.onnx.symbolic_range import (
    counted,
    flattened,
    no_shorter,
    number,
    places_of_all,
    tiled,
)
from byoc.frontends.onnx.symbolic_resize import is_symbolic_image, resized_image
from byoc.frontends.onnx.symbolic_same import same_padded
from byoc.frontends.onnx.symbolic_slice import cut_by_values, dims_of, sliced
from byoc.frontends.onnx.tangled_extents import TangledExtents
from byoc.frontends.onnx.unevaluated import wanted_for
from byoc.ir.dataflow import array_of, is_kernel_float, shape_of
from codegen_cc.dim import (
    Dim,
    is_static,
    normal,
    product,
    quotient,
    same,
    unclamped,
)
from codegen_cc.region.relax_dims import relax_extent, variable_symbols

#: Inputs that TVM's converters read as shapes; all others are tensors.
SHAPE_INPUTS = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Slice": (1, 2, 3, 4),
    "Resize": (3,),
    "Tile": (1,),
}

#: Operators whose SAME padding gives ceil(extent / stride) elements; ConvInteger and the like are
#: converted as these. That of ConvTranspose does not depend on the extent, and TVM's converter
#: knows it.
PADDED_AS_CONV = ("Conv", "MaxPool", "AveragePool", "LpPool")

#: Operators on elements of several tensors.
# fmt: off
BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub",
    "Sum", "Where", "Xor",
)
# fmt: on
_SLOPES_BROADCAST = 7  # the opset; before, a vector of slopes was one of channels


class SymbolicImporter(CheckedImporter):
    """Evaluates nodes on shapes before they are converted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._values: dict[str, ShapeValue] = {}
        self._variables: dict[sympy.Symbol, tvm.ir.Var] = {}
        self.tangled = TangledExtents()
        #: Extents of tensors whose shapes are looked at.
        self._extents: set[sympy.Expr] = set()
        self._sizes = SizesOfImages()
        #: What symbols have to be at least, those that may not be all numbers.
        self.least: dict[str, int] = {}
        #: Extents that operators want to be equal and that are not for all sizes.
        self.unequal: Unequal = []
        #: How many of these were taken for equal, to see what comes after; None to take none.
        self.assumed: int | None = None
        #: What converts symbolic operands, and gives None where TVM's converter will do.
        self._own = {
            "Concat": lambda inputs, attrs: concatenated(
                self.bb, inputs, attrs.get("axis", 1), self._variables, self.tangled.by_run
            ),
            "Slice": self._slice,
            "Tile": lambda inputs, _: tiled(self.bb, inputs, self._extent),
            "Flatten": lambda inputs, attrs: flattened(inputs, attrs, self._extent),
            "Expand": self._expand,
            "Reshape": self._reshape,
            "Squeeze": self._squeeze,
            "Pad": self._pad,
            "NonZero": lambda inputs, _: places_of_all(self.bb, inputs[0]),
        }

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        super()._parse_graph_input(graph)
        for name in self._input_names:
            found = relax.analysis.tir_vars_in_type(self._nodes[name].ty)
            self._variables.update(variable_symbols(found))
        self.tangled.of_inputs.update(self._variables)

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        self._sizes.note(graph)
        for node in graph.node:
            if self._evaluate(node):
                continue
            if not any(True for _ in subgraphs(node)):
                self._provide(node)
            self.convert_node(node)
        for output in graph.output:
            if output.name in self._values:
                self._nodes[output.name] = self._tensor(self._values[output.name])

    def convert_node(self, node: onnx.NodeProto) -> None:
        """Convert a node, and take the symbols of results that are sized by values."""
        super().convert_node(node)
        for name in filter(None, node.output):
            if isinstance(value := self._nodes.get(name), relax.Expr):
                self._nodes[name] = self._with_symbols(name, value)

    def _with_symbols(self, name: str, value: relax.Expr) -> relax.Expr:
        """A value whose symbols are known from now on; converters name several alike."""
        ty = value.ty
        if not isinstance(ty, relax.TensorType) or shape_of(value) is None:
            return value
        known = list(self._variables.values())
        found = [v for v in relax.analysis.tir_vars_in_type(ty) if not any(map(v.same_as, known))]
        if not found:
            return self.tangled.renamed(self.bb, value, self._variables)
        new = variable_symbols(found)
        if not new.keys() & self._variables.keys():
            self._variables |= new
            return value
        extents = []
        for extent in shape_of(value):
            fresh = isinstance(extent, sympy.Symbol) and extent in new
            count = len(self._variables)
            extents.append(tirx.Var(f"{extent}_{count}", "int64") if fresh else extent)
            if fresh:
                self._variables |= variable_symbols(extents[-1:])
        if any(symbol in new for symbol in _symbols([e for e in extents if isinstance(e, Dim)])):
            raise ValueError(f"the size of {name!r} depends on values in a way that no name tells")
        shape = [e if isinstance(e, tirx.Var) else self._extent(e) for e in extents]
        return self.bb.match_cast(value, relax.TensorType(shape, str(ty.dtype)))

    def convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        if self._variables and op_name in RESIZES and is_symbolic_image(inputs):
            convert = partial(resized_image, extent_of=self._extent, unequal=self.unequal)
            return self.bb.normalize(self.honouring(convert, op_name, inputs, attrs, opset))
        if op_name in PADDED_AS_CONV and attrs.get("auto_pad", b"").startswith(b"SAME"):
            attrs, ones = same_padded(self.bb, op_name, inputs, attrs, self._extent)
            if ones is not None:
                means = (
                    super(SymbolicImporter, self).convert_operator(op_name, [x], {**attrs}, opset)
                    for x in (inputs[0], ones)
                )
                return self.bb.normalize(relax.op.divide(*map(self.bb.normalize, means)))
        if op_name in BROADCASTING or (op_name == "PRelu" and opset >= _SLOPES_BROADCAST):
            inputs[:] = self._in_one_form(inputs)
        if op_name == "Concat":
            self.unequal += unequal_beside(attrs.get("axis", 1), map(shape_of, inputs))
        self._note_contracted(op_name, inputs, attrs)
        convert = self._own.get(op_name)
        if convert is not None and (value := convert(inputs, attrs)) is not None:
            return self.bb.normalize(value)
        return super().convert_operator(op_name, inputs, attrs, opset)

    def _in_one_form(self, inputs: Sequence[relax.Expr | None]) -> list[relax.Expr | None]:
        """Operands whose extents TVM would not know to be equal, with equal texts for them."""
        inputs = broadcastable(self.bb, inputs, self._variables, self.tangled.by_run)
        shapes = [None if x is None else shape_of(x) for x in inputs]
        if None in shapes:
            return inputs
        wrong = unequal(shapes)
        self.unequal += wrong
        if wrong and self.assumed is not None:
            self.assumed += len(wrong)
            return broadcastable(self.bb, inputs, self._variables, lambda _: True)
        if wrong or not (any(map(_is_cut, shapes)) or (self._variables and told_apart(inputs))):
            return inputs
        extents = [relax.ShapeExpr([self._extent(dim) for dim in shape]) for shape in shapes]
        return [
            self.bb.normalize(relax.op.reshape(x, e)) if not is_static(shape) else x
            for x, e, shape in zip(inputs, extents, shapes, strict=True)
        ]

    def _note_contracted(
        self, op_name: str, inputs: list[relax.Expr | None], attrs: dict[str, Any]
    ) -> None:
        shapes, symbols = shapes_of(inputs), self.tangled.of_inputs
        note_paired(op_name, shapes, attrs, self.unequal, symbols)
        for name, count in least_of_data(op_name, shapes, attrs, symbols).items():
            self.least[name] = max(count, self.least.get(name, 0))
        try:
            note_contracted(op_name, inputs, attrs, self.unequal, self._variables.keys())
        except ValueError:
            if self.assumed is None or op_name != "MatMul":
                raise
            self.assumed += 1
            inputs[:] = multipliable(self.bb, inputs, self._variables)

    # ------------------------------------------------------------------ shapes

    def _evaluate(self, node: onnx.NodeProto) -> bool:
        """Note the value of a node on shapes; False where it has none or no symbol is involved."""
        if node.op_type == "Shape":
            values = [self._shape_value(node)]
        elif not self._sizes.joins(node) and not any(n in self._values for n in node.input):
            return False
        else:
            operands = [self._value(name) if name else None for name in node.input]
            if self._sizes.joins(node) and None in operands:
                self._parse_value_proto(node)  # what is emitted here belongs to the node
                operands = self._sizes.known(self.bb, node, operands, self._nodes, self._variables)
                self.tangled.are_sizes(self._sizes.symbols)
                self.tangled.cuts |= self._sizes.of_fillings
            if any(
                name and value is None for name, value in zip(node.input, operands, strict=True)
            ):
                return False
            if node.op_type == "Range":
                return self._range(node, operands)
            values = results_of(node, operands, self.opset, self._extents)
            if None in values:
                self.unequal += wanted_for(node, operands)
        if None in values:
            return False
        self._values |= zip(node.output, values, strict=True)
        return True

    def _shape_value(self, node: onnx.NodeProto) -> ShapeValue | None:
        """The shape of a tensor whose extents are known, or depend on the inputs' symbols."""
        source, value = self._nodes.get(node.input[0]), self._values.get(node.input[0])
        shape = shape_of(source) if isinstance(source, relax.Expr) else None
        shape = shape if value is None else value.elements.shape
        if shape is None:
            if isinstance(source, relax.Expr) and getattr(source.ty, "ndim", 0) < 0:
                raise ValueError("a tensor whose rank is not known; need one rank in all branches")
            return None
        if any(symbol not in self._variables for symbol in _symbols(shape)):
            return None  # an extent that depends on data
        self._extents.update(map(sympy.sympify, shape))
        attrs = {a.name: a.i for a in node.attribute}
        return ShapeValue.of(list(shape[attrs.get("start", 0) : attrs.get("end")]))

    def _value(self, name: str) -> ShapeValue | None:
        if name in self._values:
            return self._values[name]
        expr = self._nodes.get(name)
        if not isinstance(expr, tvm.ir.GenericConst) or np.prod(shape_of(expr)) > MAX_ELEMENTS:
            return None
        return constant_value(array_of(expr))

    def _range(self, node: onnx.NodeProto, operands: Sequence[ShapeValue]) -> bool:
        self._parse_value_proto(node)  # what is emitted here belongs to the node
        numbers = counted(self.bb, operands, self._extent, self._tensor, self._extents)
        if numbers is None:
            self.unequal += no_shorter(operands)
        else:
            self._nodes[node.output[0]] = numbers
        return numbers is not None

    def _provide(self, node: onnx.NodeProto) -> None:
        """Give a node that TVM converts the values that it reads, as shapes or as tensors."""
        for place, name in enumerate(node.input):
            value = self._values.get(name)
            if value is None:
                continue
            self._parse_value_proto(node)  # what is emitted here belongs to the node
            if place in SHAPE_INPUTS.get(node.op_type, ()) and value.elements.ndim == 1:
                self._nodes[name] = relax.ShapeExpr([self._extent(e) for e in value.elements])
            else:
                self._nodes[name] = self._tensor(value)

    def _tensor(self, value: ShapeValue) -> relax.Expr:
        """A tensor of a value; fractions are divided in its dtype."""
        flat = value.elements.ravel().tolist()
        if all(element.is_number for element in flat):
            numbers = [number(element, value.dtype) for element in flat]
            array = np.array(numbers, value.dtype).reshape(value.elements.shape)
            return relax.const(array, value.dtype)
        above, below = zip(*(sympy.fraction(sympy.together(e)) for e in flat), strict=True)
        tensor = self._integers(above, value)
        if any(divisor != 1 for divisor in below):
            tensor = relax.op.divide(tensor, self._integers(below, value))
        return self.bb.normalize(tensor)

    def _integers(self, elements: Sequence[sympy.Expr], value: ShapeValue) -> relax.Expr:
        extents = relax.ShapeExpr([self._extent(sympy.expand(e)) for e in elements])
        tensor = self.bb.normalize(relax.op.shape_to_tensor(extents))
        if value.elements.ndim != 1:
            tensor = relax.op.reshape(tensor, value.elements.shape)
        return relax.op.astype(tensor, value.dtype) if value.dtype != "int64" else tensor

    def _extent(self, dim: Dim) -> int | tvm.ir.Expr:
        return relax_extent(dim, self._variables)

    # ------------------------------------------------------------------ images

    def _slice(
        self, inputs: Sequence[relax.Expr | None], attrs: dict[str, Any]
    ) -> relax.Expr | None:
        taken = sliced(self.bb, inputs, attrs, self._extent, self.least)
        if taken is None:
            taken = cut_by_values(self.bb, inputs, self._variables, self.tangled.cuts)
        return taken

    def _expand(self, inputs: Sequence[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
        """Broadcasting of, or to, symbolic extents; None where TVM's converter will do.

        Raises ``ValueError`` where the sizes at the call decide whether an axis is repeated.
        """
        shape, wanted = shape_of(inputs[0]), dims_of(inputs[1])
        if shape is None or wanted is None or is_static([*shape, *wanted]):
            return None
        late = self.tangled.has_sizes(wanted)
        return expanded(self.bb, inputs[0], wanted, self._extent, self.unequal, late)

    def _squeeze(
        self, inputs: Sequence[relax.Expr | None], attrs: dict[str, Any]
    ) -> relax.Expr | None:
        """A squeeze of axes whose symbolic extents must turn out to be 1; None for others.

        Without axes those go that are always 1 long; others must be longer, or they would go too.
        """
        source, given = (*inputs, None)[:2]
        shape = shape_of(source)
        axes = attrs.get("axes") if given is None else dims_of(given)
        if shape is None or is_static(shape):
            return None
        if not axes:
            return squeezed(source, self.least)
        places = {int(axis) % len(shape) for axis in axes}
        if all(isinstance(shape[place], int) for place in places):
            return None
        return squeezed_to_one(self.bb, source, places, self._extent, self.unequal)

    def _reshape(self, inputs: Sequence[relax.Expr], attrs: dict[str, Any]) -> relax.Expr | None:
        """A reshape of, or to, symbolic extents; None where TVM's converter will do.

        TVM divides for an extent of -1 by what may be 0 at the call. The quotient of what is left
        when common factors are gone needs no division. Nor does TVM look whether there are as many
        elements as before, and reads past the end where there are fewer.
        """
        shape, wanted = shape_of(inputs[0]), dims_of(inputs[1])
        if shape is None or wanted is None or is_static([*shape, *wanted]):
            return None
        if not attrs.get("allowzero"):
            wanted = [shape[i] if e == 0 else e for i, e in enumerate(wanted)]
        if 0 in wanted or wanted.count(-1) > 1:
            return None
        if -1 in wanted:
            place = wanted.index(-1)
            wanted[place] = quotient(product(shape), product(e for e in wanted if e != -1))
        counts = product(shape), product(wanted)
        if not same(*counts):
            # ONNX divides towards 0: what windows of a size that is too small give is one too many.
            plain = [unclamped(extent) for extent in wanted]
            if same(counts[0], product(plain)):
                wanted = plain
            else:
                self.unequal.append(rows_or_elements(shape, wanted))
            require_equal(self.bb, *([self._extent(count)] for count in counts))
        return relax.op.reshape(inputs[0], relax.ShapeExpr([self._extent(e) for e in wanted]))

    def _pad(self, inputs: Sequence[relax.Expr | None], attrs: dict[str, Any]) -> relax.Expr | None:
        """``nn.pad`` with constant widths; what is put around by symbolic widths is joined on.

        None for floats of known extents with widths of 0 and more, TVM's pad of which is known, and
        where it takes away first what widths below 0 say: it does where it mirrors and repeats.
        """
        source, widths, value, axes = (*inputs, None, None, None)[:4]
        shape = shape_of(source)
        mode = attrs.get("mode", b"constant").decode()
        mode = {"constant": mode, "edge": "replicate", "reflect": mode, "wrap": "circular"}.get(
            mode
        )
        followed = self._values.get(self._node.input[1]) if widths is not None else None
        pads = attrs.get("pads") or dims_of(widths)
        if followed is not None:
            pads = [normal(element) for element in followed.elements.ravel()]
        fill = attrs.get("value", 0.0) if value is None else filling(value)
        along = dims_of(axes) if axes is not None else list(range(len(shape or ())))
        if None in (shape, mode, pads, fill, along):
            return None
        by_parts = not is_kernel_float(source, stored=True) or not is_static(pads)
        cuts = is_static(pads) and min(pads, default=0) < 0
        ours = (by_parts and mode == "constant") or (cuts and mode in ("constant", "circular"))
        if is_static([*shape, *pads]) and not ours:
            return None
        sides = {
            int(axis) % len(shape): (pads[place], pads[place + len(along)])
            for place, axis in enumerate(along)
        }
        if mode != "constant" and cuts:  # what is cut off does not come in again
            source = cut(self.bb, source, sides, self._extent)
            sides = {axis: (max(0, a), max(0, b)) for axis, (a, b) in sides.items()}
        if by_parts:  # integers as well: ``nn.pad`` is for floats
            if mode == "constant":
                wide = joined(self.bb, source, sides, fill, self._extent)
            else:
                wide = wrapped(self.bb, source, sides) if mode == "circular" else None
                if wide is None:
                    wide = repeated(self.bb, source, sides, mode, self._extent)
            wide = self._sizes.padded(self.bb, wide, self._variables)
            self.tangled.are_sizes(self._sizes.symbols)
            return wide
        source = cut(self.bb, source, sides, self._extent)
        pairs = [max(0, side) for axis in range(len(shape)) for side in sides.get(axis, (0, 0))]
        return relax.op.nn.pad(source, pairs, mode, fill if mode == "constant" else 0.0)


def _is_cut(shape: Sequence[Dim]) -> bool:
    """Whether an extent is the greater or the lesser of others, which has many forms."""
    return any(isinstance(dim, sympy.Expr) and dim.has(sympy.Max) for dim in shape)


def _symbols(shape: Sequence[Dim]) -> set[sympy.Symbol]:
    return {s for dim in shape if isinstance(dim, sympy.Expr) for s in dim.free_symbols}
