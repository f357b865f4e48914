"""Suites: networks that are measured together, and how ours should compare with the best peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Ratios by number of threads.
Targets = Mapping[int, float]


@dataclass(frozen=True)
class Suite:
    """Networks in the order of the table, each with its greatest ratio; and that of their mean."""

    networks: Mapping[str, Targets]
    mean: Targets


_USUAL = {1: 0.95, 2: 0.95}
_HARDER = {1: 0.97, 2: 0.97}

#: Ratio: our median time by the least of the peers', on a machine with two cores, batch 1.
SUITES = {
    "zoo": Suite(
        networks={
            "resnet50": {1: 0.90, 2: 0.95},
            "vgg19": {1: 0.80, 2: 0.85},
            "mobilenet_v2": _USUAL,
            "efficientnet_b0": _USUAL,
            "convnext_t": _USUAL,
            "densenet121": _USUAL,
            "inception_v2": _USUAL,
            "squeezenet": _USUAL,
            "shufflenet": _USUAL,
            "bert": _HARDER,
            "vit_b_16": _HARDER,
            "swin_t": _HARDER,
            "resnext50_32x4d": _HARDER,
            "ppocr_det": _USUAL,
            "ppocr_rec": _USUAL,
        },
        mean={1: 0.90, 2: 0.92},
    ),
}
