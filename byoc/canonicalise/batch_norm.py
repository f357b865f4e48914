"""Write batch normalisation with fixed statistics as a scale and a shift.

    y = x * s + t,   s = gamma / sqrt(variance + epsilon),   t = beta - mean * s

with s and t computed in fp64. After a convolution or a matmul they go into its weight and bias
at once; elsewhere they become ``multiply`` and ``add`` with constants.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.fold_affine import Affine, absorb
from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, shape_of


def decompose_batch_norm(block: Block) -> None:
    """Rewrite fp32 batch norms in inference form with constant statistics."""
    for var, call in block.calls("relax.nn.batch_norm"):
        readers = list(block.users(var))
        if call.attrs.training or block.is_fixed(var) or not is_kernel_float(call.args[0]):
            continue
        items = [block.values[reader] for reader in readers]
        if not all(isinstance(item, relax.TupleGetItem) and item.index == 0 for item in items):
            continue
        parameters = [array_of(argument) for argument in call.args[1:]]
        if any(values is None for values in parameters) or shape_of(call.args[0]) is None:
            continue
        scale, shift = scale_and_shift(call, *(np.asarray(p, "float64") for p in parameters))
        for reader in readers:
            _rewrite(block, reader, call, scale, shift)


def scale_and_shift(
    call: relax.Call, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The fp64 vectors s and t of a batch norm, one element per channel."""
    scale = 1.0 / np.sqrt(variance + float(call.attrs.epsilon))
    if call.attrs.scale:
        scale = scale * gamma
    shift = -mean * scale
    if call.attrs.center:
        shift = shift + beta
    return scale, shift


def _rewrite(
    block: Block, var: relax.Var, call: relax.Call, scale: np.ndarray, shift: np.ndarray
) -> None:
    source = call.args[0]
    rank = len(shape_of(source))
    axis = int(call.attrs.axis) % rank
    dims = [-1 if i == axis else 1 for i in range(rank)]
    affine = Affine(scale.reshape(dims), shift.reshape(dims))
    if block.is_private(source) and absorb(block, var, source, affine):
        return
    by, beyond = (constant(values, dtype_of(var)) for values in (affine.scale, affine.shift))
    block.replace(var, relax.op.add(block.emit(var, relax.op.multiply(source, by)), beyond))
