"""Operators that PyTorch does not take apart, in terms of such that have converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F

from byoc.frontends.torch.jacobi import JACOBI
from byoc.frontends.torch.lu import LU
from byoc.frontends.torch.statistics import COUNTS, POLYNOMIALS, TRACED_OTHERWISE

#: Rows of matrices whose reflections are written out.
MOST_ROWS = 32
#: Factors of a matrix' exponential, and how often its argument may be halved before.
_TERMS, _HALVES = 12, 16


def distance(x: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The norm of a difference."""
    return torch.linalg.vector_norm(x - other, p)


def distances(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    """Of every two rows, those of the first one first."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


def power_of_two_times(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """``x 2^exponent``."""
    wide = torch.result_type(x, 1.0)
    return x.to(wide) * torch.exp2(exponent.to(wide))


def diagonal_scatter(
    x: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """``x`` with another diagonal."""
    last = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = last.shape[-2:]
    wide = F.pad(src, (0, (rows if offset >= 0 else columns) - src.shape[-1]))
    wide = wide.unsqueeze(-1 if offset >= 0 else -2)
    on = torch.arange(columns) - torch.arange(rows)[:, None] == offset
    return torch.where(on, wide, last).movedim((-2, -1), (dim1, dim2))


def strided(
    x: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> torch.Tensor:
    """Elements at places of the memory of a dense tensor, which may be read more than once."""
    if not x.is_contiguous() or x.storage_offset():
        raise ValueError("as_strided of a view of other memory; need a dense tensor")
    places: Any = storage_offset or 0
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [-1 if i == axis else 1 for i in range(len(size))]
        places = places + (torch.arange(extent) * step).reshape(shape)
    return x.reshape(-1)[places]


def convolution_of_steps(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, pad: int = 0
) -> torch.Tensor:
    """A convolution of [steps, batch, channels], with a weight [taps, in, out]."""
    made = F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return made.permute(2, 0, 1)


def convolution_as_traced(*form: Any) -> torch.Tensor:
    """A convolution as traces of TorchScript have it: what chooses a kernel of PyTorch's follows
    the groups."""
    return torch.convolution(*form[:9])


def fake_quantised(
    x: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounded as whole numbers of a range would be, by the scale of each channel; and what was
    within that range."""
    shape = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    scale, zero = scale.reshape(shape), zero_point.reshape(shape)
    whole = torch.round(x / scale) + zero
    within = (whole >= quant_min) & (whole <= quant_max)
    return ((whole.clamp(quant_min, quant_max) - zero) * scale).to(x.dtype), within


def orthogonal(x: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    """``Q R`` of matrices by Householder's reflections, with LAPACK's signs."""
    rows, columns = x.shape[-2:]
    if not all(isinstance(n, int) and n <= MOST_ROWS for n in (rows, columns)):
        raise ValueError(f"QR of matrices [{rows}, {columns}]; need up to {MOST_ROWS} of each")
    right, whole = x, torch.eye(rows, dtype=x.dtype).expand(*x.shape[:-2], rows, rows)
    for k in range(min(rows - 1, columns)):
        column = right[..., k : k + 1]
        below = torch.where(torch.arange(rows)[:, None] > k, column, 0.0)
        head, rest = column[..., k : k + 1, :], below.square().sum(-2, keepdim=True)
        length = torch.sqrt(head.square() + rest)
        ends = torch.where(head < 0, length, -length)
        # Of a column that is one already nothing is reflected, and its sign stays.
        v = torch.where(torch.arange(rows)[:, None] == k, head - ends, below)
        factor = torch.where(rest > 0, 2 / (v.square().sum(-2, keepdim=True)), 0.0)
        factor = torch.nan_to_num(factor, 0.0, 0.0, 0.0)
        right = right - factor * v * (v.mT @ right)
        whole = whole - (whole @ v) * (factor * v.mT)
    right = right.triu()
    if mode == "complete":
        return whole, right
    least = min(rows, columns)
    return whole[..., :least], right[..., :least, :]


def exponential(x: torch.Tensor) -> torch.Tensor:
    """The exponential of matrices: of one that was halved so often that its norm is below 1/2,
    squared as often."""
    norm = x.abs().sum(-1).amax(-1)[..., None, None]
    halves = torch.ceil(torch.log2(norm.clamp(min=2.0**-8))).clamp(min=-1) + 1
    part = x * torch.exp2(-halves)
    identity = torch.eye(x.shape[-1], dtype=x.dtype)
    made = reduce(lambda a, k: identity + part @ a / k, range(_TERMS, 0, -1), identity)
    for step in range(_HALVES):
        made = torch.where(halves > step, made @ made, made)
    return made


def margins_of_labels(
    x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """``multilabel_margin_loss``, and which places are labels: those before the first -1.

    What PyTorch takes it apart into counts the other places as label 0 each.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    count = rows.shape[-1]
    ended = ((labels < 0).cumsum(-1) > 0)[..., None]
    places = labels.clamp(min=0)
    is_label = ((torch.arange(count) == places[..., None]) & ~ended).any(1)
    margins = (1 - rows.gather(1, places)[..., None] + rows[:, None]).clamp(min=0)
    loss = torch.where(ended | is_label[:, None], 0, margins).sum((1, 2)) / count
    whole = (lambda y: y[0] if x.dim() < 2 else y, torch.mean, torch.sum)[reduction](loss)
    return whole, is_label.to(x.dtype).reshape(x.shape)


def own_decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """What stands for operators, by these."""
    aten = torch.ops.aten
    return {
        aten.dist.default: distance,
        aten._pdist_forward.default: distances,
        aten.ldexp.Tensor: power_of_two_times,
        aten.diagonal_scatter.default: diagonal_scatter,
        aten.as_strided.default: strided,
        aten.as_strided_copy.default: strided,
        aten.narrow_copy.default: torch.narrow,
        aten.conv_tbc.default: convolution_of_steps,
        aten._convolution.default: convolution_as_traced,
        aten._convolution.deprecated: convolution_as_traced,
        aten.fake_quantize_per_channel_affine_cachemask.default: fake_quantised,
        aten.multilabel_margin_loss_forward.default: margins_of_labels,
        aten.linalg_qr.default: orthogonal,
        aten.linalg_matrix_exp.default: exponential,
        **JACOBI,
        **LU,
        **TRACED_OTHERWISE,
        **COUNTS,
        **POLYNOMIALS,
    }
