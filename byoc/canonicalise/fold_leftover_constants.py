"""Let TVM evaluate operators on constants that ``fold_constants`` has no row for.

TVM compiles a function for each of them, which takes long, so it is asked only if needed. It is
handed the constant expressions alone: ``FoldConstant`` lowers all operators that it meets, to see
whether they read constants, and fails at those that TVM cannot lower, such as a PReLU along a
symbolic axis.

Its reductions to an extreme begin with the lowest number, or the greatest, which is wrong of
infinities alone: these wait for ``fold_constants``, with the values before them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import tvm
from tvm import relax

from byoc.canonicalise.dequantised_weights import is_kept
from byoc.canonicalise.fold_constants import fold_constants
from byoc.ir.dataflow import Block, Constant, dtype_of, op_name, substitute
from byoc.ir.walk import bindings_of
from codegen_cc.dtypes import DTYPES

#: Dtypes that TVM is asked to evaluate. It ends the process on some operators of narrow floats.
FOLDED_BY_TVM = tuple(dtype.name for dtype in DTYPES.values() if dtype.is_numpys)


#: What TVM is not asked for.
EXTREMES = ("relax.max", "relax.min")


def fold_leftover_constants(block: Block) -> None:
    """Replace constant expressions by the values that TVM computes; those it leaves stay."""
    _fold_once(block)
    if any(op_name(value) in EXTREMES for value in block.values.values()):
        fold_constants(block)
        _fold_once(block)


def _fold_once(block: Block) -> None:
    found: dict[relax.Var, relax.Expr] = {}
    for var in block.ordered():
        if block.is_cast(var) or is_kept(block, var):
            continue
        if _is_constant(block.values[var], found):
            found[var] = block.values[var]
    if not any(map(_reads_nothing_else, found.values())):
        return
    for var, value in _evaluated(block.mod, found).items():
        if isinstance(value, Constant):
            block.alias(var, value)
        elif isinstance(value, relax.Tuple):  # of an operator with several results
            block.replace(var, value)


def _is_constant(value: relax.Expr, found: Collection[relax.Var]) -> bool:
    """Whether an expression has static shapes and reads constants, or what is ``found``, alone."""
    if isinstance(value, relax.TupleGetItem):
        return value.tuple_value in found
    if not op_name(value) or op_name(value) in EXTREMES or not _is_static(value.ty):
        return False
    items = list(_flat(value.args))
    tensors = [item for item in items if isinstance(item, Constant | relax.Var)]
    return bool(tensors) and all(
        item in found if isinstance(item, relax.Var) else _is_known(item) for item in items
    )


def _flat(arguments: Iterable[relax.Expr]) -> Iterator[relax.Expr]:
    for argument in arguments:
        yield from argument.fields if isinstance(argument, relax.Tuple) else (argument,)


def _is_static(kind: tvm.ir.Type) -> bool:
    """Whether it is the type of tensors with static shapes, of dtypes that TVM may evaluate."""
    if isinstance(kind, relax.TupleType):
        return all(map(_is_static, kind.fields))
    if not isinstance(kind, relax.TensorType) or str(kind.dtype) not in FOLDED_BY_TVM:
        return False
    return isinstance(kind.shape, relax.ShapeExpr) and _is_known(kind.shape)


def _is_known(item: relax.Expr) -> bool:
    """Whether it is a constant, a number, a shape of numbers, or a function of the module."""
    if isinstance(item, relax.ShapeExpr):
        return all(isinstance(extent, tvm.tirx.IntImm) for extent in item.values)
    if isinstance(item, Constant):
        return dtype_of(item) in FOLDED_BY_TVM
    return isinstance(item, tvm.ir.Constant | tvm.ir.GlobalVar)


def _reads_nothing_else(value: relax.Expr) -> bool:
    """Whether a tensor is computed of constants and nothing else, not even a shape or a number."""
    is_call = isinstance(value, relax.Call) and isinstance(value.ty, relax.TensorType)
    if not is_call:
        return False
    read = [item for item in _flat(value.args) if not isinstance(item, tvm.ir.GlobalVar)]
    return all(isinstance(item, Constant) for item in read)


def _evaluated(
    mod: tvm.IRModule | None, expressions: dict[relax.Var, relax.Expr]
) -> dict[relax.Var, relax.Expr]:
    """What TVM's ``FoldConstant`` makes of each expression."""
    functions = {} if mod is None else mod.functions
    primitives = {
        gvar: function
        for gvar, function in functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    builder = relax.BlockBuilder(tvm.IRModule(primitives))
    inside: dict[relax.Expr, relax.Expr] = {}
    with builder.function("constants", []):
        with builder.dataflow():
            for var, value in expressions.items():
                inside[var] = builder.emit(substitute(value, inside))
            result = builder.emit_output(relax.Tuple(list(inside.values())))
        builder.emit_func_output(result)
    folded = relax.transform.FoldConstant()(builder.finalize())
    (function,) = (f for f in folded.functions.values() if isinstance(f, relax.Function))
    # What was folded is no binding any more, but stands where it is read.
    values = {binding.var: binding.value for binding in bindings_of(function)}
    result = values.get(function.body.body, function.body.body)
    return {
        var: values.get(value, value) for var, value in zip(expressions, result.fields, strict=True)
    }
