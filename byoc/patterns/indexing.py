"""Rows of operators on or with indices."""

from __future__ import annotations

from tvm import relax

from ..dataflow import dtype_of, shape_of
from .row import ANY, INDICES, Candidate, Row, Unfit, candidate, tensor

ARGREDUCE = {"relax.argmax": "argmax", "relax.argmin": "argmin"}


def build_take(call: relax.Call) -> Candidate:
    """Indices of any rank along one axis."""
    source, indices = call.args
    tensor(indices, "indices", INDICES)
    shape = shape_of(source)
    if shape is None or call.attrs.axis is None:
        raise Unfit("axis None; need a number")
    pairs = (("input", source), ("indices", indices))
    result = (dtype_of(source),)
    return candidate("take", call, pairs, {"axis": int(call.attrs.axis) % len(shape)}, ANY, result)


def build_argreduce(call: relax.Call) -> Candidate:
    """The position of the first extreme value along one axis."""
    if call.attrs.axis is None:
        raise Unfit("axis None; need a number")
    attrs = {
        "kind": ARGREDUCE[call.op.name],
        "axis": int(call.attrs.axis) % call.args[0].ty.ndim,
        "keepdims": bool(call.attrs.keepdims),
    }
    return candidate("argreduce", call, [("input", call.args[0])], attrs, result=("int64",))


def build_cumsum(call: relax.Call, reverse: bool = False) -> Candidate:
    """Running sums along one axis."""
    if call.attrs.axis is None:
        raise Unfit("axis None; need a number")
    attrs = {
        "axis": int(call.attrs.axis) % call.args[0].ty.ndim,
        "exclusive": bool(call.attrs.exclusive),
        "reverse": reverse,
    }
    return candidate("cumsum", call, [("input", call.args[0])], attrs)


INDEXING_ROWS = (
    Row("relax.take", build_take),
    *(Row(name, build_argreduce) for name in ARGREDUCE),
    Row("relax.cumsum", build_cumsum),
)
