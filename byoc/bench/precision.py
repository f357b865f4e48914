"""The precisions in which networks are measured: what counts as right, and who takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc.accuracy import COARSE_TOLERANCES, TOLERANCES
from codegen_cc.dtypes import SINGLE


@dataclass(frozen=True)
class Measured:
    """A precision; ``tolerance`` is the greatest difference from ONNX Runtime's answer in fp32.

    It is a share of each output's range. With ``quantised``, what is measured is a network whose
    file is quantised, and the answer is ONNX Runtime's to this file. ``mean`` and ``most`` are the
    targets of a suite by number of threads: of the geometric mean of ratios, and of each.
    ``peers`` is the precision that other engines compute in beside it; empty for the same.
    """

    tolerance: float
    quantised: bool = False
    mean: Mapping[int, float] | None = None
    most: Mapping[int, float] | None = None
    peers: str = ""


_MEAN, _MOST = {1: 0.85, 2: 0.85}, {1: 1.0, 2: 1.0}

#: By the name on the command line; a suite has targets of its own for fp32.
PRECISIONS = {
    "fp32": Measured(TOLERANCES[SINGLE]),
    "bf16": Measured(COARSE_TOLERANCES["bfloat16"], mean=_MEAN, most=_MOST),
    "bf16x3": Measured(TOLERANCES[SINGLE], peers="fp32"),
    # Of networks whose weights alone are quantised.
    "int8-data": Measured(COARSE_TOLERANCES["int8"], peers="fp32"),
    "int8": Measured(COARSE_TOLERANCES["int8"], quantised=True, mean=_MEAN, most=_MOST),
}

FP32 = "fp32"
ALL: Sequence[str] = tuple(PRECISIONS)
