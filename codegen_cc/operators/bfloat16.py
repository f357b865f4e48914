"""Products of bfloat16 numbers that are summed in float32, and when they are worth it.

Such a node has ``compute`` bfloat16.  Its constant operand is packed as bfloat16, rounded to the
nearest when compiling; the other one is rounded when it is read, or is stored so already
(``plan/narrow_storage.py``).  Bias, activation and residual are computed in float32.
"""

from __future__ import annotations

from codegen_cc.instruction_sets import in_use_here
from codegen_cc.node import Node
from codegen_cc.operators.dtype_rules import c_dtype
from codegen_cc.operators.packing import PanelFormat
from codegen_cc.plan.call import Struct
from codegen_cc.plan.tensors import Tensor

BFLOAT16 = "bfloat16"

#: What the kernels for bfloat16 read: two products at a time.
BFLOAT16_PANELS = PanelFormat(BFLOAT16, 2)

#: Products in bfloat16 for one in float32 in the same time, by what this machine has; where it has
#: neither, another one is meant that does.
_RATES = {"amx_bf16": 8.0, "avx512_bf16": 2.0}
_USUAL_RATE = 2.0


def in_bfloat16(node: Node) -> bool:
    """Whether a node multiplies in bfloat16."""
    return node.compute == BFLOAT16


def product_rate() -> float:
    """How many times as fast as in float32 products are in bfloat16."""
    here = in_use_here()
    return next((rate for row, rate in _RATES.items() if row in here), _USUAL_RATE)


def not_bfloat16(node: Node) -> str | None:
    """Why a node is not computed in what it says, where that is anything else than bfloat16."""
    if in_bfloat16(node):
        return None
    return f"to be computed in {node.compute}; need {node.dtype} or {BFLOAT16}"


def storage_struct(x: Tensor, residual: Tensor | None, y: Tensor) -> Struct:
    """The ``ext_storage`` of a call: what lies in memory."""
    stored = {"x": x, "residual": residual, "y": y}
    fields = {name: c_dtype(t.dtype) for name, t in stored.items() if t is not None}
    return Struct("ext_storage", fields)
