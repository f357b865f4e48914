"""Fold scales and shifts with constants into weights, and join chains of them.

    conv(x, W) * s + t          = conv(x, W s) + t        s, t per output channel, or scalars
    (conv(x, W) + b) * s + t    = conv(x, W s) + (b s + t)
    ((x * a) + b) * c + d       = x * (a c) + (b c + d)

Constants are combined in fp64 and rounded once. A value in the middle that anything else reads
ends the fold. Constants that are not finite stay where they are, and so do those that are beyond
fp32 together, and shifts so large that they drop digits: ``x + 1.5 * 2^23 - 1.5 * 2^23`` is how
some networks round to whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from byoc.ir.algebra import drops_digits, fits_single, near
from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    scalar_of,
    shape_of,
)

STEPS = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
#: Layouts of data and of the weight, of which only the plain ones are folded into.
CONVOLUTIONS = {
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW"),
}
CONTRACTIONS = (*CONVOLUTIONS, "relax.matmul")


@dataclass(frozen=True)
class Affine:
    """``x * scale + shift``; fp64 arrays that broadcast to x."""

    scale: np.ndarray
    shift: np.ndarray

    def then(self, later: Affine) -> Affine:
        """The map that does this one first and the later one second."""
        return Affine(self.scale * later.scale, self.shift * later.scale + later.shift)


ONE, ZERO = np.ones(()), np.zeros(())


def step_of(block: Block, var: relax.Expr) -> tuple[relax.Expr, Affine] | None:
    """Read ``x + c``, ``x - c``, ``c - x``, ``x * c`` or ``x / c`` with a finite constant c."""
    call = block.call(var, *STEPS)
    if call is None or not is_kernel_float(call):
        return None
    name = op_name(call)
    for side, source in enumerate(call.args):
        values = array_of(call.args[1 - side])
        if values is None or not isinstance(source, relax.Var):
            continue
        if shape_of(source) is None or shape_of(source) != shape_of(call):
            return None
        c = np.asarray(values, "float64")
        if not np.isfinite(c).all():
            return None
        if name == "relax.add":
            return source, Affine(ONE, c)
        if name == "relax.subtract":
            return source, (Affine(ONE, -c) if side == 0 else Affine(-ONE, c))
        if name == "relax.multiply":
            return source, Affine(c, ZERO)
        if side == 0 and (c != 0.0).all():
            return source, Affine(1.0 / c, ZERO)
    return None


def fold_affine(block: Block) -> None:
    """Fold steps after a convolution or matmul with a constant weight into it."""
    for var, _ in block.calls(*STEPS):
        found = step_of(block, var)
        if found is None or not block.is_private(found[0]):
            continue
        source, affine = found
        if block.call(source, *CONTRACTIONS) is not None and affine.scale is ONE:
            contraction = block.call(source, *CONTRACTIONS)
            if per_channel(contraction, affine.shift) is not None and affine.shift.size > 1:
                continue  # a plain bias already
        absorb(block, var, source, affine)


def absorb(block: Block, var: relax.Var, source: relax.Expr, affine: Affine) -> bool:
    """Bind ``var``, which is ``affine`` of ``source``, to a contraction with adjusted weight.

    ``source`` must be a contraction, or one plus a bias, that nothing but ``var`` reads, and the
    constants must be per output channel. Returns False, and changes nothing, if that is not so.
    """
    bias = None
    root = source
    if block.call(source, "relax.add") is not None:
        step = step_of(block, source)
        if step is None or not block.is_private(step[0]) or drops_digits(step[1].shift, 8):
            return False
        root, bias = step[0], step[1].shift
    call = block.call(root, *CONTRACTIONS)
    if call is None or not is_kernel_float(call) or shape_of(call) is None:
        return False
    weight = array_of(call.args[1])
    vectors = [per_channel(call, a) for a in (affine.scale, affine.shift)]
    old_bias = ZERO if bias is None else per_channel(call, bias)
    if weight is None or old_bias is None or any(vector is None for vector in vectors):
        return False
    scale, shift = vectors
    total = np.broadcast_to(old_bias * scale + shift, (_channels(call),))
    if affine.scale is not ONE:
        scaled = _scaled(call, np.asarray(weight, "float64"), scale)
        if not fits_single(scaled):
            return False
        new_weight = constant(scaled, dtype_of(call))
        call = relax.Call(call.op, [call.args[0], new_weight], call.attrs, call.ty_args)
    if not fits_single(total):
        return False
    if bias is None and not total.any():
        block.replace(var, call)
        return True
    fresh = block.emit(var, call, root.name)
    block.replace(var, relax.op.add(fresh, constant(result_bias(call, total), dtype_of(call))))
    return True


def result_bias(call: relax.Call, vector: np.ndarray) -> np.ndarray:
    """A vector over output channels, so that it broadcasts to the result of a contraction."""
    is_conv = op_name(call) in CONVOLUTIONS
    return vector.reshape(1, -1, *(1,) * (len(shape_of(call)) - 2)) if is_conv else vector


def _scaled(call: relax.Call, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The weight of a contraction whose results are scaled by channel, or all alike."""
    if op_name(call) not in CONVOLUTIONS or scale.size == 1:
        return weight * scale
    ones = (1,) * (weight.ndim - 2)
    if not _is_transposed(call):
        return weight * scale.reshape(-1, 1, *ones)
    # [I, O / groups, ...]: inputs of a group one after the other.
    groups = int(call.attrs.groups)
    split = weight.reshape(groups, -1, *weight.shape[1:]) * scale.reshape(groups, 1, -1, *ones)
    return split.reshape(weight.shape)


