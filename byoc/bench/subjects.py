"""What is measured: a network as every engine gets it, with fixed shapes, and its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc.bench.engines import ONNX, TORCH
from byoc.errors import BenchmarkError
from byoc.frontends import GivenModel, given_model
from byoc.frontends.onnx.fixed_inputs import FixedInputs, with_fixed_inputs
from byoc.frontends.onnx.measured_model import TOKENS, draw_inputs, fix_shapes, usual_inputs
from byoc.frontends.onnx.read_model import load_model
from byoc.frontends.torch import is_of_torch
from byoc.zoo import networks, quantised_from


def kind_of(name: str) -> str:
    """The kind of a model, by the name that the user typed: ``ONNX`` or ``TORCH``."""
    return TORCH if is_of_torch(name) else ONNX


@dataclass(frozen=True)
class Subject:
    """A network of one batch size; ``name`` is what the user typed."""

    name: str
    title: str
    model: GivenModel
    inputs: dict[str, np.ndarray]
    batch: int | None = None


def load_subject(
    name: str,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    batch: int | None = None,
    quantised: bool = False,
    fixed_inputs: FixedInputs | None = None,
) -> Subject:
    """A network of the zoo, an ONNX file or a .pt2 file.

    ``input_shapes`` gives dynamic axes a size, and ``batch`` is the extent of axis 0 of every
    input, whatever the model says.  ``fixed_inputs`` are constants for every engine.  With
    ``quantised``, the network of the zoo is the one that was quantised from it, and a file is taken
    to be so already.  Raises ``ByocError``.
    """
    known = networks()
    name = quantised_from(name) if quantised else name
    path = Path(name)
    if kind_of(name) == TORCH:
        return _program(path, given=bool(input_shapes or fixed_inputs or batch))
    if name in known and not path.is_file():
        title, model, tokens = known[name].title, known[name].build(), TOKENS
    elif path.exists():
        # 0 and 1 are valid as ids, indices and masks alike.
        title, model, tokens = path.name, load_model(path), 2
    else:
        raise BenchmarkError(f"no model {name!r}; need an ONNX file or one of {', '.join(known)}")
    if any(info.name.startswith("past_key_values") for info in model.graph.input):
        _refuse_cache(model, name, input_shapes or {})
    fixed, shapes = fixed_inputs or {}, input_shapes or {}
    model = with_fixed_inputs(model, fixed, shapes)
    fix_shapes(model, {k: shape for k, shape in shapes.items() if k not in fixed}, batch)
    return Subject(name, title, model, draw_inputs(usual_inputs(model), below=tokens), batch)


def _program(path: Path, given: bool) -> Subject:
    """A program of PyTorch with the inputs that it was traced on."""
    if given:
        raise BenchmarkError(
            f"{path} has example inputs of its own; input shapes, batches and fixed inputs are for"
            " ONNX files"
        )
    program = given_model(path)
    if not (examples := program.examples()):
        raise BenchmarkError(f"{path} has no example inputs; export it with some")
    return Subject(str(path), path.name, program, examples)


def _refuse_cache(
    model: GivenModel, name: str, input_shapes: Mapping[str, Sequence[int | str]]
) -> None:
    """Raise ``BenchmarkError`` for a decoder whose cache nobody gave a size: a mask fits one."""
    caches = [info.name for info in model.graph.input if info.name.startswith("past_key_values")]
    if not set(caches) <= set(input_shapes):
        raise BenchmarkError(
            f"{name} has a cache, such as {caches[0]}, that grows from call to call: measure it by"
            f" byoc bench --generate {name}, or give all inputs a size by --input-shapes"
        )
