"""Products of bfloat16 numbers that are summed in float32, and when they are worth it.

A node with ``compute`` bfloat16 has its constant operand packed as bfloat16, rounded to the
nearest when compiling; the other one is rounded when it is read, or is stored so already
(``plan/narrow_storage.py``).  Bias, activation and residual are computed in float32.

With ``compute`` bfloat16x3 operands stay what they are, each as the sum of two bfloat16 numbers:
the nearest, and the nearest to the rest.  Of the four products of such sums three are added up.
Nothing is stored in fewer bytes than in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_cc.instruction_sets import compiled_for
from codegen_cc.node import Node
from codegen_cc.operator import Narrow
from codegen_cc.operators.dtype_rules import c_dtype
from codegen_cc.operators.packing import PanelFormat
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor

BFLOAT16 = "bfloat16"
BFLOAT16X3 = "bfloat16x3"

#: The role of a result, beside those of operands.
_RESULT = "output"

#: What the kernels for bfloat16 read: two products at a time.
BFLOAT16_PANELS = PanelFormat(BFLOAT16, 2)


@dataclass(frozen=True)
class PanelsOfParts(PanelFormat):
    """Panels [ceil(N / 16)][ceil(K / group)][2][16][group]: numbers as sums of two of the dtype."""

    def pack(self, matrices: np.ndarray) -> np.ndarray:
        """Pack each B of [count, K, N], any strides, of a wider dtype."""
        parts = (super(PanelsOfParts, self).pack(part) for part in _parts(matrices))
        return np.stack(list(parts), axis=-3)


def _parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest bfloat16 that is finite, and the nearest to the rest; as the kernels have it."""
    import ml_dtypes

    most = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    with np.errstate(over="ignore", invalid="ignore"):
        high = np.clip(x, -most, most).astype(ml_dtypes.bfloat16)
        low = x - high.astype(x.dtype)
    # Rounded up, the greatest one would make the sum infinite.
    low = np.where(np.isinf(low), low, np.clip(low, -most / 2**8, most / 2**8))
    return high, low.astype(ml_dtypes.bfloat16)


#: What the kernels for bfloat16x3 read.
BFLOAT16X3_PANELS = PanelsOfParts(BFLOAT16, 2)

#: Products in bfloat16 for one in float32 in the same time, by what the CPU has; where it has
#: neither, another one is meant that does.
_RATES = {"amx_bf16": 8.0, "avx512_bf16": 2.0}
_USUAL_RATE = 2.0
#: From which rate on three of them, and taking numbers apart, are faster than one in float32.
_LEAST_RATE_OF_THREE = 4.0


def in_bfloat16(node: Node) -> bool:
    """Whether a node multiplies in bfloat16."""
    return node.compute == BFLOAT16


def in_parts(node: Node) -> bool:
    """Whether a node multiplies sums of two bfloat16 numbers."""
    return node.compute == BFLOAT16X3


def short_name(node: Node) -> str:
    """What a node multiplies in, as algorithms have it."""
    return "bf16x3" if in_parts(node) else "bf16"


def _rate() -> float:
    here = compiled_for()
    return next((rate for row, rate in _RATES.items() if row in here), _USUAL_RATE)


def product_rate(node: Node) -> float:
    """How many times as fast as in float32 products are in what the node multiplies in."""
    return _rate() / 3 if in_parts(node) else _rate()


def three_products_pay() -> bool:
    """Whether any product gains by bfloat16x3."""
    return _rate() >= _LEAST_RATE_OF_THREE


def no_gain(node: Node) -> str | None:
    """Why no product of such a node gains by what it says that it multiplies in, or None."""
    if in_bfloat16(node):
        return None
    if node.compute == "int8":
        return "int8-data rounds the data of products whose weight has 4 or 8 bits; need such a one"
    if not in_parts(node):
        return f"to be computed in {node.compute}; need {node.dtype}, {BFLOAT16} or {BFLOAT16X3}"
    if three_products_pay():
        return None
    return (
        f"bf16x3 takes three products in bfloat16, of which this CPU does {_rate():g} in the time"
        f" of one in {node.dtype}; need {_LEAST_RATE_OF_THREE:g}, as AMX has"
    )


def narrow(*roles: str, alike: bool = False, follows: str = "") -> Narrow:
    """The result of a node, and operands of these roles, may be stored as bfloat16."""
    return Narrow(frozenset((*roles, _RESULT)), alike, follows)


def all_alike(node: Node) -> Narrow:
    """Operands and result may be stored as bfloat16, if all of them are."""
    return narrow(*(operand.role for operand in node.operands), alike=True)


def storage_struct(x: Tensor, residual: Tensor | None, y: Tensor) -> Struct:
    """The ``ext_storage`` of a call: what lies in memory."""
    stored = {"x": x, "residual": residual, "y": y}
    fields = {name: c_dtype(t.dtype) for name, t in stored.items() if t is not None}
    return Struct("ext_storage", fields)