def _is_transposed(call: relax.Call) -> bool:
    return CONVOLUTIONS[op_name(call)][1].startswith("I")


def _channels(call: relax.Call) -> int:
    """Output channels of a contraction that ``per_channel`` accepts."""
    shape = shape_of(call.args[1])
    if op_name(call) not in CONVOLUTIONS:
        return shape[-1]
    return shape[1] * int(call.attrs.groups) if _is_transposed(call) else shape[0]


def is_plain_layout(call: relax.Call) -> bool:
    """Whether a convolution has the layouts that are folded into."""
    plain = CONVOLUTIONS[op_name(call)]
    layouts = (call.attrs.data_layout, call.attrs.kernel_layout)
    return layouts == plain and call.attrs.out_layout in (plain[0], "")


def per_channel(call: relax.Call, values: np.ndarray) -> np.ndarray | None:
    """A constant as a scalar or a vector over output channels; None if it is neither."""
    rank = len(shape_of(call))
    if op_name(call) in CONVOLUTIONS:
        if not is_plain_layout(call):
            return None
        axis = 1
    else:
        if len(shape_of(call.args[1]) or ()) != 2:
            return None
        axis = rank - 1
    if values.size == 1:
        return values.reshape(())
    dims = (1,) * (rank - values.ndim) + values.shape
    if len(dims) != rank or values.size != dims[axis] or dims[axis] != _channels(call):
        return None
    return values.reshape(-1)


def merge_affine(block: Block) -> None:
    """Join chains of steps on a tensor if that makes them fewer."""
    for var, _ in reversed(list(block.calls(*STEPS))):
        if var not in block.values:
            continue
        chain = steps_to(block, var)
        if len(chain) < 2:
            continue
        affine = joined(chain)
        has_scale, has_shift = (affine.scale != 1.0).any(), (affine.shift != 0.0).any()
        if int(has_scale) + int(has_shift) >= len(chain) or not (has_scale or has_shift):
            continue
        if not (fits_single(affine.scale) and fits_single(affine.shift)):
            continue
        source = chain[-1][0]
        scale, shift = (constant(values, dtype_of(var)) for values in (affine.scale, affine.shift))
        if has_scale and has_shift:
            source = block.emit(var, relax.op.multiply(source, scale))
        if has_shift:
            block.replace(var, relax.op.add(source, shift))
        else:
            block.replace(var, relax.op.multiply(source, scale))
        block.remove_unused()


def joined(chain: list[tuple[relax.Expr, Affine]]) -> Affine:
    """What the steps of a chain are together."""
    affine = chain[-1][1]
    for _, step in reversed(chain[:-1]):
        affine = affine.then(step)
    return affine


def steps_to(block: Block, var: relax.Var) -> list[tuple[relax.Expr, Affine]]:
    """Steps from ``var`` upwards, the last one first, through values that nothing else reads."""
    chain: list[tuple[relax.Expr, Affine]] = []
    current: relax.Expr = var
    while True:
        step = step_of(block, current)
        if step is None or _ends_hard_swish(block, *step):
            return chain
        if chain and drops_digits(step[1].shift, 16):  # others keep this many of x - m near m
            return chain
        chain.append(step)
        current = step[0]
        if not block.is_private(current):
            return chain


def _ends_hard_swish(block: Block, source: relax.Expr, step: Affine) -> bool:
    """Whether a step is the division by six that hard swish and hard sigmoid end in."""
    if step.scale.size != 1 or not near(float(step.scale.reshape(())), 1.0 / 6.0):
        return False
    inner = block.call(source, "relax.multiply", "relax.clip")
    if inner is None:
        return False
    if op_name(inner) == "relax.clip":
        return True
    return all(scalar_of(argument) is None for argument in inner.args)
