"""The precisions in which networks are measured: what counts as right, and who takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A precision; ``tolerance`` is the greatest difference from ONNX Runtime's answer in fp32.

    It is a share of each output's range. With ``quantised``, what is measured is a network whose
    file is quantised, and the answer is ONNX Runtime's to this file. ``mean`` and ``most`` are the
    targets of a suite by number of threads: of the geometric mean of ratios, and of each.
    """

    tolerance: float
    quantised: bool = False
    mean: Mapping[int, float] | None = None
    most: Mapping[int, float] | None = None


_MEAN, _MOST = {1: 0.85, 2: 0.85}, {1: 1.0, 2: 1.0}

#: By the name on the command line; a suite has targets of its own for fp32.
PRECISIONS = {
    "fp32": Measured(1e-4),
    "bf16": Measured(4e-2, mean=_MEAN, most=_MOST),
    # Through the layers of a BERT single steps add up: engines differ by 6e-2 from one another.
    "int8": Measured(1e-1, quantised=True, mean=_MEAN, most=_MOST),
}

FP32 = "fp32"
ALL: Sequence[str] = tuple(PRECISIONS)
