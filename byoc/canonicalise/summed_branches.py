"""Write sums of convolutions, or of matrix products, of one input as a single one.

    conv(x, V) + conv(x, W) + x * s + t  =  conv(x, V + [W] + [s]) + t
    x V + (x A) B                        =  x (V + A B)

[W] is the window W among zeros where V reads what W read, [s] the tap that reads the pixel at
which the result stands, and scales each channel. Networks that are trained in branches (RepVGG,
MobileOne) and those with low-rank adapters are exported so. Weights are summed in fp64 and rounded
once. The windows of no summand may read what that of the largest does not, so that products become
fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import prod

import numpy as np
from tvm import relax

from byoc.canonicalise.fold_affine import is_plain_layout, per_channel, result_bias
from byoc.ir.algebra import drops_digits, fits_single
from byoc.ir.dataflow import (
    Block,
    array_of,
    constant,
    dtype_of,
    is_kernel_float,
    op_name,
    shape_of,
)

_SUMS = ("relax.add", "relax.subtract")
_CONVOLUTIONS = ("relax.nn.conv2d", "relax.nn.conv3d")


@dataclass(frozen=True)
class _Summand:
    """An operand of a sum, with the sign that it has there."""

    value: relax.Expr
    sign: float


@dataclass(frozen=True)
class _Axis:
    """What a window reads of an axis: taps, ``step`` apart, of which the first is at ``first``
    when the result is at 0, and how far the window moves for the next result."""

    first: int
    step: int
    taps: int
    stride: int


@dataclass(frozen=True)
class _Branch:
    """A summand that is linear in ``source``.

    ``factors`` are multiplied in order, as matrices, unless there is one; ``call`` is the
    convolution or product whose result it is, and None for scaled pixels, whose one factor is the
    scale of each channel.
    """

    summand: _Summand
    source: relax.Var
    axes: tuple[_Axis, ...]
    factors: tuple[np.ndarray, ...]
    call: relax.Call | None

    @property
    def is_host(self) -> bool:
        """Whether others may be added to its weight."""
        return self.call is not None and len(self.factors) == 1

    @property
    def taps(self) -> int:
        """The size of its window."""
        return prod(axis.taps for axis in self.axes)


def summed_branches(block: Block, pixels: bool = True) -> None:
    """Rewrite sums of which two summands or more are linear in the same value.

    With ``pixels``, the value itself may be one of them: its weight is 1, beside which those of the
    convolution have fewer digits, which numbers of fewer bits than fp32 have no room for.
    """
    inner: set[relax.Var] = set()
    for var, call in reversed(list(block.calls(*_SUMS))):
        if var not in inner and is_kernel_float(call) and shape_of(call) is not None:
            while _join(block, var, pixels, inner):
                pass


def summed_branches_unless(exact: bool, narrow: bool) -> Callable[[Block], None]:
    """The rule where special values need not flow ``exact``-ly, and weights may be ``narrow``."""

    @wraps(summed_branches)
    def rule(block: Block) -> None:
        if not exact:
            summed_branches(block, pixels=not narrow)

    return rule


def _join(block: Block, var: relax.Var, pixels: bool, inner: set[relax.Var]) -> bool:
    """Join summands of ``var`` if that can be; the sums between them are ``inner``."""
    summands = _summands(block, var, inner)
    groups: dict[relax.Var, list[_Branch]] = {}
    for summand in summands:
        branch = _branch(block, summand, var)
        if branch is not None and (pixels or branch.call is not None):
            groups.setdefault(branch.source, []).append(branch)
    for group in groups.values():
        for host in sorted(group, key=lambda branch: -branch.taps):
            joined = [host, *(each for each in group if _fits(each, host))]
            if host.is_host and len(joined) > 1 and _rewrite(block, var, summands, joined):
                return True
    return False


def _summands(block: Block, root: relax.Var, inner: set[relax.Var]) -> list[_Summand]:
    """What is summed up to ``root`` through values of its shape that nothing else reads."""
    found: list[_Summand] = []
    open_ends = [_Summand(root, 1.0)]
    while open_ends:
        end = open_ends.pop()
        call = block.call(end.value, *_SUMS)
        between = end.value is root or (
            block.is_private(end.value) and not block.is_cast(end.value)
        )
        if call is None or not between or shape_of(end.value) != shape_of(root):
            found.append(end)
            continue
        inner.add(end.value)
        sign = end.sign if op_name(call) == "relax.add" else -end.sign
        open_ends += [_Summand(call.args[1], sign), _Summand(call.args[0], end.sign)]
    return found


def _branch(block: Block, summand: _Summand, root: relax.Var) -> _Branch | None:
    """Read a summand as what is linear in one value; None for others."""
    value = summand.value
    if not isinstance(value, relax.Var) or shape_of(value) != shape_of(root):
        return None
    call = block.call(value, *_CONVOLUTIONS, "relax.matmul")
    if call is None:
        return _pixels(block, summand)
    weight = array_of(call.args[1])
    source = call.args[0]
    if weight is None or not block.is_private(value) or not isinstance(source, relax.Var):
        return None
    if op_name(call) in _CONVOLUTIONS:
        if not is_plain_layout(call):
            return None
        return _Branch(summand, source, _axes(call), (weight,), call)
    if weight.ndim != 2:
        return None
    first = block.call(source, "relax.matmul") if block.is_private(source) else None
    outer = None if first is None else array_of(first.args[1])
    if outer is not None and outer.ndim == 2 and isinstance(first.args[0], relax.Var):
        return _Branch(summand, first.args[0], (), (outer, weight), call)
    return _Branch(summand, source, (), (weight,), call)


def _pixels(block: Block, summand: _Summand) -> _Branch | None:
    """Read ``x``, or ``x * s`` with a constant for each channel."""
    source, scale, rank = summand.value, np.ones(()), len(shape_of(summand.value))
    call = block.call(source, "relax.multiply")
    if rank < 3:
        return None
    if call is not None and block.is_private(source):
        for side, operand in enumerate(call.args):
            values = array_of(call.args[1 - side])
            if values is None or shape_of(operand) != shape_of(call):
                continue
            dims = (1,) * (rank - values.ndim) + values.shape
            if dims[1] == values.size:
                source, scale = operand, values.reshape(-1)
    if not isinstance(source, relax.Var):
        return None
    axes = (_Axis(0, 1, 1, 1),) * (rank - 2)
    return _Branch(summand, source, axes, (scale,), None)


def _axes(call: relax.Call) -> tuple[_Axis, ...]:
    taps = shape_of(call.args[1])[2:]
    attrs = call.attrs
    return tuple(
        _Axis(-int(attrs.padding[i]), int(attrs.dilation[i]), taps[i], int(attrs.strides[i]))
        for i in range(len(taps))
    )


def _fits(branch: _Branch, host: _Branch) -> bool:
    """Whether another branch may be added to the weight of ``host``."""
    if branch is host or host.call is None or len(branch.axes) != len(host.axes):
        return False
    if any(_places(*pair) is None for pair in zip(branch.axes, host.axes, strict=True)):
        return False
    if branch.call is None:
        return shape_of(host.source) == shape_of(host.call)
    if not host.axes:
        return op_name(host.call) == op_name(branch.call) == "relax.matmul"
    return branch.call.attrs.groups == host.call.attrs.groups


def _places(small: _Axis, large: _Axis) -> slice | None:
    """Which taps of ``large`` read what those of ``small`` do; None where some do not."""
    offset = small.first - large.first
    step = small.step if small.taps > 1 else large.step
    if small.stride != large.stride or offset < 0 or offset % large.step or step % large.step:
        return None
    first, step = offset // large.step, step // large.step
    end = first + (small.taps - 1) * step + 1
    return slice(first, end, step) if end <= large.taps else None


def _weight(branch: _Branch, host: _Branch) -> np.ndarray:
    """What a branch adds to the weight of ``host``, in the window of its own, in fp64."""
    arrays = [np.asarray(factor, "float64") for factor in branch.factors]
    if branch.call is not None:
        return arrays[0] if len(arrays) == 1 else arrays[0] @ arrays[1]
    outputs, inputs = host.factors[0].shape[:2]
    channels = np.arange(outputs)
    weight = np.zeros((outputs, inputs, *(1,) * len(host.axes)))
    weight[channels, channels % inputs] = np.expand_dims(
        np.broadcast_to(arrays[0], (outputs,)), tuple(range(1, 1 + len(host.axes)))
    )
    return weight


def _rewrite(
    block: Block, var: relax.Var, summands: Sequence[_Summand], joined: Sequence[_Branch]
) -> bool:
    """Bind ``var`` to the sum with one contraction, of the first of ``joined``, for all of them.

    Returns False, and changes nothing, where numbers would leave fp32.
    """
    host = joined[0]
    weight = np.zeros(host.factors[0].shape)
    for branch in joined:
        places = (_places(*pair) for pair in zip(branch.axes, host.axes, strict=True))
        weight[(slice(None), slice(None), *places)] += branch.summand.sign * _weight(branch, host)
    gone = {branch.summand.value for branch in joined}
    others = [each for each in summands if each.value not in gone]
    biases = [(each, bias) for each in others if (bias := _bias(each, host.call)) is not None]
    total = sum((each.sign * bias for each, bias in biases), np.zeros(()))
    dropped = any(drops_digits(bias, 8) for _, bias in biases)
    if dropped or not fits_single(weight) or not fits_single(total):
        return False
    call = host.call
    value: relax.Expr = relax.Call(
        call.op, [host.source, constant(weight, dtype_of(call))], call.attrs, call.ty_args
    )
    steps = [(relax.op.add, constant(total, dtype_of(call)))] if np.any(total) else []
    kept = [each for each in others if all(each is not bias for bias, _ in biases)]
    steps += [(relax.op.add if each.sign > 0 else relax.op.subtract, each.value) for each in kept]
    for step, operand in steps:
        value = step(block.emit(var, value, var.name), operand)
    block.replace(var, value)
    block.remove_unused()
    return True


def _bias(summand: _Summand, call: relax.Call) -> np.ndarray | None:
    """A constant of each output channel, or of all, in fp64, that broadcasts to results."""
    values = array_of(summand.value)
    if values is None:
        return None
    vector = per_channel(call, np.asarray(values, "float64"))
    if vector is None or not np.isfinite(vector).all():
        return None
    return result_bias(call, vector)
