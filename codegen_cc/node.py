"""The node descriptor: what one composite computes, in the words of the kernel libraries.

The pattern table in ``byoc`` fills it, predicates and planner read it, and it travels inside the
module as the composite function's ``ext.node`` attribute, so that all of them mean the same thing.

Vocabulary (``op``: roles of operands; attributes):

==============  =================================  =============================================
op              operands                           attributes
==============  =================================  =============================================
conv2d          input, weight                      strides[2] padding[t,l,b,r] dilation[2] groups
matmul          lhs, rhs                           (none; batch axes broadcast)
max_pool2d      input                              pool_size[2] strides[2] padding[4] dilation[2]
                                                   ceil_mode count_include_pad
avg_pool2d      input                              the same
conv2d_tr..     input, weight                      strides[2] padding[t,l,b,r] dilation[2] groups
                                                   output_padding[2]; the name is
                                                   conv2d_transpose, the weight IOHW
conv3d          input, weight                      strides[3] padding[6] dilation[3] groups
resize2d        input                              method coordinate rounding cubic_alpha
                                                   cubic_exclude, as relax.image.resize2d has them
pad             input                              pads[before.., after..] mode (constant reflect
                                                   edge) value
reduce          input                              kind (sum mean max min prod) axes[] keepdims
argreduce       input                              kind (argmax argmin) axis keepdims; int64
cumsum          input                              axis exclusive reverse
softmax         input                              axis log
layer_norm      input, gamma, beta                 axes[] (the last ones) epsilon
rms_norm        input, gamma                       axes[] (the last ones) epsilon
attention       query, key, value [, mask]         scale
unary           input                              kind alpha beta
binary          lhs, rhs                           kind (add sub mul div max min pow prelu)
compare         lhs, rhs                           kind (equal not_equal less less_equal greater
                                                   greater_equal); bool
logical         lhs, rhs                           kind (and or xor); bool
where           condition, lhs, rhs                (none)
cast            input                              (none; the output's dtype says it)
take            input, indices                     axis
arange          (none)                             (none; 0, 1, 2, ... in the output's dtype)
reshape         input                              (none; the output's shape says it)
permute         input                              axes[]
concat          input0, input1, ...                axis
slice           input                              begin[] end[] strides[] (one per axis, step > 0)
broadcast_to    input                              (none; the output's shape says it)
==============  =================================  =============================================

A dimension is an integer, or an expression of symbols (``codegen_cc.dim``).  Images are logically
NCHW with OIHW weights; which layout they have in memory is the planner's
choice.  attention is softmax(scale * query key^T + mask) value over [batch, heads, rows, columns];
prelu is lhs < 0 ? lhs * rhs : lhs.  Values are float32; int32, int64 and bool have what moves
data, take, cast, where and compare, integers also add, sub, mul, max and min, and bool has logical
and the unary kind ``not``.  Axes are never negative.  ``unary`` kinds and activations are names in
``ACTIVATIONS``.  An epilogue is the ordered steps ``[bias] [activation] [residual] [activation]``
(each at most once, in this order); ``bias`` and ``residual`` have operands of those roles.
conv2d and matmul take all four, binary only a final activation, the others none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from codegen_cc import dtypes
from codegen_cc.dim import Dim, dim_json, parse_dim, product

#: Names of the elementwise functions of one argument, as in ``ext_unary_kind``; ``clip`` has
#: (alpha, beta) = (low, high), ``hard_sigmoid`` slope and offset, ``leaky_relu`` its slope, ``elu``
#: its factor.
ACTIVATIONS = (
    "relu",
    "clip",
    "sigmoid",
    "silu",
    "hard_sigmoid",
    "hard_swish",
    "gelu",
    "gelu_tanh",
    "tanh",
    "leaky_relu",
    "exp",
    "log",
    "erf",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "elu",
    "selu",
    "mish",
    "softplus",
    "floor",
    "ceil",
    "round",
    "sin",
    "cos",
    "tan",
    "sign",
    "reciprocal",
)

#: Operators: every value of ``Node.op``.
OPERATORS = (
    *("conv2d", "conv2d_transpose", "conv3d", "matmul", "attention", "max_pool2d", "avg_pool2d"),
    *("resize2d", "pad", "reduce", "argreduce", "cumsum", "softmax", "layer_norm", "rms_norm"),
    *("unary", "binary", "compare", "logical", "where", "cast", "take", "arange"),
    *("reshape", "permute", "concat", "slice", "broadcast_to"),
)

#: Name of the attribute of a composite function that holds ``Node.to_json()``.
NODE_ATTRIBUTE = "ext.node"

#: Name of the attribute of a region function that holds its constants, an array of tensors, and of
#: the function that a region calls with an index (as a shape of one axis) to name one of them.
CONSTANTS_ATTRIBUTE = "ext.constants"
CONSTANT_FUNCTION = "ext.constant"


@dataclass(frozen=True)
class Operand:
    """One input of a node: its role, logical shape and dtype, and whether it is a constant."""

    role: str
    shape: tuple[Dim, ...]
    dtype: str
    constant: bool = False


@dataclass(frozen=True)
class Result:
    """One result of a node: its logical shape and dtype."""

    shape: tuple[Dim, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One step of an epilogue: ``bias``, ``residual`` or an activation with its parameters."""

    kind: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Node:
    """What one composite computes.

    ``operands`` are in the order of the composite function's parameters.  ``source`` names the
    nodes of the original model, for reports and comments only.  ``library`` is the kernel library
    that was chosen for it, empty before that; ``algorithm`` the way in which that is to compute it,
    empty for the library's own choice; ``chosen`` tells people why, empty for no special reason.
    ``exact`` asks for an algorithm through which NaN, infinities and huge numbers reach the same
    elements as through the formula.
    ``dtype`` and those of the operands say what is stored; ``compute`` names the dtype that is
    multiplied in, empty for the stored one (see ``codegen_cc.dtypes``).
    ``shape`` and ``dtype`` are those of the first result, ``further`` the results after it.
    """

    op: str
    operands: tuple[Operand, ...]
    shape: tuple[Dim, ...]
    dtype: str
    attrs: dict[str, Any] = field(default_factory=dict)
    epilogue: tuple[Step, ...] = ()
    source: tuple[str, ...] = ()
    library: str = ""
    algorithm: str = ""
    chosen: str = ""
    exact: bool = False
    compute: str = ""
    further: tuple[Result, ...] = ()

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, in order."""
        return (Result(self.shape, self.dtype), *self.further)

    @property
    def composite(self) -> str:
        """The composite's name, such as ``ext.conv2d_bias_relu``; for people, never parsed."""
        kind = self.attrs.get("kind")
        parts = [kind if self.op in ("unary", "binary", "argreduce") else self.op]
        if self.op in ("reduce", "compare", "logical"):
            parts.append(kind)
        return "ext." + "_".join([*parts, *(step.kind for step in self.epilogue)])

    def operand(self, role: str) -> Operand | None:
        """The operand of that role, or None."""
        return next((operand for operand in self.operands if operand.role == role), None)

    @property
    def macs(self) -> Dim:
        """Multiply-accumulates of the contraction; 0 for everything else."""
        if self.op == "conv2d":
            weight = self.operand("weight")
            return product(self.shape) * product(weight.shape[1:])
        if self.op == "conv3d":
            return product(self.shape) * product(self.operand("weight").shape[1:])
        if self.op == "conv2d_transpose":
            weight = self.operand("weight")
            return product(self.operand("input").shape) * product(weight.shape[1:])
        if self.op == "attention":
            query, keys = self.operand("query"), self.operand("key").shape[2]
            return keys * (product(query.shape) + product(self.shape))
        if self.op == "matmul":
            return product(self.shape) * self.operand("lhs").shape[-1]
        return 0

    @property
    def bytes_moved(self) -> Dim:
        """Bytes read and written if every operand and result passes through memory once."""
        parts = (*self.results, *self.operands)
        return sum(product(part.shape) * dtypes.of(part.dtype).bytes for part in parts)

    def to_json(self) -> str:
        """One line of JSON; ``Node.from_json`` gives an equal node back."""
        return json.dumps(asdict(self), sort_keys=True, default=dim_json)

    @classmethod
    def from_json(cls, text: str) -> Node:
        """Read what ``to_json`` wrote. Raises ``KeyError`` or ``JSONDecodeError`` on other text."""
        raw = json.loads(text)
        return cls(
            op=raw["op"],
            operands=tuple(
                Operand(o["role"], _dims(o["shape"]), o["dtype"], o["constant"])
                for o in raw["operands"]
            ),
            shape=_dims(raw["shape"]),
            dtype=raw["dtype"],
            attrs=raw["attrs"],
            epilogue=tuple(Step(**step) for step in raw["epilogue"]),
            source=tuple(raw["source"]),
            library=raw.get("library", ""),
            algorithm=raw.get("algorithm", ""),
            chosen=raw.get("chosen", ""),
            exact=raw.get("exact", False),
            compute=raw.get("compute", ""),
            further=tuple(Result(_dims(r["shape"]), r["dtype"]) for r in raw.get("further", ())),
        )


def _dims(values: list[int | str]) -> tuple[Dim, ...]:
    return tuple(parse_dim(value) for value in values)
