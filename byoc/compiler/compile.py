"""A model in, one deployable library out: every stage in one call."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from typing_extensions import Unpack

from byoc.arguments import as_flag, as_path, as_share
from byoc.autoload import register
from byoc.compiler.check_sizes import check_sizes
from byoc.compiler.definitions_apart import definitions_apart
from byoc.compiler.direct_calls import direct_calls
from byoc.compiler.keywords import CompileKeywords, takes
from byoc.compiler.packed_functions import settle
from byoc.compiler.partitioned import Partitioned, build_kernels, partition_and
from byoc.compiler.request import Request
from byoc.compiler.states import with_states_in_place
from byoc.compiler.symbols_apart import symbols_apart
from byoc.deploy.metadata import Metadata, RuntimeLibrary
from byoc.destination import require_file_to_write, require_folder_to_make
from byoc.errors import CompileError
from byoc.frontends import GivenModel, comes_with_examples, given_model
from byoc.ir.check_extents import check_extents
from byoc.ir.dataflow import is_region
from byoc.ir.define_symbols import hide_definitions
from byoc.link_shared import linker_of, require_linker
from byoc.partition.empty_constants import empty_constants_of_lowered
from byoc.partition.failing_node import failing_binding
from byoc.report import Report
from byoc.stages import Stages
from codegen_cc.errors import ToolchainError, one_line
from codegen_cc.link.checksum import seal
from codegen_cc.link.toolchain import telling_line
from codegen_cc.link.weights import page_flags, write_in_large_pieces
from codegen_cc.target import HOST, Target
from codegen_cc.unfinished import folder_beside


@dataclass
class Compiled:
    """What ``compile`` made."""

    executable: relax.VMExecutable
    report: Report
    metadata: Metadata
    path: Path | None = None
    #: Seconds per stage, in the order in which the stages ran.
    seconds: dict[str, float] = field(default_factory=dict)


@takes(CompileKeywords)
def compile(
    model: GivenModel,
    output: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    dump_code: str | os.PathLike[str] | None = None,
    min_coverage: float | None = None,
    require_full: bool = False,
    timers: bool = False,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    verify: bool | None = None,
    **keywords: Unpack[CompileKeywords],
) -> Compiled:
    """Compile a model of ONNX or PyTorch into one library that needs only TVM's runtime.

    ``model`` is a path, an ``onnx.ModelProto`` or its serialised bytes; a ``torch.nn.Module``, a
    ``torch.export.ExportedProgram`` or the path of a .pt2 file; or a ``tvm.IRModule`` of Relax that
    was imported otherwise, whose inputs are called as the parameters of ``main``.
    ``output`` is the library to write; without it the model is only compiled in process
    (``relax.VirtualMachine(compiled.executable, tvm.cpu())`` runs it).  ``input_shapes`` gives
    dynamic axes a size, or a symbol (see ``prepare``).  ``dump_code`` is a folder for the emitted
    C.  ``min_coverage`` and ``require_full`` say how much must be offloaded (see
    ``Report.require``).  With ``timers`` the library tells how long each kernel call took (see
    docs/profiling.md).

    A module of PyTorch is exported on its ``example_inputs``: a tuple of positional ones, or a
    dictionary of them by name. ``dynamic_shapes`` says which axes stay symbolic, as in
    ``torch.export.export``. With ``verify`` the library is run beside the model, on the example
    inputs or made-up ones, before it is written, and a ``VerifyError`` says where they differ: the
    default for models of PyTorch with example inputs, on this machine.

    Raises ``ByocError``; ``output`` is then left as it was.
    """
    request, stages = Request.of(keywords), Stages(keywords["progress"])
    if min_coverage is not None:
        min_coverage = as_share(min_coverage, "min_coverage", CompileError)
    require_full = as_flag(require_full, "require_full", CompileError)
    timers = as_flag(timers, "timers", CompileError)
    if verify is not None:
        verify = as_flag(verify, "verify", CompileError)
    code = None if dump_code is None else as_path(dump_code, "dump_code", CompileError)
    file = None if output is None else as_path(output, "output", CompileError)
    _require_places(file, code, request.target)
    given = given_model(model, example_inputs, dynamic_shapes)
    check = _check(given, verify, request)

    def finish(done: Partitioned) -> Compiled:
        done.report.require(min_coverage, require_full)
        return compile_partitioned(done, request.target, file, stages, timers, code, check)

    return partition_and(finish, given, input_shapes, request, stages)


def compile_partitioned(
    done: Partitioned,
    target: Target,
    file: Path | None,
    stages: Stages,
    timers: bool = False,
    code: Path | None = None,
    check: Callable[[Path], None] | None = None,
) -> Compiled:
    """The stages from a partitioned network on, as ``compile`` does them.

    ``check`` raises for a library that shall not be written.
    """
    with ExitStack() as stack:
        weights = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="byoc_")), "weights.o"
        )
        build_kernels(target, stages)
        with stages("generate code"):
            module, report, metadata = _generate(done, target, timers, code, weights)
        with stages("compile what TVM keeps"):
            metadata = replace(metadata, report=report.to_json())
            built, metadata = _build(module, target, metadata)
            executable = Linkable(built.mod, weights, stack.pop_all().close)
    if file is not None:
        with stages("link"):
            export(executable, file, target, check=check)
    elif check is not None:
        with stages("verify"), tempfile.TemporaryDirectory(prefix="byoc_") as place:
            export(executable, Path(place, "model.so"), target, check=check)
    return Compiled(executable, report, metadata, file, stages.seconds)


def _require_places(output: Path | None, code: Path | None, target: Target) -> None:
    """Stop before minutes of work when a file could not be written, or the last step not done."""
    if target.libc != "gnu":
        raise CompileError(
            f"TVM's runtime has no libraries for {target.name}; use the standalone form, by "
            "byoc.compile_standalone or --emit standalone"
        )
    if output is not None:
        require_linker(target)
        if output.suffix != ".so":
            raise CompileError(f"cannot write {output}: the name must end in .so to be loadable")
        require_file_to_write(output, CompileError)
    if code is not None:
        require_folder_to_make(code, CompileError)


class Linkable(relax.VMExecutable):
    """An executable whose weights are an object file of its own, linked in when it is exported.

    TVM would read that file into memory and write it out again.
    """

    def __init__(
        self, module: tvm.runtime.Module, weights: Path, remove: Callable[[], None]
    ) -> None:
        """``remove`` is called when this object goes."""
        super().__init__(module)
        weakref.finalize(self, remove)
        self._objects = [weights] if weights.exists() else []

    def export_library(
        self, file_name: str, *, addons: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """As TVM's, which ``jit`` calls as well, with the weights among the ``addons``."""
        if not (options.get("fcompile") or str(file_name).endswith(".tar")):
            options = {**options, **linker_of(HOST)}
        if flags := page_flags(self._objects):
            options["options"] = [*(options.get("options") or ()), *flags]
        added = [*(addons or ()), *map(str, self._objects)]
        return super().export_library(file_name, addons=added, **options)


