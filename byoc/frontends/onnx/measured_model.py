"""A model as every engine gets it that is measured: fixed shapes, and made-up inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from byoc.deploy.metadata import EXTENDED_DTYPES
from byoc.errors import AxesNote, BenchmarkError
from byoc.frontends.onnx.dynamic_axes import note, set_shapes, sized, write_axes
from byoc.frontends.onnx.input_shapes import model_inputs

#: The first IR version in which weights need not be inputs as well.
_SEPARATE_WEIGHTS = 4
#: Token ids are less than this.
TOKENS = 1000


def fix_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int | str]], batch: int | None = None
) -> None:
    """Write shapes and a batch size into a model, and take weights out of its inputs, in place.

    Dynamic axes that ``shapes`` leaves open get usual sizes, which an ``AxesNote`` says.
    Raises ``ByocError``.
    """
    if batch is not None:
        _set_batch(model, batch)
        shapes = {key: [batch, *shape[1:]] for key, shape in shapes.items()}
    axes = sized(set_shapes(model, shapes))
    write_axes(model, axes)
    if axes:
        warnings.warn(note(model, axes), AxesNote, stacklevel=2)
    separate_weights(model)


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write a model into a file, for engines that read one."""
    onnx.save(model, path)


def described_inputs(model: onnx.ModelProto) -> dict[str, tuple[list[int], str]]:
    """Extents, 0 where an axis has none, and dtype of each input that is no weight."""
    return {
        info.name: (
            [dim.dim_value for dim in info.type.tensor_type.shape.dim],
            onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type).name,
        )
        for info in model_inputs(model)
    }


def usual_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The inputs of a model alone; axes that keep a name, as a user wants it, have usual sizes."""
    inputs = onnx.ModelProto(ir_version=model.ir_version)
    inputs.graph.input.extend(model_inputs(model))
    write_axes(inputs, sized(set_shapes(inputs, {})))
    return inputs


def draw_inputs(
    model: onnx.ModelProto, seed: int = 0, below: int = TOKENS
) -> dict[str, np.ndarray]:
    """Inputs of an ONNX model, by name, of its static shapes.

    Normal numbers; for integers, token ids less than ``below``; a mask of 1 then 0. Raises
    ``BenchmarkError`` for what is no number.
    """
    draw = np.random.default_rng(seed)
    inputs = {}
    for info in model_inputs(model):
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f" or str(dtype) in EXTENDED_DTYPES:
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


def _set_batch(model: onnx.ModelProto, batch: int) -> None:
    for value in model_inputs(model):
        dims = value.type.tensor_type.shape.dim
        if not dims:
            raise BenchmarkError(f"input {value.name!r} has no axes, hence no batch to set")
        dims[0].dim_value = batch
    # What was inferred for another batch would contradict this one.
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def separate_weights(model: onnx.ModelProto) -> None:
    """Remove weights from the inputs, where engines take them for inputs that may change."""
    inputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model_inputs(model)]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, _SEPARATE_WEIGHTS)
