"""Rows of operators on or with indices."""

from __future__ import annotations

from tvm import relax, tirx

from byoc.canonicalise.byte_functions import lookup_table
from byoc.ir.dataflow import describe, op_name
from byoc.patterns.row import Candidate, Row, Unfit, candidate, positive_axis
from codegen_cc.dim import at_most, is_static
from codegen_cc.region.relax_dims import relax_dims

ARGREDUCE = {"relax.argmax": "argmax", "relax.argmin": "argmin"}

#: Operators whose names the nodes have as well.
INDEXED = ("gather_elements", "gather_nd", "scatter_elements", "scatter_nd")


def build_take(call: relax.Call) -> Candidate:
    """Indices of any rank along one axis, or bytes in a table of all their values."""
    if lookup_table(call) is not None:
        return candidate("lookup", call, [("input", call.args[1]), ("table", call.args[0])])
    if call.attrs.mode == "nan":
        raise Unfit("mode nan; need one without NaN for indices outside of the axis")
    axis = positive_axis(call.attrs.axis, call.args[0])
    pairs = zip(("input", "indices"), call.args, strict=True)
    return candidate("take", call, pairs, {"axis": axis})


def build_indexed(call: relax.Call) -> Candidate:
    """Elements or runs that indices point at, read or written."""
    name = call.op.name.removeprefix("relax.")
    attrs: dict[str, object] = {}
    if name.endswith("elements"):
        attrs["axis"] = positive_axis(call.attrs.axis, call.args[0])
    elif name == "gather_nd":
        attrs["batch_dims"] = int(call.attrs.batch_dims)
    if len(call.args) == 3:
        attrs["reduction"] = str(call.attrs.reduction)
    roles = ("input", "indices") if len(call.args) == 2 else ("data", "indices", "updates")
    return candidate(name, call, zip(roles, call.args, strict=True), attrs)


def build_argreduce(call: relax.Call) -> Candidate:
    """The position of the first extreme value along one axis."""
    attrs = {
        "kind": ARGREDUCE[call.op.name],
        "axis": positive_axis(call.attrs.axis, call.args[0]),
        "keepdims": bool(call.attrs.keepdims),
    }
    return candidate("argreduce", call, [("input", call.args[0])], attrs)


def build_running(call: relax.Call, reverse: bool = False) -> Candidate:
    """Running sums or products along one axis."""
    attrs = {
        "axis": positive_axis(call.attrs.axis, call.args[0]),
        "exclusive": bool(call.attrs.exclusive),
        "reverse": reverse,
    }
    return candidate(op_name(call).removeprefix("relax."), call, [("input", call.args[0])], attrs)


def build_topk(call: relax.Call) -> Candidate:
    """The greatest or least elements along one axis, or where they are, or both.

    How many there are is the extent of the results: as TVM has it, all for k below 1 and no more
    than there are. Whether an open axis is as long each call looks (``check_extents``).
    """
    axis = positive_axis(call.attrs.axis, call.args[0])
    attrs = {
        "axis": axis,
        "largest": bool(call.attrs.largest),
        "ret_type": str(call.attrs.ret_type),
    }
    found = candidate("topk", call, [("input", call.args[0])], attrs)
    extent, k = (part.shape[axis] for part in (found.node.operands[0], found.node))
    if is_static([extent]) and not at_most(k, extent):
        raise Unfit(f"axis {axis} of extent {extent}, k {k}; need an extent of k or more")
    return found


def build_arange(call: relax.Call) -> Candidate:
    """The numbers from 0 on."""
    start, _, step = call.args
    numbers = [int(e) if isinstance(e, tirx.IntImm) else None for e in (start, step)]
    if numbers != [0, 1]:
        raise Unfit(f"start {start}, step {step}; need 0 and 1")
    return candidate("arange", call, [])


def build_sizes(call: relax.Call) -> Candidate:
    """The extents of a shape that is written in the call."""
    shape = call.args[0]
    if not isinstance(shape, relax.ShapeExpr):
        raise Unfit(f"shape {describe(shape)}; need its extents")
    try:
        sizes = list(relax_dims(shape.values))
    except ValueError as err:
        raise Unfit(f"{err}; need numbers or arithmetic on symbols") from err
    return candidate("sizes", call, [], {"sizes": sizes})


INDEXING_ROWS = (
    Row("relax.arange", build_arange, "arange"),
    Row("relax.shape_to_tensor", build_sizes, "sizes"),
    Row("relax.take", build_take, "take"),
    *(Row(f"relax.{name}", build_indexed, name) for name in INDEXED),
    *(Row(name, build_argreduce, "argreduce") for name in ARGREDUCE),
    *(Row(f"relax.{op}", build_running, op) for op in ("cumsum", "cumprod")),
    Row("relax.topk", build_topk, "topk"),
)
