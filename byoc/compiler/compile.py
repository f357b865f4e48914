"""A model in, one deployable library out: every stage in one call."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.support.cc import cross_compiler

from byoc.arguments import as_path, as_threads
from byoc.autoload import register
from byoc.compiler.empty_constants import load_empty_constants
from byoc.compiler.packed_functions import settle
from byoc.compiler.partitioned import Partitioned, partition_model
from byoc.deploy.metadata import Metadata, RuntimeLibrary
from byoc.destination import require_file_to_write, require_folder_to_make
from byoc.errors import CompileError
from byoc.frontends import GivenModel
from byoc.ir.check_extents import check_extents
from byoc.ir.dataflow import is_region
from byoc.ir.define_symbols import hide_definitions
from byoc.partition.control import Libraries
from byoc.partition.failing_node import failing_binding
from byoc.partition.prune import MIN_COMPUTE_BYTES
from byoc.patterns.registry import Predicate
from byoc.report import Report
from byoc.stages import Progress, Stages
from codegen_cc.errors import ToolchainError, one_line
from codegen_cc.link.checksum import seal
from codegen_cc.target import HOST, Target
from codegen_cc.unfinished import folder_beside

#: What TVM's exporter tries when neither CXX nor CC is set, in its order.
_LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


@dataclass
class Compiled:
    """What ``compile`` made."""

    executable: relax.VMExecutable
    report: Report
    metadata: Metadata
    path: Path | None = None
    #: Seconds per stage, in the order in which the stages ran.
    seconds: dict[str, float] = field(default_factory=dict)


def compile(
    model: GivenModel,
    output: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    target: str | None = None,
    threads: int | None = None,
    dump_code: str | os.PathLike[str] | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    skip_ops: Iterable[str] = (),
    skip_nodes: Iterable[str] = (),
    only: Iterable[str] = (),
    predicate: Predicate | None = None,
    libraries: Libraries = None,
    choose: str | None = None,
    tuning_db: str | os.PathLike[str] | None = None,
    exact: bool = False,
    min_bytes: int = MIN_COMPUTE_BYTES,
    allow_wrong: Iterable[str] = (),
    min_coverage: float | None = None,
    require_full: bool = False,
    timers: bool = False,
    progress: Progress | None = None,
) -> Compiled:
    """Compile an ONNX model into one library that needs only TVM's runtime.

    ``model`` is a path, an ``onnx.ModelProto`` or its serialised bytes.
    ``output`` is the library to write; without it the model is only compiled in process
    (``relax.VirtualMachine(compiled.executable, tvm.cpu())`` runs it).  ``input_shapes`` gives
    dynamic axes a size, or a symbol (see ``prepare``).  ``target`` is the machine to compile for
    (``codegen_cc.target.NAMES``), by default any CPU of this architecture.  ``threads`` is stored
    as the default of ``byoc.load``. ``dump_code`` and ``dump_ir`` are folders for the emitted C and
    for the module after each pass. ``skip_ops``, ``skip_nodes``, ``only`` and ``predicate`` leave
    operators to TVM, and ``libraries``, ``choose`` and ``tuning_db`` say which kernel libraries and
    algorithms to use (see ``partition_for_ext``), by times of ``threads`` threads, else one; where
    ``choose`` is ``measured``, what the database lacks is timed first (see ``byoc.tune``).
    ``min_bytes`` is what a region without a contraction must compute on, and ``exact`` lets NaN,
    infinities and huge numbers flow as through the operators' formulas (see ``partition_for_ext``;
    docs/reliability.md has a table).
    ``allow_wrong`` names ONNX operators that are taken, with a warning, even in a form whose result
    is known or suspected to be wrong (see ``import_onnx``).
    ``min_coverage`` and ``require_full`` say how much must be offloaded (see ``Report.require``).
    With ``timers`` the library tells how long each kernel call took (see ``byoc.profile``).
    ``progress`` is called with a stage's name when the stage begins.

    Raises ``ByocError``; ``output`` is then left as it was.
    """
    rules = {"skip_ops": skip_ops, "skip_nodes": skip_nodes, "only": only, "predicate": predicate}
    rules |= {"exact": exact, "min_bytes": min_bytes}
    machine = Target.parse(target)
    threads = as_threads(threads, CompileError)
    if dump_code is not None:
        dump_code = as_path(dump_code, "dump_code", CompileError)
    if min_coverage is not None and not isinstance(min_coverage, int | float):
        raise CompileError(f"min_coverage is {min_coverage!r}; need a number from 0 to 1")
    if output is not None:
        output = as_path(output, "output", CompileError)
        machine.compiler() if machine.is_foreign else _require_linker()
        if output.suffix != ".so":
            raise CompileError(f"cannot write {output}: the name must end in .so to be loadable")
        require_file_to_write(output, CompileError)
    if dump_code is not None:
        require_folder_to_make(dump_code, CompileError)
    stages = Stages(progress)
    done = partition_model(
        model,
        input_shapes,
        stages,
        target=machine,
        rules=rules,
        threads=threads,
        dump_ir=dump_ir,
        libraries=libraries,
        choose=choose,
        tuning_db=tuning_db,
        allow_wrong=allow_wrong,
    )
    done.report.require(min_coverage, require_full)
    folder = tempfile.TemporaryDirectory(prefix="byoc_")
    weights = Path(folder.name, "weights.o")
    with stages("generate code"):
        module, report = _generate(done, machine, timers, dump_code, weights)
    with stages("compile what TVM keeps"):
        metadata = replace(done.metadata, report=report.to_json())
        built, metadata = _build(module, machine, metadata)
        executable = Linkable(built.mod, folder, weights)
    compiled = Compiled(executable, report, metadata, seconds=stages.seconds)
    if output is not None:
        with stages("link"):
            export(executable, output, machine)
        compiled.path = output
    return compiled


class Linkable(relax.VMExecutable):
    """An executable whose weights are an object file of its own, linked in when it is exported.

    TVM would read that file into memory and write it out again.
    """

    def __init__(
        self, module: tvm.runtime.Module, folder: tempfile.TemporaryDirectory[str], weights: Path
    ) -> None:
        super().__init__(module)
        self._folder = folder  # removed together with this object
        self._objects = [str(weights)] if weights.exists() else []

    def export_library(
        self, file_name: str, *, addons: Sequence[str] | None = None, **options: Any
    ) -> Any:
        """As TVM's, which ``jit`` calls as well, with the weights among the ``addons``."""
        return super().export_library(
            file_name, addons=[*(addons or ()), *self._objects], **options
        )


