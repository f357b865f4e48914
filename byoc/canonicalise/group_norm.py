"""Bring normalisations of groups of channels into one operator, ``group_norm`` or a like one.

    y = (norm(x as [N, G, ...]) * g + b) as x's shape        = group_norm(x) * g' + b'
    y = norm(x) * gamma + beta                               = norm(x, gamma, beta)

norm: ``instance_norm`` of G channels, ``group_norm`` of as many groups, or ``layer_norm`` of all
axes behind them; g and b are constants, one for each group, gamma and beta per channel. All of them
may be absent.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from byoc.canonicalise.layer_norm import only_step
from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    shape_of,
    static_shape_of,
)
from codegen_cc.dim import same

GROUP, INSTANCE, LAYER, RMS = (
    f"relax.nn.{kind}_norm" for kind in ("group", "instance", "layer", "rms")
)


def group_norm_from_pieces(block: Block) -> None:
    """Rewrite fp32 norms of groups that are axis 1 of a reshape, and what scales and shifts."""
    _take_affine(block)
    for var, _ in block.calls("relax.reshape"):
        norm = _groups_of_reshape(block, var) if is_kernel_float(var) else None
        if norm is not None:
            block.replace(var, norm)
    _take_affine(block)


def norms_with_variable_scale(block: Block) -> None:
    """Take gamma and beta that are no constants out of fp32 layer and RMS norms of last axes."""
    for var, call in block.calls(LAYER, RMS):
        source, *parts = call.args
        shape = static_shape_of(parts[0])
        if all(array_of(part) is not None for part in parts) or not is_kernel_float(var):
            continue
        if shape is None or any(static_shape_of(part) != shape for part in parts):
            continue
        axes = [int(axis) % source.ty.ndim for axis in call.attrs.axes]
        last = list(range(source.ty.ndim - len(axes), source.ty.ndim))
        layer = op_name(call) == LAYER
        if axes != last or (layer and not (call.attrs.scale and call.attrs.center)):
            continue
        neutral = [constant(np.full(shape, v), dtype_of(var)) for v in (1.0, 0.0)[: len(parts)]]
        norm = relax.op.nn.layer_norm if layer else relax.op.nn.rms_norm
        normal = block.emit(var, norm(source, *neutral, axes, float(call.attrs.epsilon)))
        scaled = relax.op.multiply(normal, parts[0])
        block.replace(var, relax.op.add(block.emit(var, scaled), parts[1]) if layer else scaled)


def _groups_of_reshape(block: Block, var: relax.Var) -> relax.Expr | None:
    """The norm of an image's groups that a reshape gives back; None for another reshape."""
    normal = block.values[var].args[0]
    norm = block.call(normal, GROUP, INSTANCE, LAYER)
    apart = None if norm is None else block.call(norm.args[0], "relax.reshape")
    if apart is None or not block.is_private(normal):
        return None
    source = apart.args[0]
    groups, affine = _groups(norm), _affine(norm)
    shape, inside = shape_of(source), shape_of(norm.args[0])
    if groups is None or affine is None or not shape or len(shape) < 2 or shape != shape_of(var):
        return None
    # The same images, and groups that are whole channels.
    fixed = isinstance(shape[1], int) and inside[1] == groups and groups > 0
    if not fixed or shape[1] % groups or not same(shape[0], inside[0]):
        return None
    vectors = [constant(v.repeat(shape[1] // groups), dtype_of(var)) for v in affine]
    return _group_norm(source, groups, *vectors, float(norm.attrs.epsilon))


def _groups(norm: relax.Call) -> int | None:
    """The groups of a norm over all axes behind the channels; of others None."""
    shape, attrs = shape_of(norm), norm.attrs
    if not shape or len(shape) < 2 or not isinstance(shape[1], int):
        return None
    rank = len(shape)
    if sorted(int(axis) % rank for axis in attrs.axes) != list(range(2, rank)):
        return None
    if op_name(norm) == LAYER:
        return shape[1] if rank > 2 else None
    if int(attrs.channel_axis) % rank != 1:
        return None
    return shape[1] if op_name(norm) == INSTANCE else int(attrs.num_groups)


def _affine(norm: relax.Call) -> list[np.ndarray] | None:
    """Gamma and beta of a norm for each channel; None if these are not known or of pixels."""
    attrs, channels = norm.attrs, shape_of(norm)[1]
    vectors = []
    for used, vector, number in (
        (attrs.scale, norm.args[1], 1.0),
        (attrs.center, norm.args[2], 0.0),
    ):
        values = array_of(vector) if used else np.full(channels, number)
        if values is not None and op_name(norm) == LAYER:
            values = np.full(channels, number) if (values == number).all() else None
        if values is None:
            return None
        vectors.append(np.asarray(values, "float64").reshape(-1))
    return vectors


def _group_norm(
    source: relax.Expr, groups: int, gamma: relax.Expr, beta: relax.Expr, epsilon: float
) -> relax.Expr:
    axes = list(range(2, len(shape_of(source))))
    return relax.op.nn.group_norm(source, gamma, beta, groups, 1, axes, epsilon)


def _take_affine(block: Block) -> None:
    """Rebind the last of a norm's scale and shift to a norm that does them itself."""
    for var, norm in block.calls(GROUP, INSTANCE, LAYER):
        groups = _groups(norm) if is_kernel_float(var) else None
        affine = None if groups is None else _affine(norm)
        if affine is None:
            continue
        last, scale = _followed_by(block, var, "relax.multiply")
        last, shift = _followed_by(block, last, "relax.add")
        if last == var:
            continue
        vectors = _joined(block, last, affine, scale, shift)
        if vectors is not None:
            epsilon = float(norm.attrs.epsilon)
            block.replace(last, _group_norm(norm.args[0], groups, *vectors, epsilon))


def _joined(
    block: Block,
    var: relax.Var,
    affine: list[np.ndarray],
    scale: relax.Expr | None,
    shift: relax.Expr | None,
) -> list[relax.Expr] | None:
    """Gamma and beta of constants, then of what follows; None where they would be computed."""
    gamma, beta = affine
    neutral = (gamma == 1.0).all() and (beta == 0.0).all()
    later = [None if expr is None else array_of(expr) for expr in (scale, shift)]
    if all(
        expr is None or known is not None for expr, known in zip((scale, shift), later, strict=True)
    ):
        by, beyond = (
            number if known is None else np.asarray(known, "float64").reshape(-1)
            for known, number in zip(later, (1.0, 0.0), strict=True)
        )
        return [constant(v, dtype_of(var)) for v in (gamma * by, beta * by + beyond)]
    if not neutral:
        return None
    channels = shape_of(var)[1]
    return [
        constant(known, dtype_of(var))
        if expr is None
        else block.emit(var, relax.op.reshape(expr, (channels,)))
        for expr, known in ((scale, gamma), (shift, beta))
    ]


def _followed_by(block: Block, var: relax.Var, name: str) -> tuple[relax.Var, relax.Expr | None]:
    """The only reader of a variable, and what is per channel that it combines it with.

    Else the variable itself and None.
    """
    step = only_step(block, var, name)
    if step is None:
        return var, None
    reader, other = step
    shape, image = shape_of(other), shape_of(var)
    pixels = len(image) - 2
    if shape is None or dtype_of(other) != dtype_of(var) or len(shape) < pixels + 1:
        return var, None
    before, (channels, *behind) = shape[: -pixels - 1], shape[len(shape) - pixels - 1 :]
    plain = channels == image[1] and all(extent == 1 for extent in (*before, *behind))
    return (reader, other) if plain else (var, None)