def export(
    executable: relax.VMExecutable,
    output: Path,
    target: Target = HOST,
    described: bool = True,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Write the library, replacing ``output`` only when it is complete, and ``check`` took it.

    One that is ``described`` has metadata, and gets the checksums that go with them.
    """
    # The identifier would be a hash over all weights.
    options = {"options": ["-Wl,--build-id=none"], **linker_of(target)}
    with folder_beside(output) as folder:
        unfinished = folder / "model.so"
        try:
            executable.export_library(str(unfinished), **options)
            if described:
                seal(unfinished)
            write_in_large_pieces(unfinished)
        except Exception as error:
            raise ToolchainError(f"linking {output} failed: {telling_line(str(error))}") from error
        if check is not None:
            check(unfinished)
        os.replace(unfinished, output)


def _check(model: Any, wanted: bool | None, request: Request) -> Callable[[Path], None] | None:
    """What compares a library with its model, where that is wanted. Raises ``CompileError``."""
    from byoc.verification import require_agreement

    if wanted is None:
        here = not request.target.is_foreign and request.states is None
        wanted = here and comes_with_examples(model)
    if not wanted:
        return None
    if request.target.is_foreign:
        raise CompileError(f"verify runs the library here; it is for {request.target.name}")
    fixed = request.fixed_inputs
    return lambda library: require_agreement(model, library, request.threads, fixed)


def _generate(
    done: Partitioned, target: Target, timers: bool, dump_code: Path | None, weights: Path
) -> tuple[tvm.IRModule, Report, Metadata]:
    """Replace the regions by calls; the report then has their costs, and metadata what they do."""
    from codegen_cc import generate

    regions = [function for function in done.module.functions.values() if is_region(function)]
    made = generate(regions, target, timers=timers, dump_code=dump_code, weights=weights)
    register()  # for a source tree that is not installed, where TVM sees no entry point
    module = relax.transform.RunCodegen({"ext": {"modules": made.modules}})(done.module)
    entry = done.metadata.entry
    in_place = made.in_place[entry.symbol] if entry else ()
    metadata = with_states_in_place(done.metadata, in_place)
    return module, done.report.with_plan_costs(made.costs), metadata


def _build(
    module: tvm.IRModule, target: Target, metadata: Metadata
) -> tuple[relax.VMExecutable, Metadata]:
    """Compile what was not offloaded, and attach the metadata, which then tell what it needs."""
    from codegen_cc import metadata_module

    try:
        lowered, needs = _lower(check_sizes(module, metadata), target)
        metadata = replace(metadata, runtime=needs)
        described = metadata_module(metadata.to_json(), target)
        existing = (lowered.attrs or {}).get("external_mods") or []
        return _finish(
            lowered.with_attr("external_mods", [*existing, *described]), target
        ), metadata
    except (MemoryError, ToolchainError):
        raise
    except Exception as error:
        where = failing_binding(
            module, error, lambda part: _finish(_lower(part, target)[0], target)
        )
        said = str(error) if isinstance(error, CompileError) else one_line(error)
        raise CompileError(f"TVM cannot compile what it keeps{where}: {said}") from error


def _lower(module: tvm.IRModule, target: Target) -> tuple[tvm.IRModule, tuple[RuntimeLibrary, ...]]:
    """Fuse what was not offloaded, down to loops and packed functions, and settle these."""
    passes = [relax.get_pipeline("zero"), relax.get_pipeline("default_build")]
    with tvm.target.Target(target.tvm), tvm.transform.PassContext(opt_level=3):
        module = direct_calls(module)
        module = hide_definitions(definitions_apart(check_extents(module)))
        module = symbols_apart(module)
        for run in passes:
            module = run(module)
    return settle(empty_constants_of_lowered(module), target)


def _finish(lowered: tvm.IRModule, target: Target) -> relax.VMExecutable:
    with tvm.target.Target(target.tvm), tvm.transform.PassContext(opt_level=3):
        return tvm.compile(lowered, tvm.target.Target(target.tvm), relax_pipeline=None)


__all__ = ["CompileError", "Compiled", "compile", "export"]
