"""Scales that a quantised network chooses of its data, in terms of operators with converters.

low, high = min(x, 0), max(x, 0);   scale = max((high - low) / (most - least), eps)
zero point = clamp(least - round(low / scale), least, most)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed as pt2e

_OPERATORS = torch.ops.quantized_decomposed


def affine(
    x: torch.Tensor, least: int, most: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """For all elements, between their least and their greatest."""
    low, high = _range(x)
    scale = torch.clamp((high - low) / float(most - least), min=eps)
    point = torch.clamp(least - torch.round(low / scale), least, most)
    return scale.reshape(1).double(), point.reshape(1).to(torch.int64)


def symmetric(
    x: torch.Tensor, least: int, most: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """For all elements, as far below 0 as above."""
    low, high = _range(x)
    scale = torch.clamp(torch.maximum(-low, high) / (float(most - least) / 2), min=eps)
    point = torch.full((1,), 128 if dtype == torch.uint8 else 0)
    return scale.reshape(1).double(), point


def _range(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = torch.aminmax(x)
    return torch.clamp(low, max=0), torch.clamp(high, min=0)


def converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A cast that nothing is fused with."""
    return x.to(dtype)


DYNAMIC_QUANTISATION: dict[Any, Callable[..., Any]] = {
    _OPERATORS.choose_qparams.tensor: affine,
    _OPERATORS.choose_qparams_symmetric.tensor: symmetric,
    _OPERATORS.convert_element_type.no_fuse: converted,
    **{
        getattr(_OPERATORS, name).default: getattr(pt2e, name)
        for name in (
            "choose_qparams_per_token",
            "quantize_per_token",
            "dequantize_per_token",
            "quantize_per_channel_group",
            "dequantize_per_channel_group",
        )
    },
    _OPERATORS.choose_qparams_per_token_asymmetric.default: (
        pt2e._choose_qparams_per_token_asymmetric_impl
    ),
}