def export(
    executable: relax.VMExecutable, output: Path, target: Target = HOST, described: bool = True
) -> None:
    """Write the library, replacing ``output`` only when it is complete.

    One that is ``described`` has metadata, and gets the checksums that go with them.
    """
    # The identifier would be a hash over all weights.
    options: dict[str, Any] = {"options": ["-Wl,--build-id=none"]}
    if target.is_foreign:
        # TVM asks the function for the triple, for a network of which it compiles nothing itself.
        options["fcompile"] = cross_compiler(
            target.compiler(), get_target_triple=lambda: target.triple
        )
    with folder_beside(output) as folder:
        unfinished = folder / "model.so"
        try:
            executable.export_library(str(unfinished), **options)
            if described:
                seal(unfinished)
        except Exception as error:
            raise CompileError(f"linking {output} failed: {error}") from error
        os.replace(unfinished, output)


def _generate(
    done: Partitioned, target: Target, timers: bool, dump_code: Path | None, weights: Path
) -> tuple[tvm.IRModule, Report]:
    """Replace the regions by calls; returns the report with the regions' costs as well."""
    from codegen_cc import generate

    regions = [function for function in done.module.functions.values() if is_region(function)]
    made = generate(regions, target, timers=timers, dump_code=dump_code, weights=weights)
    register()  # for a source tree that is not installed, where TVM sees no entry point
    module = relax.transform.RunCodegen({"ext": {"modules": made.modules}})(done.module)
    return module, done.report.with_plan_costs(made.costs)


def _build(
    module: tvm.IRModule, target: Target, metadata: Metadata
) -> tuple[relax.VMExecutable, Metadata]:
    """Compile what was not offloaded, and attach the metadata, which then tell what it needs."""
    from codegen_cc import metadata_module

    try:
        lowered, needs = _lower(module, target)
        metadata = replace(metadata, runtime=needs)
        described = metadata_module(metadata.to_json(), target)
        existing = (lowered.attrs or {}).get("external_mods") or []
        return _finish(lowered.with_attr("external_mods", [*existing, described]), target), metadata
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
        module = hide_definitions(check_extents(module))
        for run in passes:
            module = run(module)
    return settle(load_empty_constants(module), target)


def _finish(lowered: tvm.IRModule, target: Target) -> relax.VMExecutable:
    with tvm.target.Target(target.tvm), tvm.transform.PassContext(opt_level=3):
        return tvm.compile(lowered, tvm.target.Target(target.tvm), relax_pipeline=None)


def _require_linker() -> None:
    """Stop before minutes of work when the last step could not be done."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    candidates = (named,) if named else _LINKERS
    if not any(shutil.which(candidate) for candidate in candidates):
        raise CompileError(
            f"no C compiler found (looked for {', '.join(candidates)}); install the package gcc "
            "(Debian, Ubuntu: apt install gcc) or set CC"
        )


__all__ = ["CompileError", "Compiled", "compile", "export"]
