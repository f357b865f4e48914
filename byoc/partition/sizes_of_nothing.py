"""What symbolic axes of size 0 ask of a network.

Regions take tensors without elements. What TVM's own code makes of them depends on the operator:
its reductions over nothing leave a result as it was, its scatters divide by an extent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import tvm
from tvm import relax

from byoc.ir.dataflow import is_candidate, op_name, shape_of
from byoc.ir.elementwise import SIMPLE_UNARY
from byoc.ir.walk import bindings_of
from codegen_cc.dim import Dim, at_most, normal, same, symbols
from codegen_cc.node import Node
from codegen_cc.operator import operator_of

#: Operators that TVM computes element by element, or that move data.
ELEMENTWISE = frozenset(SIMPLE_UNARY) | frozenset(
    f"relax.{name}"
    for name in (
        *("square", "isnan", "isinf", "nn.softmax", "nn.log_softmax"),
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
        *("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater"),
        *("greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "where"),
        *("astype", "full", "zeros", "ones", "full_like", "arange", "concat", "stack"),
        *("reshape", "flatten", "squeeze", "expand_dims", "permute_dims", "broadcast_to"),
        *("strided_slice", "split", "flip", "repeat", "tile", "shape_of", "shape_to_tensor"),
        *("tensor_to_shape", "nonzero"),
    )
)

#: Operators that TVM computes right where no axis that is reduced, or slid over, is empty.
REDUCING = frozenset(
    f"relax.{name}"
    for name in (
        *("sum", "mean", "max", "min", "prod", "variance", "std", "argmax", "argmin", "matmul"),
        *("nn.layer_norm", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.max_pool1d"),
        *("nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"),
    )
)


def may_reduce_nothing(node: Node) -> bool:
    """Whether an axis that a node sums up, or the like, is of a size that may be 0."""
    shapes = (operand.shape for operand in node.operands)
    left = tuple(dim for result in node.results for dim in result.shape)
    return not operator_of(node.op).moves and _may_vanish(shapes, left)


def least_size(mod: tvm.IRModule) -> int:
    """The least size of symbolic axes with which TVM computes its part of a module right: 0, 1."""
    functions = (func for func in mod.functions.values() if is_candidate(func))
    left = (value for func in functions for value in _left(func))
    return 0 if all(_takes_nothing(value) for value in left) else 1


def needs_rows(mod: tvm.IRModule, lengths: Collection[str]) -> str | None:
    """The first operator left to TVM that may compute on nothing where these symbols are 0.

    The others are 1 or more. None where there is none.
    """
    functions = (func for func in mod.functions.values() if is_candidate(func))
    for value in (value for func in functions for value in _left(func)):
        arguments = getattr(value, "args", ())
        shapes = [
            shape_of(each) for each in (value, *arguments) if isinstance(each.ty, relax.TensorType)
        ]
        gone = None in shapes or any(_is_zero_with(dim, lengths) for s in shapes for dim in s)
        if gone and not _takes_nothing(value):
            return op_name(value) or type(value).__name__
    return None


def _is_zero_with(dim: Dim, lengths: Collection[str]) -> bool:
    others = [symbol for symbol in symbols([dim]) if symbol.name not in lengths]
    return _may_be_zero(normal(dim.subs({s: s + 1 for s in others})) if others else dim)


def _left(func: relax.Function) -> Iterator[relax.Expr]:
    """What a function computes itself: no calls of regions, and nothing that only names values."""
    for binding in bindings_of(func):
        value = binding.value
        called = isinstance(value, relax.Call) and not isinstance(value.op, tvm.ir.GlobalVar)
        if called or isinstance(value, relax.If):
            yield value


def _takes_nothing(value: relax.Expr) -> bool:
    if isinstance(value, relax.If):
        return _only_calls(value.true_branch) and _only_calls(value.false_branch)
    name = op_name(value)
    if name in REDUCING:
        shapes = [shape_of(argument) for argument in value.args]
        result = shape_of(value)
        return None not in (result, *shapes) and not _may_vanish(shapes, result)
    if name == "relax.take":  # an axis without elements has none to take
        shape, places = map(shape_of, value.args[:2])
        if shape is None:
            return False
        extent = shape[int(value.attrs.axis or 0)]
        each_once = places is not None and any(same(dim, extent) for dim in places)
        return each_once or not _may_be_zero(extent)
    return name in ELEMENTWISE


def _only_calls(branch: relax.SeqExpr) -> bool:
    """Whether a branch computes nothing itself: the functions it calls are looked at as such."""
    values = (binding.value for block in branch.blocks for binding in block.bindings)
    return all(_names_only(value) for value in (*values, branch.body))


def _names_only(value: relax.Expr) -> bool:
    if isinstance(value, relax.Call):
        return isinstance(value.op, tvm.ir.GlobalVar)
    return isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem)


def _may_vanish(operands: Iterable[tuple[Dim, ...]], results: tuple[Dim, ...]) -> bool:
    """``results``: all extents of the results."""
    gone = (dim for shape in operands for dim in shape if dim not in results)
    return any(map(_may_be_zero, gone))


def _may_be_zero(dim: Dim) -> bool:
    return not isinstance(dim, int) and not at_most(1, dim)
