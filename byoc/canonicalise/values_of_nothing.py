"""Write what is known without a computation where axes have no elements.

A tensor without elements is the constant without elements, whichever operator made it: TVM's passes
write some operators as reshapes, and in those an extent of 0 means that of the operand's same axis.
Reductions over such axes are constants:

    sum, mean  0        product  1        max  -inf        min  inf        matmul, convolution  0

as ONNX has it, and as ONNX Runtime has the mean, which ONNX leaves open. TVM's loops set a result
to its first value in the first round, so that without any they leave it as it was. A tensor into
which nothing is stored stays as it is.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.index_out_of_bounds import STORING
from byoc.ir.dataflow import Block, dtype_of, op_name, shape_of, static_shape_of


def values_of_nothing(block: Block) -> None:
    """Rewrite those of fixed shape, and convolutions of no channels whatever the image's size."""
    for var in block.ordered():
        call, shape = block.values.get(var), static_shape_of(var)
        if shape is not None and 0 in shape and isinstance(call, relax.Call | relax.TupleGetItem):
            block.replace(var, relax.const(np.empty(shape, dtype_of(var)), dtype_of(var)))
            continue
        name = op_name(call) if call is not None else None
        if name in STORING:
            _store(block, var, call)
        elif name in FIRST_VALUES:
            _reduce(block, var, call)


def _store(block: Block, var: relax.Var, call: relax.Call) -> None:
    places = call.args[1]
    tensors = places.fields if isinstance(places, relax.Tuple) else (places,)
    if shape_of(var) is not None and any(map(_is_empty, tensors)):
        block.replace(var, relax.op.reshape(call.args[0], var.ty.shape))


def _reduce(block: Block, var: relax.Var, call: relax.Call) -> None:
    name = op_name(call)
    by_window = name.startswith("relax.nn.conv")
    if shape_of(var) is None or not _is_empty(call.args[1 if by_window else 0]):
        return
    dtype = dtype_of(var)
    first = first_value(name, dtype)
    shape = static_shape_of(var)
    if shape is not None:
        block.replace(var, relax.const(np.full(shape, first, dtype), dtype))
    elif by_window:
        block.replace(var, relax.op.zeros(var.ty.shape, dtype))


def first_value(name: str, dtype: str) -> float:
    """What an operator of ``FIRST_VALUES`` gives of no terms, in a dtype."""
    first = FIRST_VALUES[name]
    if np.isfinite(first) or np.dtype(dtype).kind == "f":
        return first
    limits = np.iinfo(dtype)
    return limits.min if first < 0 else limits.max


def _is_empty(expr: relax.Expr) -> bool:
    return 0 in (static_shape_of(expr) or ())


FIRST_VALUES = {
    "relax.sum": 0,
    "relax.mean": 0,
    "relax.prod": 1,
    "relax.max": -np.inf,
    "relax.min": np.inf,
    "relax.matmul": 0,
    **{f"relax.nn.conv{rank}d{kind}": 0 for rank in (1, 2, 3) for kind in ("", "_transpose")},
}
