"""One side of a diagonal, which a size may name."""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.frontends.torch.values import Converter, Graph, Value

op = relax.op


def _side(lower: bool) -> Converter:
    """The elements on one side; the rest is 0."""
    apply = op.tril if lower else op.triu

    def convert(g: Graph, x: Value, diagonal: Any = 0) -> relax.Expr:
        tensor = g.tensor(x)
        if isinstance(diagonal, int):
            return apply(tensor, diagonal)
        height, width = tensor.ty.shape.values[-2:]
        rows, columns = (g.emit(op.arange(0, extent, 1, "int64")) for extent in (height, width))
        edge = op.add(op.reshape(rows, [height, 1]), g.tensor(diagonal, "int64"))
        compare = op.less_equal if lower else op.greater_equal
        return op.where(g.emit(compare(columns, g.emit(edge))), tensor, g.tensor(0, g.dtype))

    return convert


TRIANGLES = {"tril": _side(True), "triu": _side(False)}
