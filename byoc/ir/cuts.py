"""Where numbers lie among the cuts of their column, which Relax has no operator for.

TVM infers its type, and where no kernel of ours takes it, loops are what TVM compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from byoc.ir.own_operators import register

NAME = "relax.ext.cuts"


def cuts(operands: Sequence[relax.Expr]) -> relax.Call:
    """Where numbers lie among the cuts of their column, as the operator ``cuts`` says it."""
    return relax.Call(tvm.ir.Op.get(NAME), list(operands))


def _infer_cuts(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    del builder
    x = call.args[0].ty
    if not isinstance(x.shape, relax.ShapeExpr):
        return relax.TensorType(dtype="float32", ndim=2)
    return relax.TensorType(list(x.shape.values), "float32")


def _legalize_cuts(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.call_te(_cut_loops, *call.args, primfunc_name_hint="cuts")


def _cut_loops(x: te.Tensor, cut: te.Tensor, first: te.Tensor) -> te.Tensor:
    """Each number beside all cuts of its column."""
    return te.extern(
        [list(x.shape)],
        [x, cut, first],
        lambda ins, outs: _cut_statement(*ins, outs[0]),
        name="cuts",
        dtype=["float32"],
    )


def _cut_statement(x: Any, cut: Any, first: Any, y: Any) -> tirx.Stmt:
    two, one = tirx.const(2, "float32"), tirx.const(1, "float32")
    with IRBuilder() as builder:
        with T.serial(0, x.shape[0]) as row, T.serial(0, x.shape[1]) as column:
            value = x[row, column]
            start = tirx.Select(tirx.isnan(value), tirx.Cast("float32", value), -one)
            T.buffer_store(y, start, [row, column])
            with T.serial(0, first[column + 1] - first[column]) as number:
                limit, had = cut[first[column] + number], y[row, column]
                moved = tirx.Select(value == limit, had + one, had)
                T.buffer_store(y, tirx.Select(value > limit, had + two, moved), [row, column])
        return builder.get()


register(NAME, _infer_cuts, _legalize_cuts)
