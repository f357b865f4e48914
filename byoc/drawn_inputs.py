"""Made-up inputs: seeded, and valid for most of what integers mean.

A compiled library is run without ONNX, so that is imported for an ONNX model alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    import onnx

    from byoc.deploy.metadata import TensorInfo

#: Token ids are less than this.
TOKENS = 1000


def draw_input(info: TensorInfo, shape: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """An array for an input of a compiled model: normal numbers; 0 or 1 for the other dtypes.

    0 and 1 are valid as ids, indices and masks alike.
    """
    if np.issubdtype(info.dtype, np.floating):
        return random.standard_normal(tuple(shape)).astype(info.dtype)
    return random.integers(0, 2, tuple(shape)).astype(info.dtype)


def draw_inputs(
    model: onnx.ModelProto, seed: int = 0, below: int = TOKENS
) -> dict[str, np.ndarray]:
    """Inputs of an ONNX model, by name, of its static shapes.

    Normal numbers; for integers, token ids less than ``below``; a mask of 1 then 0. Raises
    ``BenchmarkError`` for what is no number.
    """
    from onnx.helper import tensor_dtype_to_np_dtype

    from byoc.frontends.onnx.input_shapes import model_inputs

    draw = np.random.default_rng(seed)
    inputs = {}
    for info in model_inputs(model):
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            inputs[info.name] = draw.standard_normal(shape, dtype=np.float32).astype(dtype)
        elif info.name == "attention_mask":
            mask = np.ones(shape, dtype)
            mask[:, -(shape[1] // 4) :] = 0
            inputs[info.name] = mask
        elif dtype.kind in "iub":
            high = 2 if dtype.kind == "b" else below
            inputs[info.name] = draw.integers(0, high, shape, dtype=np.int64).astype(dtype)
        else:
            raise BenchmarkError(
                f"input {info.name!r} has dtype {dtype}; only numbers can be made up"
            )
    return inputs
