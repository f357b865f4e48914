"""An ensemble of decision trees, which Relax has no operator for.

    trees(operands, kind="sum", outputs=3)

has the operands, in their order, and the kinds of the operator ``trees`` of
``codegen_cc.operators``. TVM infers its type, and where no kernel of ours takes it, loops are what
TVM compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from byoc.ir.own_operators import of_each_row, register
from codegen_cc.operators.trees import ABSENT, EQUAL, ROW

NAME = "relax.ext.trees"


def trees(operands: Sequence[relax.Expr], kind: str, outputs: int) -> relax.Call:
    """The call; its result is [rows, outputs]."""
    attrs = tvm.ir.DictAttrs({"kind": kind, "outputs": outputs})
    return relax.Call(tvm.ir.Op.get(NAME), list(operands), attrs)


def _infer(call: relax.Call, builder: relax.BlockBuilder) -> relax.Type:
    del builder
    return of_each_row(call, int(call.attrs["outputs"]))


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    kind, outputs = str(call.attrs["kind"]), int(call.attrs["outputs"])
    return builder.call_te(
        lambda *operands: _loops(operands, kind, outputs), *call.args, primfunc_name_hint="trees"
    )


def _loops(operands: Sequence[te.Tensor], kind: str, outputs: int) -> te.Tensor:
    """Each row from each root to its leaf; ``place`` is where it is."""
    shapes = [[operands[0].shape[0], outputs], [1]]
    result, _ = te.extern(
        shapes,
        list(operands),
        lambda ins, outs: _statement(ins, outs, kind),
        name="trees",
        dtype=["float32", "int32"],
    )
    return result


def _statement(ins: Any, outs: Any, kind: str) -> tirx.Stmt:
    x, thresholds, features, children, tags, roots, _, values, targets = ins
    y, place = outs
    width = values.shape[1]
    with IRBuilder() as builder:
        with T.seq_scope(), T.serial(0, x.shape[0]) as row:
            with T.serial(0, y.shape[1]) as column:
                T.buffer_store(y, tirx.const(0, "float32"), [row, column])
            with T.serial(0, roots.shape[0]) as tree:
                T.buffer_store(place, roots[tree], [0])
                with T.While(children[place[0]] > place[0]):
                    at = place[0]
                    value = x[row, features[at]]
                    tag, child, threshold = tags[at], children[at], thresholds[at]
                    below = tirx.all(value < threshold, (tag & EQUAL) != 0)
                    met = tirx.all(value <= threshold, tirx.Not(below))
                    first = tirx.any(met, tirx.all(tirx.isnan(value), (tag & ABSENT) != 0))
                    T.buffer_store(place, tirx.Select(first, child, child + 1), [0])
                leaf = tirx.indexdiv(tags[place[0]], ROW)
                with T.serial(0, width) as column:
                    index = [row, targets[leaf] + column]
                    given, had = values[leaf, column], y[row, targets[leaf] + column]
                    T.buffer_store(y, _joined(kind, tree, had, given), index)
        return builder.get()


def _joined(kind: str, tree: tirx.Expr, had: tirx.Expr, given: tirx.Expr) -> tirx.Expr:
    if kind == "sum":
        return had + given
    extreme = tirx.min if kind == "least" else tirx.max
    return tirx.Select(tree == 0, given, extreme(had, given))


register(NAME, _infer, _legalize)
