"""The check that every canonicalisation rule has to pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from byoc.canonicalise import apply_rule

from .graphs import operators, relax_module
from .interpret import run_with_tvm


def check(
    build: Callable[..., relax.Expr],
    rule: Callable,
    expected: list[str],
    *inputs: np.ndarray,
    rtol: float = 1e-5,
) -> tvm.IRModule:
    """Apply one rule; compare operators with the expected ones, and values before and after."""
    before = relax_module(build, *(array.shape for array in inputs))
    after = apply_rule(before, rule)
    relax.analysis.well_formed(after)
    assert operators(after) == expected
    for want, got in zip(run_with_tvm(before, *inputs), run_with_tvm(after, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-5)
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))
    return after
