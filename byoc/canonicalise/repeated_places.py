"""Compute places, masks and what tables have there once: layers do it again from equal lengths.

    a = arange(0, n); b = arange(0, n)      b -> a

Integers, truth values, and rows and bounds that they choose; nothing else, as a function that
arrives in pieces is found by pieces that nobody else reads. Where these are found, scales and
shifts by constants follow: two classifiers that read one vector begin with the same batch norm.
So do activations, where nothing but they reads what they follow, so that it can end in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import tvm_ffi
from tvm import relax

from byoc.canonicalise.fold_affine import CONTRACTIONS, STEPS
from byoc.ir.dataflow import Block, array_of, dtype_of, op_name, shape_of
from byoc.ir.elementwise import SIMPLE_UNARY

_ARITHMETIC = frozenset(
    f"relax.{name}"
    for name in (
        *("arange", "add", "subtract", "multiply", "maximum", "minimum", "astype", "where", "take"),
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and"),
        *("logical_or", "logical_not", "concat", "strided_slice", "reshape", "expand_dims"),
        *("squeeze", "broadcast_to", "permute_dims", "shape_to_tensor"),
    )
)
_CHOOSING = ("relax.where", "relax.take")
_FUNCTIONS = (*SIMPLE_UNARY, *STEPS)
_PLACES = ("int32", "int64", "bool")
#: Elements of a constant that is compared.
_SMALL = 1 << 20


def repeated_places(block: Block) -> None:
    """Let users of a place, a mask or a choice read the first one that is computed alike."""
    _share(block, _ARITHMETIC, _is_place)


def repeated_steps(block: Block) -> None:
    """Let users of a scale or shift by a constant read the first one alike."""
    _share(block, STEPS, lambda call: _is_small(call) and any(map(_is_constant, call.args)))


def repeated_activations(block: Block) -> None:
    """Let users of an activation read the first one alike, where its operand ends in it.

    The operand is a contraction, a step or an activation that nothing else reads: what a kernel
    takes along at its end is then computed once, and what is stored is what its readers want.
    """
    _share(block, _FUNCTIONS, lambda call: _is_small(call) and _ends_an_operand(block, call))


def _ends_an_operand(block: Block, call: relax.Call) -> bool:
    """Whether an operand is computed here, and read by calls alike alone."""
    key = tvm_ffi.StructuralKey(call)
    return any(
        block.call(operand, *CONTRACTIONS, *_FUNCTIONS) is not None
        and not block.is_fixed(operand)
        and all(tvm_ffi.StructuralKey(block.values[user]) == key for user in block.users(operand))
        for operand in call.args
    )


def _share(block: Block, names: Iterable[str], wanted: Callable[[relax.Call], bool]) -> None:
    """Let users of a wanted value read the first one that is computed alike."""
    first: dict[tvm_ffi.StructuralKey, relax.Var] = {}
    for var, _ in list(block.calls(*names)):
        call = block.call(var, *names)
        if call is None or not wanted(call):
            continue
        known = first.setdefault(tvm_ffi.StructuralKey(call), var)
        if known is not var and not block.is_fixed(var):
            block.alias(var, known)


def _is_constant(value: relax.Expr) -> bool:
    return array_of(value) is not None


def _is_place(call: relax.Call) -> bool:
    shape = shape_of(call)
    if shape is None or (dtype_of(call) not in _PLACES and op_name(call) not in _CHOOSING):
        return False
    return _is_small(call)


def _is_small(call: relax.Call) -> bool:
    """Whether its constants are few enough to be compared."""
    values = (array_of(argument) for argument in call.args)
    return all(value is None or math.prod(value.shape) <= _SMALL for value in values)
