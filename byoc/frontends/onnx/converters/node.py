"""A node to convert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from byoc.ir.dataflow import array_of, shape_of
from codegen_cc.dim import Dim


@dataclass
class Node:
    """A node to convert: ``tvm()`` does it TVM's way, with ``inputs`` and ``attrs`` as they are.

    ``part(operator, inputs, attrs, opset)`` converts another operator of ONNX's domain on the way,
    with all checks of a node.
    """

    bb: relax.BlockBuilder
    operator: str
    inputs: onnx_input
    attrs: dict[str, Any]
    opset: int
    tvm: Callable[[], relax.Expr]
    part: Callable[[str, Sequence[relax.Expr | None], dict[str, Any], int], relax.Expr]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.attrs["tvm_custom"]["num_outputs"]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """An expression with a type."""
        return self.bb.normalize(expr)

    def shape(self, place: int = 0) -> tuple[Dim, ...] | None:
        """The shape of an input; None where it is not known."""
        return shape_of(self.inputs[place])

    def dtype(self, place: int = 0) -> str:
        """The dtype of an input."""
        return str(self.inputs[place].ty.dtype)

    def constant(self, place: int) -> np.ndarray | None:
        """The value of an input; None where it is computed or left out."""
        expr = self.inputs[place]
        return array_of(expr) if isinstance(expr, tvm.ir.GenericConst) else None


def is_float(dtype: str) -> bool:
    """Whether a dtype has fractions."""
    return dtype.startswith(("float", "bfloat"))


def in_float32(node: Node) -> relax.Expr:
    """What TVM makes of the first input as float32, in the input's own dtype of at most 32 bits."""
    dtype = node.dtype()
    if dtype == "float32":
        return node.tvm()
    node.inputs[0] = node.emit(relax.op.astype(node.inputs[0], "float32"))
    return relax.op.astype(node.emit(node.tvm()), dtype)
