"""Why a call that no pattern covers stays with TVM: what was found, and what would be needed."""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.ir.dataflow import Constant, describe, dtype_of, op_name, touches_empty
from byoc.ir.elementwise import SIMPLE_UNARY
from byoc.ir.walk import operands_of
from byoc.patterns import Unfit
from byoc.patterns.registry import row_for
from byoc.patterns.row import tensor
from codegen_cc.dtypes import KERNEL_FLOATS

#: What the rules of canonicalisation take.
FLOAT = " or ".join(KERNEL_FLOATS)
STATIC = "a static shape"
KNOWN = "a known shape"

#: Operators that have no row because canonicalisation writes them in others: the attributes that
#: decide whether it can, and what it needs.
REWRITTEN: dict[str, tuple[tuple[str, ...], str]] = {
    "relax.nn.batch_norm": (
        ("training",),
        f"{FLOAT} of {KNOWN}, constant parameters, no training, only the first result read",
    ),
    "relax.nn.conv1d": (
        ("data_layout", "kernel_layout", "out_layout"),
        f"{FLOAT} of {KNOWN}, NCW and OIW",
    ),
    "relax.nn.conv1d_transpose": (
        ("data_layout", "kernel_layout", "out_layout"),
        f"{FLOAT} of {KNOWN}, NCW and IOW",
    ),
    "relax.nn.max_pool1d": (("layout", "out_layout"), f"{FLOAT} of {KNOWN}, NCW"),
    "relax.nn.avg_pool1d": (("layout", "out_layout"), f"{FLOAT} of {KNOWN}, NCW"),
    "relax.nn.max_pool3d": (("layout", "out_layout"), f"{FLOAT} of {KNOWN}, NCDHW"),
    "relax.nn.avg_pool3d": (("layout", "out_layout"), f"{FLOAT} of {KNOWN}, NCDHW"),
    "relax.nn.adaptive_avg_pool1d": (("layout",), f"{FLOAT} of {KNOWN}, NCW"),
    "relax.nn.adaptive_avg_pool3d": (("layout",), f"{FLOAT} of {KNOWN}, NCDHW"),
    "relax.nn.prelu": (("axis",), f"{FLOAT} of {KNOWN}, one slope or one for each channel"),
    "relax.nn.attention": (
        ("window_size", "causal_mask"),
        f"{FLOAT} of {KNOWN}, no window, {STATIC} if causal",
    ),
    "relax.nn.attention_bias": (
        ("window_size", "causal_mask"),
        f"{FLOAT} of {KNOWN}, no window, {STATIC} if causal",
    ),
    "relax.nn.softplus": (("beta", "threshold"), "beta 1, threshold 17 or more"),
    "relax.nn.dropout": ((), "only the first result read"),
    "relax.nn.batch_flatten": ((), KNOWN),
    "relax.nn.pixel_shuffle": (("upscale_factor",), f"{KNOWN}, fixed channels"),
    "relax.variance": (("axis",), f"{FLOAT} of {KNOWN}"),
    "relax.std": (("axis",), f"{FLOAT} of {KNOWN}"),
    "relax.square": ((), KNOWN),
    "relax.isinf": ((), f"{FLOAT} of {KNOWN}"),
    "relax.isfinite": ((), f"{FLOAT} of {KNOWN}"),
    "relax.bitwise_not": ((), f"int32, int64, int8 or uint8 of {KNOWN}"),
    "relax.tril": ((), f"{KNOWN}, a constant diagonal"),
    "relax.triu": ((), f"{KNOWN}, a constant diagonal"),
    "relax.one_hot": (("depth", "axis"), f"int32 or int64 of {KNOWN}"),
    "relax.tile": (("repeats",), STATIC),
    "relax.repeat": (("repeats", "axis"), f"{STATIC}, an axis"),
    "relax.flip": (("axis",), f"{KNOWN}, an axis"),
    "relax.split": (("axis",), f"{KNOWN}, parts that are read one by one"),
    "relax.stack": (("axis",), f"{KNOWN}, the tensors themselves"),
}


def has_pattern(call: relax.Call) -> bool:
    """Whether the table has a pattern for the operator, be it with other dtypes or attributes."""
    return row_for(op_name(call)) is not None or op_name(call) in SIMPLE_UNARY


def reason_of(call: relax.Call) -> str:
    """What was found in a call without a pattern row, and what would be needed."""
    name = op_name(call)
    if name is None:
        return f"{_callee(call)!r} is no Relax operator; need one"
    if name in SIMPLE_UNARY:
        try:
            tensor(call.args[0], "input")
        except Unfit as unfit:
            return str(unfit)
    if name in REWRITTEN:
        attributes, need = REWRITTEN[name]
        found = [
            f"{describe(item)}{' constant' * isinstance(item, Constant)}"
            for item in tensors_of(call)
        ]
        found += [f"{key} {_text(getattr(call.attrs, key))}" for key in attributes]
        elements = ", an element at least" * touches_empty(call)
        return f"{', '.join(found)}; need {need}{elements}"
    dtypes = " and ".join(dict.fromkeys(map(dtype_of, tensors_of(call)))) or dtype_of(call)
    if name == "relax.call_tir":
        return f"loop nest {_callee(call)} on {dtypes}; need a clip of {FLOAT} or a copy"
    return f"no pattern row for {name} on {dtypes}; need one, as byoc.register_ext_op adds"


def _callee(call: relax.Call) -> str:
    """The name of the function that a call runs."""
    function = call.args[0] if op_name(call) == "relax.call_tir" else call.op
    for attribute in ("global_symbol", "name_hint", "name"):
        if hasattr(function, attribute):
            return str(getattr(function, attribute))
    return type(function).__name__


def tensors_of(call: relax.Call) -> list[relax.Expr]:
    """The tensors among the arguments, those of tuples too."""
    kinds = relax.TensorType | relax.TupleType
    return [item for item in operands_of(call) if isinstance(item.ty, kinds)]


def _text(value: object) -> str:
    """An attribute as Python writes it, such as ``[1, 2]``, ``False`` or ``None``."""
    if isinstance(value, str | bool | int | float) or value is None:
        return str(value)
    if isinstance(value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return str(value.value)
    return f"[{', '.join(map(_text, value))}]"
