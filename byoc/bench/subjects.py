"""What is measured: a network as every engine gets it, with fixed shapes, and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from byoc.drawn_inputs import TOKENS, draw_inputs
from byoc.errors import BenchmarkError
from byoc.frontends.onnx.input_shapes import model_inputs, set_input_shapes
from byoc.zoo import networks

#: The first IR version in which weights need not be inputs as well.
_SEPARATE_WEIGHTS = 4


@dataclass(frozen=True)
class Subject:
    """A network of one batch size; ``name`` is what the user typed."""

    name: str
    title: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    batch: int | None = None


def load_subject(
    name: str,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    batch: int | None = None,
) -> Subject:
    """A network of the zoo, or an ONNX file.

    ``input_shapes`` gives dynamic axes a size, and ``batch`` is the extent of axis 0 of every
    input, whatever the model says.  Raises ``ByocError``.
    """
    known = networks()
    path = Path(name)
    if name in known and not path.is_file():
        title, model, tokens = known[name].title, known[name].build(), TOKENS
    elif path.exists():
        from byoc.frontends.onnx.read_model import load_model

        # 0 and 1 are valid as ids, indices and masks alike.
        title, model, tokens = path.name, load_model(path), 2
    else:
        raise BenchmarkError(f"no model {name!r}; need an ONNX file or one of {', '.join(known)}")
    shapes = dict(input_shapes or {})
    if batch is not None:
        _set_batch(model, batch)
        shapes = {key: [batch, *shape[1:]] for key, shape in shapes.items()}
    set_input_shapes(model, shapes)
    separate_weights(model)
    return Subject(name, title, model, draw_inputs(model, below=tokens), batch)


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
