"""Products of float32 with a weight of 4 or 8 bits, whose blocks of rows have scales of their own.

    w[p, j] = (rhs[p, j] - w_zero_point[p / block, j]) w_scale[p / block, j]

``rhs`` has the shape [blocks, block, N], the numbers beside it [blocks, 1, N]; the product reads
its first K rows.  One of shape [K, N] has one scale, or one for each column.  Its dtype says how
many bits it is stored in, whatever the constant has.

With ``compute`` int8 a kernel may round the data: for each 128 rows of a block, or fewer, to
multiples of the largest number by 127.  Sums of products with integers are exact then.
"""

from __future__ import annotations

import numpy as np

from codegen_cc import dtypes
from codegen_cc.dim import same
from codegen_cc.dtypes import SINGLE
from codegen_cc.node import Node
from codegen_cc.operators.dtype_rules import c_dtype, one_of
from codegen_cc.operators.operands import not_constant
from codegen_cc.operators.packing import pack_block_numbers, pack_fields
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import RegionNode

#: What a product with such a weight has beside its sides.
BLOCK_SCALES = ("w_scale", "w_zero_point")

#: ``Node.compute`` of a product whose data may be rounded to bytes.
INT8_DATA = "int8"

#: How a weight may be stored.
STORED = ("int4", "uint4", "int8", "uint8")


def has_block_weight(node: Node) -> bool:
    """Whether a product's weight alone is quantised."""
    return node.operand("w_scale") is not None and node.operand("x_scale") is None


def rounds_data(node: Node) -> bool:
    """Whether a product with such a weight may round its data to bytes."""
    return node.compute == INT8_DATA


def block_weight_dtypes(node: Node) -> str | None:
    """float32 but for the weight and for zero points, which may be integers as well."""
    wanted = {"rhs": STORED, "w_zero_point": (SINGLE, *STORED[2:])}
    for operand in node.operands:
        reason = one_of(operand.role, operand.dtype, wanted.get(operand.role, (SINGLE,)))
        if reason:
            return reason
    return one_of("result", node.dtype, (SINGLE,))


def unfit_block_weight(node: Node) -> str | None:
    """Why the kernels cannot read such a weight, or None."""
    weight, k, n = node.operand("rhs"), node.operand("lhs").shape[-1], node.shape[-1]
    for role in ("rhs", *BLOCK_SCALES):
        operand = node.operand(role)
        if operand is not None and (reason := not_constant(operand)) is not None:
            return reason
    if len(weight.shape) == 3:
        blocks, block, _ = weight.shape
        rows = 32 // dtypes.of(weight.dtype).bits
        if blocks > 1 and block % rows:
            return f"blocks of {block} rows; need a multiple of {rows}"
        wanted = [[blocks, 1, n]]
        fits = not same(blocks, 0) and blocks * block >= k
    else:
        wanted, fits = [[], [1], [n]], len(weight.shape) == 2 and same(weight.shape[0], k)
    if not fits or not same(weight.shape[-1], n):
        return f"rhs {list(weight.shape)} of {weight.dtype}; need {k} rows of {n} columns"
    for role in BLOCK_SCALES:
        operand = node.operand(role)
        if operand is not None and list(operand.shape) not in wanted:
            shapes = " or ".join(map(str, wanted))
            return f"{role} has shape {list(operand.shape)}; need {shapes}"
    return None


def block_weight_struct(node: RegionNode, builder: PlanBuilder) -> Struct:
    """The ``ext_block_weight`` of a product."""
    weight, k = node.role("rhs").data, node.role("lhs").shape[-1]
    bits = dtypes.of(node.node.operand("rhs").dtype).bits
    n, block = weight.shape[-1], weight.shape[-2]
    blocks = -(-k // block)
    scale, zero = (_numbers(node, role, blocks, n) for role in BLOCK_SCALES)
    unsigned = weight.reshape(-1, n)[:k]
    if weight.dtype == np.int8:
        middle = 1 << (bits - 1)
        unsigned = (unsigned.astype(np.int16) + middle).astype(np.uint8)
        zero = middle + (np.zeros_like(scale) if zero is None else zero.astype(np.float32))
    elif zero is None:
        zero = np.zeros_like(scale)
    fields: dict[str, object] = {
        "bits": bits,
        "block": block,
        "values": builder.constant(pack_fields(unsigned, bits)),
        "scale": builder.constant(pack_block_numbers(scale)),
    }
    if rounds_data(node.node):
        fields["data_bits"] = 8
    if (zero != 1 << (bits - 1)).any():
        integers = (zero == np.rint(zero)).all() and zero.min() >= 0 and zero.max() <= 255
        zero = zero.astype(np.uint8 if integers else np.float32)
        fields["zero"] = builder.constant(pack_block_numbers(zero))
        fields["zero_dtype"] = c_dtype(str(zero.dtype))
    return Struct("ext_block_weight", fields)


def _numbers(node: RegionNode, role: str, blocks: int, n: int) -> np.ndarray | None:
    """Scales or zero points for each block and column; None where there are none."""
    value = node.role(role)
    if value is None:
        return None
    if value.data.ndim == 3:
        return value.data.reshape(-1, n)[:blocks]
    return np.broadcast_to(value.data, (blocks, n))
