"""What an idiom is: one unary function in one operator or in several."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from byoc.ir.dataflow import dtype_of
from byoc.patterns.row import Candidate, tensor
from codegen_cc import dtypes
from codegen_cc.node import Node


def rounded(value: float, expr: relax.Expr) -> float:
    """A number as an element of a tensor holds it; as it is where those are integers."""
    dtype = dtypes.of(dtype_of(expr))
    return float(dtype.numpy.type(value)) if dtype.kind == "float" else float(value)


@dataclass(frozen=True)
class Idiom:
    """One unary function: its parameters, the tensor that it reads, and its bindings in order."""

    kind: str
    alpha: float
    beta: float
    source: relax.Expr
    bindings: tuple[relax.Var, ...]

    @property
    def result(self) -> relax.Var:
        """The variable that holds the function's value."""
        return self.bindings[-1]

    def candidate(self) -> Candidate:
        """The node of the function on its own. Raises ``Unfit`` where the shape is not known."""
        operand = tensor(self.source, "input")
        attrs = {"kind": self.kind, "alpha": self.alpha, "beta": self.beta}
        node = Node("unary", (operand,), operand.shape, operand.dtype, attrs)
        return Candidate(node, (self.source,))
