"""Fold scales and shifts with constants into the weight of the contraction that reads them.

    conv(x * s + t, W) + b  =  conv(x, W s) + (b + sum W t)      s, t per input channel, or scalars

A shift goes where the window never leaves the image: padding is zero, and not the shift of zero.
What is left of an image's normalisation before the patches of a ViT, or of affine blocks between
convolutions (HGNetV2), is nothing. Constants are combined in fp64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
from tvm import relax

from byoc.canonicalise.fold_affine import (
    CONTRACTIONS,
    CONVOLUTIONS,
    Affine,
    is_plain_layout,
    joined,
    result_bias,
    steps_to,
)
from byoc.ir.algebra import fits_single
from byoc.ir.dataflow import Block, array_of, constant, dtype_of, is_kernel_float, op_name, shape_of

_READERS = ("relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul")

#: The greatest shift. Where ``x s + t`` is near 0, x s is as far from it as t, and products lose so
#: many digits: tables whose numbers lie far from zero are shifted first.
_MOST_SHIFT = 4.0


def affine_before(block: Block, shifts: bool = True) -> None:
    """Rewrite contractions, by constant weights, of what is scaled or, with ``shifts``, shifted."""
    for var, call in block.calls(*_READERS):
        source, weight = call.args
        if array_of(weight) is None or not is_kernel_float(call) or not block.is_private(source):
            continue
        steps = steps_to(block, source)
        if not steps or block.call(steps[-1][0], *CONTRACTIONS) is not None:
            continue  # nothing, or a bias where it belongs
        _absorb(block, var, call, steps[-1][0], joined(steps), shifts)


def affine_before_unless(narrow: bool) -> Callable[[Block], None]:
    """The rule where data may be rounded to fewer bits (``narrow``): before a shift, then."""

    @wraps(affine_before)
    def rule(block: Block) -> None:
        affine_before(block, shifts=not narrow)

    return rule


def _absorb(
    block: Block, var: relax.Var, call: relax.Call, source: relax.Expr, affine: Affine, shifts: bool
) -> None:
    weight = array_of(call.args[1])
    vectors = [_per_input(call, weight, each) for each in (affine.scale, affine.shift)]
    if any(vector is None for vector in vectors):
        return
    scale, shift = vectors  # in fp64, and so is what they are multiplied by
    is_shifted = bool(shift.any())
    if is_shifted and (not shifts or abs(shift).max() > _MOST_SHIFT or _reads_padding(call)):
        return
    over = 0 if op_name(call) == "relax.matmul" else tuple(range(1, weight.ndim))
    scaled, bias = weight * scale, (weight * shift).sum(axis=over)
    if not (fits_single(scaled) and fits_single(bias)):
        return
    dtype = dtype_of(call)
    product = relax.Call(call.op, [source, constant(scaled, dtype)], call.attrs, call.ty_args)
    if is_shifted:
        product = relax.op.add(
            block.emit(var, product, var.name), constant(result_bias(call, bias), dtype)
        )
    block.replace(var, product)


def _reads_padding(call: relax.Call) -> bool:
    return op_name(call) in CONVOLUTIONS and any(int(pad) for pad in call.attrs.padding)


def _per_input(call: relax.Call, weight: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """A constant of each input channel, or of all, so that it broadcasts to the weight."""
    rank = len(shape_of(call.args[0]) or ())
    is_conv = op_name(call) in CONVOLUTIONS
    if rank < 2 or (is_conv and not is_plain_layout(call)) or (not is_conv and weight.ndim != 2):
        return None
    if values.size == 1:
        return values.reshape((1,) * weight.ndim)
    axis = 1 if is_conv else rank - 1
    dims = (1,) * (rank - values.ndim) + values.shape
    if len(dims) != rank or dims[axis] != values.size:
        return None
    if not is_conv:
        return values.reshape(-1, 1)
    # Outputs of a group one after the other, each of which reads the group's inputs.
    groups = int(call.attrs.groups)
    of_groups = np.repeat(values.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return of_groups.reshape(*of_groups.shape, *(1,) * (weight.ndim - 2))
