"""How far answers are from those of a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from codegen_cc.dtypes import SINGLE

#: Greatest |error| as a share of an output's range, by its dtype; all others must be equal.
TOLERANCES = {"float64": 1e-6, SINGLE: 1e-4, "float16": 5e-3, "bfloat16": 4e-2}

#: The same for floating-point outputs of a network that multiplies in one of these dtypes. Two
#: roundings of one sum may be a step apart where it lies near the middle between two integers, and
#: a step of an 8-bit tensor is 4e-3 of its range. Through the layers of a BERT such steps add up:
#: right engines are off from one another by 6e-2.
COARSE_TOLERANCES = {"bfloat16": TOLERANCES["bfloat16"], "int8": 1e-1, "uint8": 1e-1}


def coarse_tolerance(report: Mapping[str, Any]) -> float:
    """What a library of this report may be off by for the dtypes that it multiplies in; else 0."""
    dtypes = (node.get("multiplied_in") for node in report.get("nodes", ()))
    return max((COARSE_TOLERANCES.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def relative_error(ours: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Greatest |difference| over all outputs, as a share of that output's range.

    Infinite where outputs are missing or have other shapes, and where NaN and infinities are not
    at the same places.
    """
    if [array.shape for array in ours] != [array.shape for array in expected]:
        return float("inf")
    return max(map(share_of_range, ours, expected), default=0.0)


def share_of_range(mine: np.ndarray, theirs: np.ndarray, rounding: float = 0.0) -> float:
    """Greatest |difference| of two arrays of one shape, as a share of the range of ``theirs``.

    ``rounding`` is the reference's own error, which a difference may have besides. Infinite where
    NaN and infinities are not at the same places.
    """
    mine, theirs = (array.astype(np.float64) for array in (mine, theirs))
    finite = np.isfinite(theirs)
    if not np.array_equal(mine[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    mine, theirs = mine[finite], theirs[finite]
    if not theirs.size:
        return 0.0
    extent = _range_of(theirs)
    difference = float(np.abs(mine - theirs).max())
    return float("inf") if np.isnan(difference) else max(0.0, difference - rounding) / extent


#: Upper bounds of the errors that a histogram counts, as shares of the range; beyond is one more.
BOUNDS = tuple(10.0**power for power in range(-8, 1))


@dataclass(frozen=True)
class Errors:
    """How far an array is from a reference's, in its own units unless said otherwise.

    ``greatest`` and ``mean`` are of |difference|; ``share`` is the greatest as a share of the
    reference's range, ``snr_db`` the reference's power over the difference's in decibels, infinite
    where both are equal. Where NaN and infinities are not at the same places, nothing can be told:
    the first three are infinite, and the ratio is minus infinity.
    """

    greatest: float
    mean: float
    share: float
    snr_db: float

    def to_json(self) -> dict[str, float | None]:
        """Plain numbers; null for what is infinite."""
        return {k: v if np.isfinite(v) else None for k, v in asdict(self).items()}


#: What differs where nothing can be subtracted.
INCOMPARABLE = Errors(float("inf"), float("inf"), float("inf"), float("-inf"))


def errors_of(mine: np.ndarray, theirs: np.ndarray) -> Errors:
    """The errors of an array; ``INCOMPARABLE`` where it has another shape."""
    if mine.shape != theirs.shape:
        return INCOMPARABLE
    share = share_of_range(mine, theirs)
    if not np.isfinite(share):
        return INCOMPARABLE
    theirs = theirs.astype(np.float64)
    finite = np.isfinite(theirs)
    theirs = theirs[finite]
    apart = np.abs(mine.astype(np.float64)[finite] - theirs)
    if not apart.any():
        return Errors(0.0, 0.0, 0.0, float("inf"))
    # By the largest number, so that no square leaves float64.
    size = max(float(np.abs(theirs).max()), float(apart.max()))
    signal, noise = (float(np.square(values / size).mean()) for values in (theirs, apart))
    ratio = 10 * (np.log10(signal) - np.log10(noise)) if signal and noise else float("-inf")
    return Errors(float(apart.max()), float(apart.mean()), share, float(ratio))


def histogram_of(mine: np.ndarray, theirs: np.ndarray) -> tuple[int, ...]:
    """How many elements are off by up to each of ``BOUNDS``, and by more; infinities by more."""
    if mine.shape != theirs.shape or not mine.size:
        return (0,) * (len(BOUNDS) + 1)
    mine, theirs = (array.astype(np.float64) for array in (mine, theirs))
    with np.errstate(invalid="ignore"):
        apart = np.where((mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), 0.0, mine - theirs)
    shares = np.nan_to_num(np.abs(apart), nan=np.inf) / _range_of(theirs[np.isfinite(theirs)])
    places = np.searchsorted(BOUNDS, shares.ravel())
    return tuple(int(n) for n in np.bincount(places, minlength=len(BOUNDS) + 1))


def _range_of(values: np.ndarray) -> float:
    """The range of finite values; a constant has none, its size, else 1, stands for it then."""
    if not values.size:
        return 1.0
    return float(np.ptp(values)) or float(np.abs(values).max()) or 1.0
