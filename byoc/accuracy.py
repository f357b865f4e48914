"""How far answers are from those of a reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
    # A constant output has no range; its size stands for it then.
    extent = float(np.ptp(theirs)) or float(np.abs(theirs).max()) or 1.0
    difference = float(np.abs(mine - theirs).max())
    return float("inf") if np.isnan(difference) else max(0.0, difference - rounding) / extent
