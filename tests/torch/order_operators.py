"""Operators about the order of elements, their bits, and what meets at one place."""

from __future__ import annotations

import torch

from tests.torch.case import Case

_INF, _NAN = torch.inf, torch.nan
_NUMBERS = torch.tensor([[-3.7, 0.5, -0.0, 0.0, 0.5, 2.5], [1.0, -_INF, _NAN, 3.0, _NAN, 2.0]])
_OTHERS = torch.tensor([[0.0, -2.0, 0.0, -0.0, 1.5, _NAN], [-_INF, _NAN, 3e38, 3e-39, 1.0, -4.0]])
_SIZES = torch.tensor([3e38, 1e-30, 0.0, _INF, 3.0, _NAN, -2.0, 1e-38, 5.0])
_MORE = torch.tensor([2e38, 1e-30, -0.0, _NAN, -4.0, 1.0, 0.0, 2e-38, -_INF])
_INTEGERS = torch.tensor([[-7, 3, 3, 8, -7, 11, 3], [5, 5, 2, 2, 9, 9, 1]])
_SMALL = torch.tensor([[-7, -1, 0], [3, 8, 11]], dtype=torch.int32)
_BY = torch.tensor([[1, 31, 32], [-1, 40, 2]], dtype=torch.int32)
_BYTES = torch.tensor([[0, 1, 200], [3, 7, 255]], dtype=torch.uint8)
_PLACES = torch.tensor([[0, 2, 0], [2, 2, 0], [0, 0, 0]])
_ROWS = torch.tensor([3, 0, 3])
_DOUBLES = torch.linspace(-1, 1, 6, dtype=torch.float64)
_LINES = torch.tensor([[0.0, 1.0, 2.0, 4.0], [-2.0, -1.0, 0.5, 9.0]])


def _scattered(reduce: str) -> Case:
    def apply(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        made = x.scatter_reduce(0, places, values, reduce, include_self=False)
        return torch.stack([made, x.scatter_reduce(0, places, values, reduce)])

    return apply, ((4, 3), _PLACES, (3, 4))


#: What a family of functions computes of each, all of them as PyTorch does.
ORDERED: dict[str, Case] = {
    "median": (lambda x: x.median(), ((5, 4),)),
    "median_nan": (lambda x: torch.cat(x.median(1)), (_NUMBERS,)),
    "median_kept": (lambda x: x.median(0, keepdim=True)[0], ((5, 4),)),
    "median_integers": (lambda x: x.median(1)[0], (_INTEGERS,)),
    "nanmedian": (lambda x: torch.cat(x.nanmedian(1)), (_OTHERS,)),
    "nanmedian_all": (lambda x: x.nanmedian(), (_NUMBERS,)),
    "kthvalue": (lambda x: torch.cat(x.kthvalue(2, 1)), ((3, 7),)),
    "kthvalue_nan": (lambda x: x.kthvalue(5, 1, keepdim=True)[0], (_NUMBERS,)),
    "kthvalue_integers": (lambda x: x.kthvalue(3)[0], (_INTEGERS,)),
    "mode": (lambda x: torch.stack(x.mode(1)), (_INTEGERS,)),
    "mode_floats": (lambda x: x.mode(0, keepdim=True)[0], (_NUMBERS.T.contiguous(),)),
    "mode_booleans": (lambda x: torch.stack(x.mode(0)[:1]), (_INTEGERS > 3,)),
    "argmax_integers": (lambda x: x.argmax(1), (_INTEGERS,)),
    "argmin_integers": (lambda x: x.int().argmin(0, keepdim=True), (_INTEGERS,)),
    "argmax_all_integers": (lambda x: x.argmax(), (_INTEGERS,)),
    "min_integers": (lambda x: torch.stack(x.min(1)), (_INTEGERS,)),
    "cummax": (lambda x: torch.stack(x.cummax(1)), (_NUMBERS,)),
    "cummin": (lambda x: torch.stack(x.cummin(1)), (_NUMBERS,)),
    "cummax_halves": (lambda x: torch.stack(x.cummax(1)), (_NUMBERS.bfloat16(),)),
    "cummax_integers": (lambda x: torch.stack(x.cummax(0)), (_INTEGERS,)),
    "cummin_rows": (lambda x: torch.stack(x.cummin(1)), ((2, 5, 3),)),
    "hypot": (torch.hypot, (_SIZES, _MORE)),
    "copysign": (torch.copysign, (_NUMBERS, _OTHERS)),
    "copysign_number": (lambda x: torch.copysign(x, -0.0), (_INTEGERS,)),
    "signbit": (torch.signbit, (-_NUMBERS,)),
    "signbit_integers": (torch.signbit, (_SMALL,)),
    "signbit_doubles": (torch.signbit, (_DOUBLES,)),
    "signbit_halves": (lambda x: torch.signbit(x.bfloat16()), (_NUMBERS[0],)),
    "narrower_bits": (lambda x: x.view(torch.uint8), (_NUMBERS,)),
    "narrower_bits_of_integers": (lambda x: x.view(torch.int32), (_INTEGERS,)),
    "wider_bits": (lambda x: x.repeat(1, 4).view(torch.int32), (_BYTES,)),
    "wider_bits_of_floats": (lambda x: x.view(torch.int32).view(torch.float32), (_INTEGERS,)),
    "left_shift": (lambda x: x << 3, (_SMALL,)),
    "right_shift": (lambda x: x >> 1, (_INTEGERS,)),
    "left_shift_by": (torch.bitwise_left_shift, (_SMALL, _BY)),
    "right_shift_by": (torch.bitwise_right_shift, (_SMALL, _BY)),
    "right_shift_bytes": (torch.bitwise_right_shift, (_BYTES, _BYTES)),
    "bits": (lambda x: x.view(torch.int32) & 0x7FFFFFFF, (_NUMBERS,)),
    "of_bits": (lambda x: ((x.view(torch.int32) >> 23) << 23).view(torch.float32), ((3, 4),)),
    "bits_of_doubles": (lambda x: x.view(torch.int64), (_DOUBLES,)),
    "round_decimals": (lambda x: torch.stack([x.round(decimals=2), x.round(decimals=-1)]), ((9,),)),
    "angle": (lambda x: torch.angle(x), (_NUMBERS,)),
    "scatter_mean": _scattered("mean"),
    "scatter_sum": _scattered("sum"),
    "scatter_prod": _scattered("prod"),
    "scatter_amax": _scattered("amax"),
    "scatter_amin": _scattered("amin"),
    "scatter_mean_integers": (
        lambda x: x[:, :3].scatter_reduce(1, _PLACES[:2], x[:, 4:], "mean"),
        (_INTEGERS,),
    ),
    "index_reduce": (lambda x, y: x.index_reduce(0, _ROWS, y, "mean"), ((4, 3), (3, 3))),
    "index_reduce_amax": (
        lambda x, y: x.index_reduce(1, _ROWS, y, "amax", include_self=False),
        ((2, 4), (2, 3)),
    ),
    "put": (lambda x, y: x.put(torch.tensor([[5, -1], [0, 2]]), y), ((3, 4), (4,))),
    "put_added": (lambda x, y: x.put(_ROWS, y, accumulate=True), ((3, 4), (3,))),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), ((3, 4), (12,))),
    "masked_scatter_rows": (
        lambda x, y: x.masked_scatter(torch.tensor([[True], [False], [True]]), y),
        ((3, 4), (2, 4)),
    ),
    "searchsorted_lines": (torch.searchsorted, (_LINES, _LINES[:, :3].flip(0).contiguous())),
}
