"""What mixtures of experts are made of: an order by experts, and products with their matrices.

    ExpertOrder(expert)                          the places that sort them
    ExpertProduct(x, expert, w, scales, zeros)   = x[i] transpose(w[expert[i]])

Constant matrices are floats, or integers of 2, 4 or 8 bits with scales for each row or block of it.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.frontends.onnx.converters.block_weight import unpacked
from byoc.frontends.onnx.converters.node import Node
from byoc.ir.dataflow import constant

#: Bits of integers that share a byte, or are one.
_BITS = (2, 4, 8)


def order(node: Node) -> relax.Expr:
    """The places of a vector's elements in the order of these."""
    return relax.op.topk(node.inputs[0], -1, 0, "indices", False, "int64")


def product(node: Node) -> relax.Expr:
    """Each row by the matrix of its expert; written as ``patterns.grouped_matmul`` knows it."""
    x, expert = node.inputs[0], node.inputs[1]
    matrices = _matrices(node)
    if node.shape() is None or node.shape()[1] != matrices.shape[2]:
        raise ValueError(f"rows {node.shape()} by matrices {list(matrices.shape)}")
    made = constant(np.array(0), "float32")
    for number, matrix in enumerate(matrices):
        turned = constant(matrix.T, "float32")
        value = node.emit(relax.op.matmul(x, turned))
        if len(matrices) == 1:
            return value
        own = node.emit(relax.op.equal(expert, constant(np.array(number), "int64")))
        made = node.emit(relax.op.where(own, value, made))
    return made


def _matrices(node: Node) -> np.ndarray:
    """Float32 [experts, N, K]. Raises ``ValueError`` for what is computed, or does not fit."""
    arrays = [
        None if node.inputs[place] is None else _constant(node, place)
        for place in range(2, len(node.inputs))
    ]
    weight, scale, zero = (*arrays, None, None)[:3]
    bits, block = node.attrs.get("bits", 0), node.attrs.get("block_size", 0)
    if weight is None or weight.ndim != 3 or not len(weight):
        raise ValueError("matrices of the experts; need [experts, N, K]")
    if not bits:
        return weight.astype(np.float32)
    if bits not in _BITS or weight.dtype != np.uint8 or scale is None:
        raise ValueError(f"{weight.dtype} of {bits} bits; need uint8 of 2, 4 or 8, with scales")
    integers = unpacked(weight, bits)
    count, n, k = integers.shape
    blocks = k // block if block and scale.ndim == 3 else 1
    if scale.size != count * n * blocks or k % blocks:
        raise ValueError(
            f"scales {list(scale.shape)} of matrices {[count, n, k]}; need {[count, n, blocks]}"
        )
    scale = scale.astype(np.float32).reshape(count, n, blocks, 1)
    moved = np.float32(1 << (bits - 1)) if zero is None else _zeros(zero, bits, scale.shape)
    parts = integers.reshape(count, n, blocks, -1).astype(np.float32)
    return ((parts - moved) * scale).reshape(count, n, k)


def _constant(node: Node, place: int) -> np.ndarray:
    array = node.constant(place)
    if array is None:
        raise ValueError("matrices of the experts are computed; need constants")
    return array


def _zeros(zero: np.ndarray, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Zero points [experts, N, blocks, 1], packed along the blocks, or along N where one is."""
    count, n, blocks, _ = shape
    packed = unpacked(zero, bits)
    along = n if zero.ndim == 2 else blocks
    wanted = (count, n)[: zero.ndim - 1]
    if packed.shape[:-1] != wanted or packed.shape[-1] < along or zero.dtype != np.uint8:
        raise ValueError(f"zero points {list(zero.shape)} of {zero.dtype} for scales {shape}")
    return packed[..., :along].reshape(shape).astype(np.float32)
