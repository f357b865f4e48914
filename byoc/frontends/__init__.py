"""Front ends: a folder for each kind of model, from what users have to a Relax module.

Each gives an ``Imported``, and ``Reference``s that compute the model; what compiles, tunes and
measures knows no more of a model than that. Which one a model is for is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tvm

from byoc.errors import ControlError, InputError, ModelError, ShapeError
from byoc.frontends.imported import Imported
from byoc.frontends.onnx import import_model as import_onnx_model
from byoc.frontends.onnx.fixed_inputs import FixedInputs
from byoc.frontends.onnx.given_model import GivenModel as OnnxModel
from byoc.frontends.onnx.given_model import ReadModel
from byoc.frontends.onnx.given_model import given_model as given_onnx_model
from byoc.frontends.onnx.references import references as onnx_references
from byoc.frontends.reference import Arrays, Reference
from byoc.frontends.relax import import_relax, relax_reference
from byoc.frontends.torch import given_program, import_program, is_of_torch, torch_reference
from byoc.stages import Stages

if TYPE_CHECKING:
    import torch

    from byoc.frontends.torch.program import Program

    GivenModel = OnnxModel | tvm.IRModule | torch.nn.Module | torch.export.ExportedProgram
else:  # PyTorch may be missing
    GivenModel = Any


def given_model(
    model: GivenModel,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ReadModel | tvm.IRModule | Program:
    """What a user's model is: a path, a model of ONNX or Relax in memory, or a program of PyTorch.

    ``example_inputs`` and ``dynamic_shapes`` are for a module of PyTorch. Raises ``ModelError``.
    """
    if is_of_torch(model):
        return given_program(model, example_inputs, dynamic_shapes)
    if example_inputs is not None or dynamic_shapes is not None:
        raise ModelError("example_inputs and dynamic_shapes are for modules of PyTorch")
    if isinstance(model, tvm.IRModule):
        return model
    return given_onnx_model(model)


def import_model(
    model: GivenModel,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    allow_wrong: Iterable[str] = (),
    stages: Stages | None = None,
    sized: bool = False,
    states: bool = False,
    fixed_inputs: FixedInputs | None = None,
) -> Imported:
    """Read a model into a Relax module, as its front end's ``import_model`` does.

    With ``states``, values of its own that it changes are inputs and outputs (``mutated``).
    """
    of_onnx = not isinstance(model, tvm.IRModule) and not is_of_torch(model)
    if fixed_inputs and not of_onnx:
        raise InputError("fixed_inputs are for ONNX models; make them constants of the module")
    if (allowed := tuple(allow_wrong)) and not of_onnx:
        raise ControlError(f"allow_wrong: {', '.join(allowed)}: this model has no ONNX operators")
    if isinstance(model, tvm.IRModule):
        if input_shapes:
            raise ShapeError("input_shapes are for ONNX models; the module has its own")
        return import_relax(model)
    if of_onnx:
        return import_onnx_model(model, input_shapes, allowed, stages, sized, fixed_inputs)
    if input_shapes:
        raise ShapeError("input_shapes are for ONNX models; export with dynamic_shapes instead")
    return import_program(given_program(model), stages, states)


def comes_with_examples(model: object) -> bool:
    """Whether a model, as ``given_model`` gives it, has inputs on which it gives one answer."""
    if not is_of_torch(model):
        return False
    program = given_program(model)
    return bool(program.examples()) and not program.draws()


def references(model: ReadModel | tvm.IRModule | Program, errors: list[str]) -> Iterator[Reference]:
    """What can compute a model, the best first; why others cannot goes into ``errors``."""
    if is_of_torch(model):
        yield torch_reference(given_program(model))
    elif isinstance(model, tvm.IRModule):
        yield relax_reference(model)
    else:
        yield from onnx_references(model, errors)


__all__ = [
    "Arrays",
    "GivenModel",
    "Imported",
    "Reference",
    "comes_with_examples",
    "given_model",
    "import_model",
    "references",
]
