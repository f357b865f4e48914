"""The row of Fourier transforms."""

from __future__ import annotations

from tvm import relax, tirx

from byoc.ir.dataflow import shape_of
from byoc.ir.fourier import NAME, form_of
from byoc.patterns.row import Candidate, Row, Unfit, candidate
from codegen_cc.operators.fourier import HALF
from codegen_cc.region.relax_dims import relax_dims


def build_fourier(call: relax.Call) -> Candidate:
    """A transform as the call says it; its length is a number, or that of the whole axis."""
    form, (length,) = form_of(call), call.args[1].values
    whole = call if form["kind"] == HALF else call.args[0]
    if isinstance(length, tirx.IntImm):
        form["length"] = int(length)
    elif relax_dims([length]) == shape_of(whole)[form["axis"] : form["axis"] + 1]:
        form["length"] = 0
    else:
        raise Unfit(f"a transform of {length} elements; need a number, or all of the axis")
    operands = zip(("input", "window"), (call.args[0], *call.args[2:]), strict=False)
    return candidate("fourier", call, operands, form)


FOURIER_ROWS = (Row(NAME, build_fourier, "fourier"),)
