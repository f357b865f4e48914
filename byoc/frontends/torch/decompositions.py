"""Which operators PyTorch takes apart: all that it can, but for those that have a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from byoc.frontends.torch.complex_in_pairs import in_pairs
from byoc.frontends.torch.converters.table import converter_of
from byoc.frontends.torch.derivatives import derivatives_of_operators
from byoc.frontends.torch.dynamic_quantisation import DYNAMIC_QUANTISATION
from byoc.frontends.torch.in_other_operators import own_decompositions


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for ``ExportedProgram.run_decompositions``."""
    table = torch.export.default_decompositions()
    for target in list(table):
        if converter_of(target) is not None:
            table.pop(target)
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default
    table = {
        **table,
        **derivatives_of_operators(),
        **own_decompositions(),
        **DYNAMIC_QUANTISATION,
        layer: encoder_layer,
    }
    return {**table, **in_pairs(table)}


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """``nn.TransformerEncoderLayer`` as one operator, which it calls where no gradients are wanted.

    The mask hides what is true, or not 0: of queries and keys (type 0), keys alone (1), both (2).
    """
    if mask is not None:
        shape = {0: (1, 1, *mask.shape), 1: (mask.shape[0], 1, 1, mask.shape[-1])}
        mask = mask.to(torch.bool).logical_not().reshape(shape.get(mask_type, mask.shape))

    def attention(x: torch.Tensor) -> torch.Tensor:
        parts = F.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        made = F.scaled_dot_product_attention(query, key, value, mask)
        return F.linear(made.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    def forward(x: torch.Tensor) -> torch.Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        inner = F.gelu(inner) if use_gelu else F.relu(inner)
        return F.linear(inner, ffn_weight_2, ffn_bias_2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        whole = src + attention(first(src))
        return whole + forward(second(whole))
    whole = first(src + attention(src))
    return second(whole + forward(whole))
