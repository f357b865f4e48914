"""The angle of a point, by functions that kernels have."""

from __future__ import annotations

from math import inf, nan, pi

from tvm import relax

from byoc.frontends.torch.values import Graph, Value

op = relax.op


def _is_negative(g: Graph, x: relax.Expr) -> relax.Expr:
    """Whether a number has the sign of those below 0, as -0 has."""
    inverse = op.divide(g.tensor(1.0), x)
    return op.logical_or(op.less(x, g.tensor(0.0)), op.equal(inverse, g.tensor(-inf)))


def angle_of(g: Graph, y: relax.Expr, x: relax.Expr) -> relax.Expr:
    """The angle of ``(x, y)``, from -pi to pi: the arc tangent of the less by the greater one, in
    its eighth of the circle."""
    across, up = g.emit(op.abs(x)), g.emit(op.abs(y))
    greater, less = g.emit(op.maximum(across, up)), g.emit(op.minimum(across, up))
    at_zero = g.emit(op.equal(greater, g.tensor(0.0)))
    share = op.divide(less, op.where(at_zero, g.tensor(1.0), greater))
    share = op.where(op.equal(less, g.tensor(inf)), g.tensor(1.0), share)
    made = g.emit(op.atan(g.emit(share)))
    steep = op.greater(up, across)
    made = g.emit(op.where(steep, op.subtract(g.tensor(pi / 2), made), made))
    made = g.emit(op.where(_is_negative(g, x), op.subtract(g.tensor(pi), made), made))
    made = g.emit(op.where(_is_negative(g, y), op.negative(made), made))
    return op.where(op.logical_or(op.isnan(x), op.isnan(y)), g.tensor(nan), made)


def arc_tangent(g: Graph, x: Value, other: Value) -> relax.Expr:
    """The angle of a point, of integers as floats; ``x`` is what is counted upwards."""
    y, across = g.tensor(x, g.dtype), g.tensor(other, g.dtype)
    return op.atan2(y, across) if g.dtype != "float32" else angle_of(g, y, across)
