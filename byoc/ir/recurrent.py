"""A layer of a recurrent network, which Relax has no operator for.

    recurrent({"input": x, "weight": w, "recurrence": r, ...}, kind="lstm", ...)

has the operands, by role, and the attributes of the operator ``recurrent`` of
``codegen_cc.operators``, and gives a tuple of its results. TVM infers its type, and where no kernel
of ours takes it, ``recurrent_loops`` is what TVM compiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from byoc.ir.own_operators import register
from byoc.ir.recurrent_loops import LayerForm, emit_loops
from codegen_cc.operators.recurrent import LSTM, RESULTS

NAME = "relax.ext.recurrent"


def recurrent(operands: Mapping[str, relax.Expr], **attributes: Any) -> relax.Call:
    """The call; the order of ``operands`` is that of its arguments."""
    attrs = tvm.ir.DictAttrs({"roles": list(operands), **attributes})
    return relax.Call(tvm.ir.Op.get(NAME), list(operands.values()), attrs)


def operands_of_layer(call: relax.Call) -> dict[str, relax.Expr]:
    """The operands of a call by role."""
    return dict(zip(map(str, call.attrs["roles"]), call.args, strict=True))


def attributes_of_layer(call: relax.Call) -> dict[str, Any]:
    """The attributes of a call, in Python's own types."""
    return {str(name): _plain(value) for name, value in call.attrs.items() if str(name) != "roles"}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return value.value
    return [_plain(item) for item in value]


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    """Results: [steps, directions, batch, units], or batch first, and states of every direction."""
    del builder
    operands, attrs = operands_of_layer(call), attributes_of_layer(call)
    x, r = operands["input"].ty, operands["recurrence"].ty
    count = RESULTS if attrs["kind"] == LSTM else RESULTS[:2]
    if not all(isinstance(ty.shape, relax.ShapeExpr) for ty in (x, r)):
        ranks = [4, *[3] * (len(count) - 1)]
        return relax.TupleType([relax.TensorType(dtype=x.dtype, ndim=rank) for rank in ranks])
    first, second, _ = x.shape.values
    directions, _, units = r.shape.values
    if attrs["batch_first"]:
        shapes = [[first, second, directions, units], *[[first, directions, units]] * 2]
    else:
        shapes = [[first, directions, second, units], *[[directions, second, units]] * 2]
    return relax.TupleType([relax.TensorType(shape, x.dtype) for shape in shapes[: len(count)]])


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    form = LayerForm(tuple(operands_of_layer(call)), attributes_of_layer(call))
    loops = builder.emit(
        builder.call_te(
            lambda *operands: emit_loops(operands, form),
            *call.args,
            primfunc_name_hint="recurrent_layer",
        )
    )
    return relax.Tuple([relax.TupleGetItem(loops, i) for i in range(len(call.ty.fields))])


register(NAME, _infer, _legalize)
