"""A small network in a library, its inputs and what ONNX Runtime makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import byoc
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import onnxruntime_outputs


def write_small_library(folder: Path) -> tuple[Path, Path]:
    """A compiled library, and an .npz with the arrays in_NAME and out_NAME."""
    library, data = folder / "small.so", folder / "arrays.npz"
    assert byoc.compile(two_by_two(), library).metadata.entry is not None
    inputs = inputs_of_two_by_two(0)
    outputs = onnxruntime_outputs(two_by_two(), inputs)
    arrays = {f"in_{name}": array for name, array in inputs.items()}
    np.savez(data, **arrays, **{f"out_{name}": array for name, array in outputs.items()})
    return library, data
