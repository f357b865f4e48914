"""Models of PyTorch: modules, exported programs, and .pt2 files of these.

PyTorch itself is imported when such a model arrives, and not before.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from byoc.arguments import as_path
from byoc.errors import AxesNote, ImportFailure, ModelError
from byoc.frontends.imported import Imported
from byoc.frontends.reference import Judge, Reference
from byoc.stages import Stages

if TYPE_CHECKING:
    from byoc.frontends.torch.program import Program

#: How the file of an exported program ends.
SUFFIX = ".pt2"


def is_of_torch(model: object) -> bool:
    """Whether a model is a module or an exported program of PyTorch, or the name of a .pt2 file."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model).endswith(SUFFIX) if isinstance(os.fspath(model), str) else False
    torch = sys.modules.get("torch")  # whoever has such an object has imported it
    if torch is None or not hasattr(torch, "nn"):
        return False
    from byoc.frontends.torch.program import Program

    return isinstance(model, torch.nn.Module | torch.export.ExportedProgram | Program)


def given_program(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Program:
    """The program of a model that ``is_of_torch``. Raises ``ModelError``."""
    try:
        from byoc.frontends.torch.fixed_axes import FixedAxes
        from byoc.frontends.torch.program import Program, exported, read
    except ImportError as error:
        raise ModelError(f"a .pt2 file needs PyTorch (pip install torch): {error}") from error
    if isinstance(model, Program):
        return model
    if isinstance(model, str | os.PathLike):
        if example_inputs is not None or dynamic_shapes is not None:
            raise ModelError("a .pt2 file has its own example inputs and shapes")
        return read(as_path(model, "the model", ModelError))
    axes = FixedAxes()
    with axes.noted():
        program = exported(model, example_inputs, dynamic_shapes)
    if program.module is None:
        return program
    return replace(program, fixed=axes.note(program.module, program.exported, dynamic_shapes))


def import_program(
    program: Program, stages: Stages | None = None, states: bool = False
) -> Imported:
    """Import a program into Relax, with its names.

    Where ``states`` are kept, buffers that the program changes are inputs and outputs behind the
    others, and so is what becomes of inputs. Raises ``ModelError`` for these where they are not;
    ``ImportFailure`` for an operator without a converter, and ``UnsupportedForm`` for a form of one
    that cannot be computed.
    """
    from byoc.frontends.source_files import hash_files
    from byoc.frontends.torch.importer import import_traced
    from byoc.frontends.torch.signature import signature

    stages = stages or Stages(None)
    if program.fixed:
        warnings.warn(program.fixed, AxesNote, stacklevel=3)
    with stages("import into TVM", ImportFailure):
        module, kept = import_traced(program, states)
    source = () if program.file is None else hash_files([program.file])
    inputs, outputs = signature(program, module, kept)
    return Imported(
        module,
        inputs,
        outputs,
        source,
        program.fixed,
        ranges=program.ranges_of(inputs),
        conditions=program.demands_on(inputs),
        mutated=frozenset(kept.all),
    )


def torch_reference(program: Program) -> Reference:
    """PyTorch itself, with the inputs that the program was traced on."""
    import torch

    names = [name for name, _ in program.inputs()]
    name = f"PyTorch {torch.__version__}"
    return Reference(
        name,
        names,
        program.answer,
        examples=program.examples(),
        halves=program.halves(),
        traced=None if program.module is None else program.traced_answer,
    )


def torch_judge(program: Program) -> Judge:
    """PyTorch itself, which tells what each node of the program gives."""
    from byoc.frontends.torch.judge import ProgramJudge

    return ProgramJudge(program)
