"""Rows of reductions and of what is built from them: softmax and normalisation."""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.ir.dataflow import array_of, describe, shape_of
from byoc.patterns.row import Candidate, Row, Unfit, candidate, positive_axes, positive_axis

REDUCTIONS = {
    "relax.sum": "sum",
    "relax.mean": "mean",
    "relax.min": "min",
    "relax.max": "max",
    "relax.prod": "prod",
}


def build_reduce(call: relax.Call) -> Candidate:
    """No axes in the call mean all of them."""
    return _reduction(call, REDUCTIONS[call.op.name], call.args[0])


def build_reduce_squares(call: relax.Call, x: relax.Expr) -> Candidate:
    """A sum or mean of ``x``'s squares."""
    return _reduction(call, f"{REDUCTIONS[call.op.name]}_squares", x)


def _reduction(call: relax.Call, kind: str, x: relax.Expr) -> Candidate:
    rank = x.ty.ndim
    axes = range(rank) if call.attrs.axis is None else call.attrs.axis
    attrs = {
        "kind": kind,
        "axes": positive_axes(axes, x) if rank > 0 else [],
        "keepdims": bool(call.attrs.keepdims),
    }
    return candidate("reduce", call, [("input", x)], attrs)


def build_softmax(call: relax.Call) -> Candidate:
    """Softmax or its logarithm along one axis."""
    axis = positive_axis(call.attrs.axis, call.args[0])
    attrs = {"axis": axis, "log": call.op.name == "relax.nn.log_softmax"}
    return candidate("softmax", call, [("input", call.args[0])], attrs)


def build_layer_norm(call: relax.Call) -> Candidate:
    """Scale and offset must be used, or have their neutral value."""
    image, gamma, beta = call.args
    _used(call)
    axes = _last_axes(call)
    if shape_of(gamma) != shape_of(beta):
        raise Unfit(f"gamma {shape_of(gamma)} and beta {shape_of(beta)}; need equal shapes")
    return candidate(
        "layer_norm",
        call,
        [("input", image), ("gamma", gamma), ("beta", beta)],
        {"axes": axes, "epsilon": float(call.attrs.epsilon)},
    )


def _used(call: relax.Call) -> None:
    """Raise ``Unfit`` where a norm leaves out a scale or an offset that is not neutral."""
    for used, values, neutral, name in (
        (call.attrs.scale, call.args[1], 1.0, "scale"),
        (call.attrs.center, call.args[2], 0.0, "center"),
    ):
        known = array_of(values)
        if not used and (known is None or not np.all(known == neutral)):
            raise Unfit(f"{name}=False with values; need {name}=True")


def build_rms_norm(call: relax.Call) -> Candidate:
    """Over the last axes, with a scale of their shape."""
    attrs = {"axes": _last_axes(call), "epsilon": float(call.attrs.epsilon)}
    return candidate("rms_norm", call, zip(("input", "gamma"), call.args, strict=True), attrs)


def build_group_norm(call: relax.Call) -> Candidate:
    """Channels along axis 1, all axes behind; an instance norm has a group for each channel."""
    shape, attrs = shape_of(call.args[0]), call.attrs
    if shape is None or len(shape) < 2:
        raise Unfit(f"input is {describe(call.args[0])}; need a known shape of two axes at least")
    rank = len(shape)
    axis, axes = int(attrs.channel_axis) % rank, positive_axes(attrs.axes, call.args[0])
    if axis != 1 or axes != list(range(2, rank)):
        raise Unfit(f"channel_axis {axis}, axes {axes} of rank {rank}; need 1, and all later ones")
    groups = int(attrs.num_groups) if call.op.name == "relax.nn.group_norm" else shape[1]
    if not isinstance(groups, int):
        raise Unfit(f"input is {describe(call.args[0])}; need fixed channels")
    _used(call)
    operands = zip(("input", "gamma", "beta"), call.args, strict=True)
    return candidate(
        "group_norm", call, operands, {"groups": groups, "epsilon": float(attrs.epsilon)}
    )


def _last_axes(call: relax.Call) -> list[int]:
    """The axes of a normalisation, which must be the last ones."""
    rank = call.args[0].ty.ndim
    axes = positive_axes(call.attrs.axes, call.args[0])
    if axes != list(range(rank - len(axes), rank)):
        raise Unfit(f"axes {axes} of rank {rank}; need the last ones")
    return axes


REDUCTION_ROWS = (
    *(Row(name, build_reduce, "reduce") for name in REDUCTIONS),
    Row("relax.nn.softmax", build_softmax, "softmax"),
    Row("relax.nn.log_softmax", build_softmax, "softmax"),
    Row("relax.nn.layer_norm", build_layer_norm, "layer_norm"),
    Row("relax.nn.rms_norm", build_rms_norm, "rms_norm"),
    Row("relax.nn.group_norm", build_group_norm, "group_norm"),
    Row("relax.nn.instance_norm", build_group_norm, "group_norm"),
)
