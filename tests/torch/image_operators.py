"""Functions of images and volumes, as those of ``tests.torch.operators``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch.case import Case

aten = torch.ops.aten

_X = (3, 8, 6, 6)
_VOLUME = (2, 3, 4, 5, 6)
#: Windows of -inf alone, of equal numbers, and with several NaN.
_EXTREMES = torch.zeros(2, 6, 6)
_EXTREMES[0, :4, :4], _EXTREMES[1, 1, 2], _EXTREMES[1, 3, 3] = -torch.inf, torch.nan, torch.nan

IMAGE: dict[str, Case] = {
    "max_pool1d": (nn.MaxPool1d(3), ((2, 3, 10),)),
    "max_pool2d": (nn.MaxPool2d(3, 2, 1), (_X,)),
    "max_pool2d_ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), (_X,)),
    "max_pool2d_dilation": (nn.MaxPool2d(2, 1, dilation=2), (_X,)),
    "max_pool2d_alone": (nn.MaxPool2d(2), ((8, 6, 6),)),
    "max_pool3d": (nn.MaxPool3d(2), ((1, 2, 4, 4, 4),)),
    "avg_pool1d": (nn.AvgPool1d(3, 2, 1), ((2, 3, 10),)),
    "avg_pool2d": (nn.AvgPool2d(3, 2, 1), (_X,)),
    "avg_pool2d_ceil": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (_X,)),
    "avg_pool2d_divisor": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=4),
        ((1, 2, 7, 6),),
    ),
    "avg_pool2d_uncounted": (nn.AvgPool2d(3, 2, 1, True, False), (_X,)),
    "avg_pool3d": (nn.AvgPool3d(3, 2, 1), ((1, 2, 6, 5, 4),)),
    "avg_pool3d_uncounted": (
        nn.AvgPool3d(3, 2, 1, count_include_pad=False),
        ((1, 2, 6, 5, 4),),
    ),
    "avg_pool3d_ceil": (nn.AvgPool3d((2, 3, 2), 2, (1, 1, 0), True), ((1, 2, 6, 7, 5),)),
    "adaptive_avg_1": (nn.AdaptiveAvgPool2d(1), (_X,)),
    "adaptive_avg_3": (nn.AdaptiveAvgPool2d((3, 2)), (_X,)),
    "adaptive_avg_4": (nn.AdaptiveAvgPool2d(4), (_X,)),
    "adaptive_avg_1d": (nn.AdaptiveAvgPool1d(3), ((2, 3, 10),)),
    "adaptive_max": (nn.AdaptiveMaxPool2d((4, 1)), (_X,)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (_X,)),
    "nearest_size": (lambda x: F.interpolate(x, size=(4, 9)), (_X,)),
    "nearest_often": (lambda x: F.interpolate(x, size=(82, 123)), ((2, 3, 2, 3),)),
    "nearest_often_1d": (lambda x: F.interpolate(x, size=82), ((2, 3, 2),)),
    "adaptive_max_places": (
        lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True)[1],
        ((2, 3, 7, 9),),
    ),
    "adaptive_max_places_alone": (
        lambda x: F.adaptive_max_pool2d(x, 4, return_indices=True)[1],
        (_EXTREMES,),
    ),
    "adaptive_max_places_3d": (
        lambda x: F.adaptive_max_pool3d(x, (2, 3, 1), return_indices=True)[1],
        (_VOLUME,),
    ),
    "nearest_scale": (lambda x: F.interpolate(x, scale_factor=1.3), (_X,)),
    "nearest_1d": (lambda x: F.interpolate(x, scale_factor=2), ((2, 3, 5),)),
    "nearest_exact": (lambda x: F.interpolate(x, size=(4, 9), mode="nearest-exact"), (_X,)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (_X,)),
    "bilinear_corners": (
        lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
        (_X,),
    ),
    "bilinear_scale": (lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), (_X,)),
    "bilinear_smooth": (
        lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
        (_X,),
    ),
    "nearest_3d": (lambda x: F.interpolate(x, scale_factor=2), (_VOLUME,)),
    "nearest_3d_scale": (lambda x: F.interpolate(x, scale_factor=1.3), (_VOLUME,)),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (_VOLUME,)),
    "trilinear_size": (lambda x: F.interpolate(x, size=(4, 3, 9), mode="trilinear"), (_VOLUME,)),
    "trilinear_corners": (
        lambda x: F.interpolate(x, size=(7, 4, 3), mode="trilinear", align_corners=True),
        (_VOLUME,),
    ),
    "trilinear_scale": (
        lambda x: F.interpolate(x, scale_factor=(1.3, 1, 1.7), mode="trilinear"),
        (_VOLUME,),
    ),
    **{  # as programs call them, with the size alone
        f"{name}_called": (lambda x, name=name, how=how: getattr(aten, name)(x, *how), (shape,))
        for name, shape, how in (
            ("upsample_nearest1d", (2, 3, 5), ([9],)),
            ("_upsample_nearest_exact2d", _X, ([4, 9],)),
            ("upsample_bicubic2d", _X, ([4, 9], False)),
            ("_upsample_bilinear2d_aa", _X, ([4, 3], False)),
            ("upsample_trilinear3d", _VOLUME, ([4, 3, 9], False)),
        )
    },
    "transposed_3d": (nn.ConvTranspose3d(3, 16, 3, 2, 1, 1), (_VOLUME,)),
    "bicubic": (lambda x: F.interpolate(x, size=(9, 11), mode="bicubic"), (_X,)),
    "bicubic_corners": (
        lambda x: F.interpolate(x, size=(9, 4), mode="bicubic", align_corners=True),
        (_X,),
    ),
    "max_pool1d_places": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True)[1], ((2, 3, 9),)),
    "max_pool2d_places": (
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)[1],
        (_X,),
    ),
    "max_pool2d_places_alone": (
        lambda x: F.max_pool2d(x, 3, 1, 1, 2, return_indices=True)[1],
        (_EXTREMES,),
    ),
    "max_pool3d_places": (
        lambda x: F.max_pool3d(x, 2, return_indices=True)[1],
        ((1, 2, 4, 4, 4),),
    ),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        ((2, 3, 6, 8),),
    ),
    **{
        f"grid_sample_volume_{mode}_{padding}_{'corners' if corners else 'borders'}": (
            lambda x, g, how=(mode, padding, corners): F.grid_sample(x, g * 1.6, *how),
            ((2, 3, 4, 5, 6), (2, 3, 4, 5, 3)),
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    **{
        f"grid_sample_bicubic_{padding}_{'corners' if corners else 'borders'}": (
            lambda x, g, how=("bicubic", padding, corners): F.grid_sample(x, g * 0.9, *how),
            ((2, 3, 5, 6), (2, 4, 5, 2)),
        )
        for padding in ("zeros", "border", "reflection")
        for corners in (False, True)
    },
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (_X, (3, 4, 5, 2)),
    ),
}
