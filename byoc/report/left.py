"""What stays with TVM, call by call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from byoc.ir.custom import NAME as CUSTOM
from byoc.ir.custom import record_of
from byoc.ir.dataflow import describe, dtype_of, op_name, shape_of
from byoc.ir.origin import origin_of
from byoc.patterns.unmatched import has_pattern, reason_of, tensors_of
from codegen_cc.dim import at_unit, product

IN_BRANCH = "a branch; need straight-line code"
IN_FUNCTION = "a local function; need a function of the module"

#: Stands between the names of nodes that became one operator.
NAMES = " + "


@dataclass(frozen=True)
class Left:
    """One call that stays with TVM: its node, operator, operand and result shapes, reason.

    ``name`` is the ONNX node's name, or the variable's in a module that did not come from ONNX.
    """

    name: str
    op: str
    shapes: str
    reason: str
    macs: int = 0
    #: Elements of the result, each symbol 1, and the dtype that TVM computes in.
    elements: int = 0
    dtype: str = ""


def left_of(func: relax.Function, reasons: Mapping[relax.Var, str]) -> Iterator[Left]:
    """The operators that a function calls itself, in order."""
    for block in func.body.blocks:
        for binding in block.bindings:
            yield from left_of_binding(binding, isinstance(block, relax.DataflowBlock), reasons)


def left_of_binding(
    binding: relax.Binding, straight: bool, reasons: Mapping[relax.Var, str]
) -> Iterator[Left]:
    """The operators that one binding calls; ``straight``: whether it is in a dataflow block."""
    value = binding.value
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            yield from _left_inside(branch, IN_BRANCH)
    elif isinstance(value, relax.Function):
        yield from _left_inside(value.body, IN_FUNCTION)
    elif isinstance(value, relax.Call) and not _calls_function(value):
        reason = reasons.get(binding.var) or _reason_without_block(binding, straight)
        yield _left(binding.var, value, reason)


def _reason_without_block(binding: relax.Binding, straight: bool) -> str:
    """Why the partitioner has not looked at a call."""
    name = name_of(binding.value)
    if isinstance(binding, relax.MatchCast):
        if not has_pattern(binding.value):
            return reason_of(binding.value)
        return f"{name} is cast to {describe(binding.var)} where it is bound; need no cast there"
    if not straight:
        return f"{name} is outside of a dataflow block; need one"
    return f"{name} was not looked at; need partition_with_report, which collects reasons"


def _left_inside(body: relax.Expr, where: str) -> Iterator[Left]:
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from _left_inside(value.true_branch, where)
                yield from _left_inside(value.false_branch, where)
            elif isinstance(value, relax.Call) and not _calls_function(value):
                yield _left(binding.var, value, f"{name_of(value)} is inside {where}")


def _calls_function(call: relax.Call) -> bool:
    """Whether a call runs a Relax function: a region, or another function of the module."""
    return isinstance(call.op, tvm.ir.GlobalVar | relax.Var)


def name_of(call: relax.Call) -> str:
    """The operator of a call, with the function where the operator only calls one."""
    if isinstance(call.op, relax.ExternFunc):
        return f"ExternFunc({call.op.global_symbol})"
    name = op_name(call) or type(call.op).__name__
    if name == "relax.call_tir" and isinstance(call.args[0], tvm.ir.GlobalVar):
        return f"{name}({call.args[0].name_hint})"
    if name == CUSTOM:
        return f"{name}({record_of(call).name})"
    return name


def _left(var: relax.Var, call: relax.Call, reason: str) -> Left:
    operands = list(map(describe, tensors_of(call)))
    shapes = f"{', '.join(operands)} -> {describe(call)}" if operands else describe(call)
    names = origin_of(call).names
    return Left(
        NAMES.join(names) or var.name,
        name_of(call),
        shapes,
        reason,
        _macs(call),
        at_unit(product(shape_of(call) or (0,))),
        _computed_in(call),
    )


def _computed_in(call: relax.Call) -> str:
    """The dtype of the first operand that is a tensor; of the result where there is none."""
    operands = (item for item in call.args if isinstance(item.ty, relax.TensorType))
    return dtype_of(next(operands, call))


def _macs(call: relax.Call) -> int:
    """Multiply-accumulates of a call that stays; 0 where it has none or shapes are unknown."""
    name = op_name(call) or ""
    shapes = [shape_of(argument) for argument in call.args[:2]]
    result = shape_of(call)
    if result is None or None in shapes or len(shapes) < 2:
        return 0
    if name.startswith("relax.nn.attention") and len(call.args) > 2:
        value = shape_of(call.args[2])
        query, key = shapes
        if value is not None and len(query) == len(key) == len(value) == 4:
            batch, rows, heads, width = query
            return at_unit(batch * heads * rows * key[1] * (width + value[3]))
        return 0
    if name == "relax.matmul":
        return at_unit(product(result) * shapes[0][-1])
    if name.startswith("relax.nn.conv") and name.endswith("_transpose"):
        return at_unit(product(shapes[0]) * product(shapes[1][1:]))
    if name.startswith("relax.nn.conv"):
        return at_unit(product(result) * product(shapes[1][1:]))
    return 0
