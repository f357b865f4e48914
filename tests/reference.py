"""What results are compared with, and the one list of tolerances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from byoc.frontends.onnx.exact_reference import exact_session

#: Greatest |error| as a share of the output's range, by dtype of the computation.
TOLERANCE = {"float32": 1e-4}
#: ONNX Runtime's Sigmoid is a half plus an odd polynomial, whose error does not shrink with it.
SIGMOID_ERROR = 2.0**-22


def onnxruntime_outputs(
    model: Path | onnx.ModelProto, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    session = exact_session(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def assert_agrees(
    actual: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    dtype: str = "float32",
    rounding: float = 0.0,
) -> None:
    """Same names, shapes and dtypes; NaN and infinities at the same places; small errors.

    ``rounding`` is the reference's own absolute error, where results may be as small.
    """
    assert list(actual) == list(expected)
    for name, want in expected.items():
        got = actual[name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), name
        special = ~np.isfinite(want)
        np.testing.assert_array_equal(got[special], want[special], err_msg=name)
        errors = np.abs(np.where(special, 0, got) - np.where(special, 0, want))
        finite = want[~special]
        limit = TOLERANCE[dtype] * (float(np.ptp(finite)) if finite.size else 0.0) + rounding
        worst = np.unravel_index(np.argmax(errors), errors.shape) if errors.size else ()
        assert errors.size == 0 or not errors[worst] > limit, (
            f"{name}: |error| {errors[worst]:.3g} at {[int(i) for i in worst]}, limit {limit:.3g} "
            f"({got[worst]} instead of {want[worst]})"
        )
