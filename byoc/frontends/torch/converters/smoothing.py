"""Images that are reduced with as many taps as they need not to skip pixels, of open sizes."""

from __future__ import annotations

from typing import Any

from tvm import relax

from byoc.frontends.torch.sizes import size_tensor
from byoc.frontends.torch.values import Graph

op = relax.op

#: The weight of pixels at a distance below 1 and below 2 (Keys, 1981, with a = -1/2), by falling
#: powers of it. Each is 0 where it ends.
_NEAR, _FAR = (1.5, -2.5, 0.0, 1.0), (-0.5, 2.5, -4.0, 2.0)


def smoothing_matrix(
    g: Graph, size: Any, wanted: Any, scale: float | None, mode: str, align_corners: bool
) -> relax.Expr:
    """What an axis of ``size`` pixels is multiplied by for ``wanted`` ones: [wanted, size].

    Weights fall with the distance of a pixel from the centre of the other one, counted in pixels of
    whichever are larger; each row's sum is 1. ``mode``: bilinear or bicubic.
    """
    emit, dtype = g.emit, "float64" if g.dtype == "float64" else "float32"

    def number(value: float) -> relax.Expr:
        return g.tensor(value, dtype)

    def centres(extent: Any, shape: list[Any]) -> relax.Expr:
        at = emit(op.astype(emit(op.arange(0, extent, 1, "int64")), dtype))
        return emit(op.reshape(emit(op.add(at, number(0.5))), shape))

    def curve(powers: tuple[float, ...], x: relax.Expr) -> relax.Expr:
        made = number(powers[0])
        for power in powers[1:]:
            made = emit(op.add(emit(op.multiply(made, x)), number(power)))
        return made

    step = _step(g, size, wanted, scale, align_corners, dtype)
    reach = emit(op.maximum(step, number(1.0)))
    there = emit(op.multiply(centres(wanted, [wanted, 1]), step))
    apart = emit(op.abs(emit(op.subtract(centres(size, [1, size]), there))))
    distance = emit(op.divide(apart, reach))
    near = emit(op.minimum(distance, number(1.0)))
    if mode == "bilinear":
        weights = emit(op.subtract(number(1.0), near))
    else:
        far = emit(op.minimum(emit(op.maximum(distance, number(1.0))), number(2.0)))
        weights = emit(op.add(curve(_NEAR, near), curve(_FAR, far)))
    shares = emit(op.divide(weights, emit(op.sum(weights, [1], keepdims=True))))
    return shares if g.dtype == dtype else emit(op.astype(shares, g.dtype))


def _step(
    g: Graph, size: Any, wanted: Any, scale: float | None, align_corners: bool, dtype: str
) -> relax.Expr:
    """How many pixels of the image lie between two of the result."""
    emit, one = g.emit, g.tensor(1.0, dtype)
    before, after = (size_tensor(g.builder, extent, dtype) for extent in (size, wanted))
    if align_corners:
        gaps = emit(op.subtract(after, one))
        step = emit(op.divide(emit(op.subtract(before, one)), emit(op.maximum(gaps, one))))
        return emit(op.multiply(step, emit(op.minimum(gaps, one))))  # 0 for a single pixel
    if scale is not None:
        return g.tensor(1.0 / scale, dtype)
    return emit(op.divide(before, after))
