"""Rows of what turns floating-point numbers into integers of 8 bits, and back."""

from __future__ import annotations

from tvm import relax

from byoc.patterns.row import Candidate, Row, candidate, positive_axis


def build_quantise(call: relax.Call) -> Candidate:
    """A scale and a zero point of one element are the whole tensor's, whatever the axis."""
    data = call.args[0]
    axis = positive_axis(call.attrs.axis, data) if data.ty.ndim > 0 else 0
    operands = zip(("input", "scale", "zero_point"), call.args, strict=True)
    return candidate(call.op.name.removeprefix("relax."), call, operands, {"axis": axis})


QUANTISATION_ROWS = tuple(
    Row(f"relax.{name}", build_quantise, name) for name in ("quantize", "dequantize")
)
