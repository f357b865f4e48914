"""Histograms, choices of elements, powers of whole numbers and distances, in one region."""

from __future__ import annotations

import torch

from tests.torch.case import Case

_EXPONENTS = torch.tensor([-3, -2, -1, 0, 1, 2, 3, 7, 40, 62, 63, 64, 65])
_BASES = torch.tensor([3, -3, 1, -1, 2, -2, 0, 5, 7, -7, 10, 1, -1])
_STEPS = torch.arange(50.0)
_X = (50,)

COUNTED: dict[str, Case] = {
    "powers_of_2": (lambda i: 2**i, (_EXPONENTS,)),
    "powers_of_3": (lambda i: 3 ** i.int(), (_EXPONENTS,)),
    "powers_of_-1": (lambda i: (-1) ** i, (_EXPONENTS,)),
    "powers_of_0": (lambda i: 0**i, (_EXPONENTS,)),
    "powers": (torch.pow, (_BASES[:, None], _EXPONENTS)),
    "powers_of_bytes": (
        lambda i: torch.pow(torch.tensor([[3], [2]], dtype=torch.uint8), i),
        (torch.arange(13, dtype=torch.uint8),),
    ),
    "histc": (torch.histc, (_X,)),
    "histc_of_equal": (lambda x: torch.histc(x * 0 + 3, 5), (_X,)),
    "histc_equal_bounds": (lambda x: torch.histc(x, 5, 2, 2), (_X,)),
    "histc_thirds": (lambda x: torch.histc(x, 9, 0, 49), (_STEPS,)),
    "histogram": (lambda x: torch.cat(torch.histogram(x, 8)), (_X,)),
    "histogram_of_equal": (lambda x: torch.cat(torch.histogram(x * 0 + 2, 3)), (_X,)),
    "histogram_between": (lambda x: torch.histogram(x, 8, range=(-1.0, 1.0))[0], (_X,)),
    "histogram_equal_bounds": (lambda x: torch.histogram(x, 4, range=(1.0, 1.0))[0], (_X,)),
    "histogram_dense": (lambda x: torch.histogram(x, 8, density=True)[0], (_X,)),
    "histogram_weighted": (lambda x, w: torch.histogram(x, 6, weight=w)[0], (_X, _STEPS)),
    "histogram_edges": (
        lambda x: torch.histogram(x, torch.tensor([-1.0, 0.0, 0.5, 2.0]))[0],
        (_X,),
    ),
    "triples": (lambda x: torch.combinations(x, 3), ((6,),)),
    "triples_again": (lambda x: torch.combinations(x, 3, True), ((4,),)),
    "singles": (lambda x: torch.combinations(x, 1), ((4,),)),
    "too_many": (lambda x: torch.combinations(x, 5), ((4,),)),
    "correlation_of_a_row": (torch.corrcoef, ((1, 9),)),
    "covariance_of_a_row": (torch.cov, ((1, 9),)),
    "cdist_fewer_axes": (torch.cdist, ((3, 4), (2, 1, 5, 4))),
    "cdist_more_axes": (torch.cdist, ((2, 1, 2, 2), (1, 2, 2))),
    "cdist_0": (
        lambda x, y: torch.cdist(x, y, 0.0),
        (_STEPS[:12].view(6, 2), _STEPS[:4].view(2, 2)),
    ),
    "statistics_of_nothing": (
        lambda x: torch.stack([*torch.var_mean(x[:0]), *torch.std_mean(x[:0])]),
        ((4,),),
    ),
    "means_of_no_rows": (lambda x: torch.var_mean(x[:0], 0, keepdim=True)[1], ((4, 2),)),
    "place_of_one": (
        lambda x: torch.stack([x.sum().argmax(), x.sum().argmin(-1), x.sum().max(0)[1]]),
        ((4,),),
    ),
    "place_of_one_integer": (lambda x: x.argmax(0) + x.min(0)[0] + x.min(0)[1], (torch.tensor(3),)),
    "topk_of_one": (lambda x: torch.stack(torch.topk(x.sum(), 1)), ((4,),)),
}
