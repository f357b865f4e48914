"""Made-up inputs of compiled models: seeded, and valid for most of what integers mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc.deploy.exchange import numpy_dtype
from byoc.deploy.metadata import EXTENDED_DTYPES, TensorInfo


def draw_input(info: TensorInfo, shape: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """An array for an input of a compiled model: normal numbers; 0 or 1 for the other dtypes.

    0 and 1 are valid as ids, indices and masks alike.
    """
    dtype = numpy_dtype(info.dtype)
    if info.dtype in EXTENDED_DTYPES or np.issubdtype(dtype, np.floating):
        return random.standard_normal(tuple(shape)).astype(dtype)
    return random.integers(0, 2, tuple(shape)).astype(dtype)
