"""Probabilities of classes from those of their pairs, which Relax has no operator for.

    coupling(pairs, classes=3)

is what the operator ``coupling`` of ``codegen_cc.operators`` says. TVM infers its type, and where
no kernel of ours takes it, loops are what TVM compiles.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from byoc.ir.own_operators import of_each_row, register

NAME = "relax.ext.coupling"

#: As in ``coupling.c``: rounds at most, and the error times classes at which they end.
_ROUNDS, _ENOUGH = 100, 0.005
#: Places of the numbers that a row keeps beside its probabilities.
_WHOLE, _ERROR, _STEP, _SCALE, _DONE = range(5)


def coupling(pairs: relax.Expr, classes: int) -> relax.Call:
    """The call; its result is [rows, classes]."""
    attrs = tvm.ir.DictAttrs({"classes": classes})
    return relax.Call(tvm.ir.Op.get(NAME), [pairs], attrs)


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    del builder
    return of_each_row(call, int(call.attrs["classes"]))


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    classes = int(call.attrs["classes"])
    return builder.call_te(_loops, call.args[0], classes, primfunc_name_hint="coupling")


def _loops(x: te.Tensor, classes: int) -> te.Tensor:
    shapes = [[x.shape[0], classes], [classes, classes], [classes], [_DONE + 1]]
    result, *_ = te.extern(
        shapes,
        [x],
        lambda ins, outs: _statement(ins[0], *outs, classes),
        name="coupling",
        dtype=["float32"] * len(shapes),
    )
    return result


def _statement(x: Any, y: Any, q: Any, qy: Any, kept: Any, classes: int) -> tirx.Stmt:
    with IRBuilder() as builder:
        with T.serial(0, x.shape[0]) as row:
            _form(x, q, row, classes)
            with T.serial(0, classes) as i:
                T.buffer_store(y, _single(1 / classes), [row, i])
            T.buffer_store(kept, _single(0), [_DONE])
            with T.serial(0, _ROUNDS):
                with T.If(kept[_DONE] == _single(0)), T.Then():
                    _measure(y, q, qy, kept, row, classes)
                with T.If(kept[_DONE] == _single(0)), T.Then(), T.serial(0, classes) as i:
                    _step(y, q, qy, kept, (row, i), classes)
        return builder.get()


def _form(x: Any, q: Any, row: Any, classes: int) -> None:
    """The quadratic form that is made least."""
    with T.serial(0, classes) as i:
        T.buffer_store(q, _single(0), [i, i])
    with T.serial(0, classes) as i, T.serial(0, classes) as j, T.If(i < j), T.Then():
        # Pairs before those of i, and before j among these.
        first = x[row, i * (2 * classes - i - 1) // 2 + j - i - 1]
        second = _single(1) - first
        T.buffer_store(q, q[i, i] + second * second, [i, i])
        T.buffer_store(q, q[j, j] + first * first, [j, j])
        T.buffer_store(q, -second * first, [i, j])
        T.buffer_store(q, -second * first, [j, i])


def _measure(y: Any, q: Any, qy: Any, kept: Any, row: Any, classes: int) -> None:
    """The products, and whether the error is small enough."""
    for place in (_WHOLE, _ERROR):
        T.buffer_store(kept, _single(0), [place])
    with T.serial(0, classes) as i:
        T.buffer_store(qy, _single(0), [i])
        with T.serial(0, classes) as j:
            T.buffer_store(qy, qy[i] + q[i, j] * y[row, j], [i])
        T.buffer_store(kept, kept[_WHOLE] + y[row, i] * qy[i], [_WHOLE])
    with T.serial(0, classes) as i:
        error = tirx.abs(qy[i] - kept[_WHOLE])
        T.buffer_store(kept, tirx.Select(error > kept[_ERROR], error, kept[_ERROR]), [_ERROR])
    small = kept[_ERROR] < _single(_ENOUGH / classes)
    T.buffer_store(kept, tirx.Select(small, _single(1), _single(0)), [_DONE])


def _step(y: Any, q: Any, qy: Any, kept: Any, place: tuple[Any, Any], classes: int) -> None:
    """Solve for one class, and make the sum 1 again."""
    row, i = place
    T.buffer_store(kept, (kept[_WHOLE] - qy[i]) / q[i, i], [_STEP])
    step, scale = kept[_STEP], kept[_SCALE]
    T.buffer_store(kept, _single(1) + step, [_SCALE])
    T.buffer_store(y, y[row, i] + step, [row, i])
    more = step * (step * q[i, i] + _single(2) * qy[i])
    T.buffer_store(kept, (kept[_WHOLE] + more) / scale / scale, [_WHOLE])
    with T.serial(0, classes) as j:
        T.buffer_store(qy, (qy[j] + step * q[i, j]) / scale, [j])
        T.buffer_store(y, y[row, j] / scale, [row, j])


def _single(number: float) -> tirx.Expr:
    return tirx.const(number, "float32")


register(NAME, _infer, _legalize)
