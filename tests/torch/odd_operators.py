"""Odd operands of operators: numbers that are none, axes without elements, booleans, float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.case import Case

aten = torch.ops.aten

_NUMBERS = torch.tensor([-3.7, -0.5, -0.0, 0.0, 0.3, 2.5, torch.inf, torch.nan])
_OTHERS = torch.tensor([0.0, -2.0, 0.0, 0.0, torch.nan, 1.5, 3.0, 1.0])
_INTEGERS = torch.tensor([[-7, -1, 0], [3, 8, 11]])
_BYTES = torch.tensor([[0, 1, 200], [3, 0, 255]], dtype=torch.uint8)
_MASK = torch.tensor([[True, False, True], [False, False, True]])
_NOTHING = torch.zeros(3, 0, 2)
_DOUBLES = torch.linspace(-1, 2, 48, dtype=torch.float64).reshape(2, 4, 6).sin()
_POWERS = 2.0 ** torch.arange(-40, 41)
_TIES = torch.tensor([[2.0, 2.0, 1.0], [3.0, 0.0, 1.0]])

#: Infinite divisors of either sign, and small numbers whose product is 0.
_DIVIDENDS = torch.tensor([1.0, -1.0, 300.0, -0.5, 3e-30, -3e-30, 7.0, torch.inf, 0.0])
_DIVISORS = torch.tensor([-torch.inf, torch.inf, torch.inf, -torch.inf, -2e-30, 2e-30, 0.0, 2, -3])

#: What a family of functions computes of each, all of them as PyTorch does.
ODD: dict[str, Case] = {
    "conjugate_doubles": (
        lambda x: torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()),
        (torch.linspace(-3, 4, 12).double().view(2, 3, 2),),
    ),
    "sign": (torch.sign, (_NUMBERS,)),
    "sign_bytes": (torch.sign, (_BYTES,)),
    "sign_booleans": (torch.sign, (_MASK,)),
    "floor_divide": (torch.floor_divide, (_NUMBERS[:6], _OTHERS[:6])),
    "pow_0": (lambda x: x**0, (_INTEGERS,)),
    "pow_7": (lambda x: x**7, (_INTEGERS,)),
    "atan2_integers": (torch.atan2, (_INTEGERS, _INTEGERS.flip(0))),
    "maximum_booleans": (lambda x: torch.maximum(x, x.flip(1)), (_MASK,)),
    "minimum_booleans": (lambda x: torch.minimum(x, x.flip(1)), (_MASK,)),
    "fmax": (torch.fmax, (_NUMBERS, _OTHERS)),
    "fmin": (torch.fmin, (_NUMBERS, _OTHERS)),
    "fmin_integers": (lambda x: torch.fmin(x, x.flip(1)), (_INTEGERS,)),
    "amax_booleans": (lambda x: x.amax(1), (_MASK,)),
    "min_booleans": (lambda x: x.min(), (_MASK,)),
    "max_along_booleans": (lambda x: x.max(1)[0], (_MASK,)),
    "any_bytes": (lambda x: x.any(0), (_BYTES,)),
    "any_of_nothing": (lambda x: x.any(1), (_NOTHING,)),
    "all_of_nothing": (lambda x: x.all(), (_NOTHING,)),
    "mean_of_nothing": (lambda x: x.mean(1), (_NOTHING,)),
    "var_of_nothing": (lambda x: x.var(1, correction=0), (_NOTHING,)),
    "var_over_corrected": (lambda x: x.var(0, correction=2), (_TIES,)),
    "argmax_kept": (lambda x: x.argmax(keepdim=True), (_TIES,)),
    "sort": (lambda x: torch.cat(x.sort(dim=-1, stable=True)), (_NUMBERS,)),
    "sort_down": (lambda x: torch.cat(x.sort(0, True)), (_NUMBERS,)),
    "sort_booleans": (lambda x: x.sort(dim=1, stable=True)[1], (_MASK,)),
    "argsort_bytes": (lambda x: x.argsort(dim=1, stable=True), (_BYTES,)),
    "isinf_booleans": (torch.isinf, (_MASK,)),
    "isfinite_integers": (torch.isfinite, (_INTEGERS,)),
    "histc": (lambda x: torch.histc(x, 5, -1.0, 2.0), (_NUMBERS,)),
    "histc_places": (lambda x: torch.histc(x, 4, 0, 3), (torch.tensor([0.0, 3.0, 3.0, 1.0, 4.0]),)),
    "empty": (lambda x: torch.empty_like(x).fill_(2.0) + x, ((3, 4),)),
    "cumprod": (lambda x: x.cumprod(1), ((3, 4),)),
    "softmax_of_one": (lambda x: x.softmax(0) + x.log_softmax(-1), ((),)),
    "floor_divide_unbounded": (torch.floor_divide, (_DIVIDENDS, _DIVISORS)),
    "remainder_unbounded": (torch.remainder, (_DIVIDENDS, _DIVISORS)),
    "layer_norm_doubles": (nn.LayerNorm(6, dtype=torch.float64), (_DOUBLES,)),
    "copies": (
        lambda x: torch.cat([aten.permute_copy(x, [1, 0])[:2], *aten.split_copy(x, 2)]),
        ((4, 4),),
    ),
    "copied_parts": (
        lambda x: torch.stack(
            [
                *(aten.slice_copy(x, 1, 1, 4), aten.narrow_copy(x, 1, 0, 3)),
                aten.as_strided_copy(x, [2, 3], [5, 1], 1),
                torch.stack(aten.unbind_copy(x, 1)[:3], 1),
                aten.select_copy(x, 0, 1)[:3].expand(2, 3),
            ]
        ),
        ((2, 5),),
    ),
    "rms_norm_computed_scale": (lambda x, y: F.rms_norm(x, (6,), y), ((3, 4, 6), (6,))),
    "rms_norm_of_all": (lambda x, y: F.rms_norm(x, (4, 6), y), ((4, 6), (4, 6))),
    "rms_norm_doubles": (lambda x: F.rms_norm(x, (6,), eps=1e-3), (_DOUBLES,)),
    "group_norm_doubles": (nn.GroupNorm(2, 4, dtype=torch.float64), (_DOUBLES,)),
    "instance_norm_doubles": (F.instance_norm, (_DOUBLES,)),
    "group_norm_halves": (
        lambda x: F.group_norm(x.bfloat16(), 2, torch.arange(4.0).bfloat16()).float(),
        ((2, 4, 3),),
    ),
    "layer_norm_halves": (lambda x: F.layer_norm(x.bfloat16(), (6,), torch.ones(6)), ((3, 6),)),
    "floor_of_log2": (lambda x: torch.log2(x).floor(), (_POWERS,)),
    "log2": (torch.log2, (torch.tensor([0.0, 1e-45, 3e-39, 0.7, 3e38, torch.inf, -1.0]),)),
    "exp2_of_whole_numbers": (lambda x: torch.exp2(x) == 2**x, (torch.arange(-40.0, 41.0),)),
    "clamp_to_nothing": (lambda x: x.clamp(torch.nan, 1.0), (_NUMBERS,)),
}
