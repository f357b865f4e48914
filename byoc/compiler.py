"""ONNX in, one deployable library out: every stage in one call."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import tvm
import tvm_ffi
from tvm import relax
from tvm.support.cc import cross_compiler

import byoc
from byoc import _autoload
from byoc.arguments import as_path, as_threads
from byoc.deploy.metadata import (
    Entry,
    LibraryInfo,
    Metadata,
    RuntimeLibrary,
    TargetInfo,
    TensorInfo,
)
from byoc.deploy.single_region import SingleRegion, single_region
from byoc.deploy.source_files import hash_files, hash_model
from byoc.destination import require_file_to_write, require_folder_to_make
from byoc.empty_constants import load_empty_constants
from byoc.errors import CompileError, ControlError, ImportFailure, ModelError, PartitionError
from byoc.frontends.onnx import import_onnx, prepare_apart
from byoc.frontends.onnx.given_model import GivenModel, given_model
from byoc.frontends.onnx.input_shapes import model_inputs
from byoc.ir.check_extents import check_extents
from byoc.ir.define_symbols import hide_definitions
from byoc.packed_functions import settle
from byoc.partition import partition_with_report
from byoc.partition.control import Libraries
from byoc.partition.failing_node import failing_binding
from byoc.partition.prune import MIN_COMPUTE_BYTES
from byoc.partition.sizes_of_nothing import least_size
from byoc.patterns.registry import Predicate
from byoc.report import Report
from byoc.stages import Progress, Stages
from byoc.tuning.choice import database_path, select
from codegen_cc.errors import ToolchainError, one_line
from codegen_cc.link.checksum import seal
from codegen_cc.plan.plan_cost import PlanCost
from codegen_cc.region.relax_dims import dim_text
from codegen_cc.target import HOST, X86_64_LEVELS, Target
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
    done = partition_onnx(
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
        options = {"weights": str(weights), "timers": timers, "target": machine.name}
        if dump_code is not None:
            options["dump_code"] = str(dump_code)
        module, report = _generate(done, machine, options)
    with stages("compile what TVM keeps"):
        built = _build(module, machine, done)
        executable = Linkable(built.mod, folder, weights)
    compiled = Compiled(executable, report, done.metadata, seconds=stages.seconds)
    if output is not None:
        with stages("link"):
            export(executable, output, machine)
        compiled.path = output
    return compiled


@dataclass
class Partitioned:
    """A network with its regions marked, ready for code generation.

    ``entry`` is how ``main`` calls its one region, or why that is not all it does.
    """

    module: tvm.IRModule
    report: Report
    metadata: Metadata
    entry: SingleRegion | str


def partition_onnx(
    model: GivenModel,
    input_shapes: Mapping[str, Sequence[int | str]] | None,
    stages: Stages,
    *,
    target: Target,
    rules: Mapping[str, Any],
    threads: int | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    libraries: Libraries = None,
    choose: str | None = None,
    tuning_db: str | os.PathLike[str] | None = None,
    allow_wrong: Iterable[str] = (),
) -> Partitioned:
    """The stages up to partitioning, which all forms of deployment share.

    ``rules`` are ``skip_ops``, ``skip_nodes``, ``only``, ``predicate``, ``exact`` and ``min_bytes``
    of ``partition_for_ext``; the rest is as for ``compile``.
    """
    if dump_ir is not None:
        dump_ir = as_path(dump_ir, "dump_ir", PartitionError)
        require_folder_to_make(dump_ir, PartitionError)
    if target.is_foreign and (choose == "measured" or tuning_db is not None):
        raise ControlError(
            f"times measured here say nothing of {target.name}; tune on such a machine (byoc tune "
            "--rpc), and name it with --tuning-machine"
        )
    with stages("prepare the model", ModelError):
        model = given_model(model)
        prepared = prepare_apart(model, input_shapes)
        in_memory = isinstance(model, onnx.ModelProto)
        source = hash_model(model) if in_memory else hash_files(prepared.files)
    with stages("import into TVM", ImportFailure):
        module = import_onnx(prepared, allow_wrong)
        metadata = _metadata(prepared.model, module, threads)
        del prepared
        _return_memory()
    if choose == "measured":
        with stages("tune"):
            _time_missing(module, rules, libraries, database_path(tuning_db), threads or 1, stages)
    with stages("partition", PartitionError):
        selection = select(libraries, choose, tuning_db, threads or 1)
        module, report = partition_with_report(
            module, **rules, libraries=selection, dump_ir=dump_ir
        )
    entry = single_region(module)
    metadata = replace(
        metadata,
        libraries=tuple(LibraryInfo(u.name, u.version, u.linked) for u in report.libraries),
        target=target_info(target),
        versions=versions(),
        source=source,
        entry=None if isinstance(entry, str) else Entry(**asdict(entry)),
        least_size=least_size(module),
    )
    return Partitioned(module, report, metadata, entry)


def versions() -> dict[str, str]:
    """Versions of what makes a library."""
    return {"byoc": byoc.__version__, "tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}


def target_info(target: Target) -> TargetInfo:
    """What a library for a machine says of it."""
    names = list(X86_64_LEVELS)
    past = names.index(target.level) + 1 if target.level else 0
    flags = [flag for name in names[:past] for flag in X86_64_LEVELS[name]]
    return TargetInfo(target.name, target.machine, target.kernel_levels, tuple(flags))


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


def _time_missing(
    module: tvm.IRModule,
    rules: Mapping[str, Any],
    libraries: Libraries,
    database: Path,
    threads: int,
    stages: Stages,
) -> None:
    """Bring a tuning database up to date for the layers of an imported module."""
    from byoc.tuning.tuner import tune_partitioned

    def tell(what: str, done: int, total: int) -> None:
        stages.announce(f"tune, {done} of {total}: {what}")

    untuned = select(libraries)
    partitioned, _ = partition_with_report(module, **rules, libraries=untuned)
    tune_partitioned(partitioned, untuned, database, [threads], progress=tell)


def _return_memory() -> None:
    """Give the system what is free between allocated blocks, which glibc would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _generate(
    done: Partitioned, target: Target, options: Mapping[str, object]
) -> tuple[tvm.IRModule, Report]:
    """Replace the regions by calls.

    ``options`` are those of ``codegen_cc.codegen``. Returns the report with the regions' costs as
    well.
    """
    _autoload()  # for a source tree that is not installed, where TVM sees no entry point
    found: dict[str, PlanCost] = {}

    def observe(region: str, cost: str) -> None:
        found[str(region)] = PlanCost(**json.loads(str(cost)))

    module = relax.transform.RunCodegen({"ext": {**options, "plan_costs": observe}})(done.module)
    report = done.report.with_plan_costs(found)
    done.metadata = replace(done.metadata, report=report.to_json())
    return module, report


def _build(module: tvm.IRModule, target: Target, done: Partitioned) -> relax.VMExecutable:
    """Compile what was not offloaded, and attach the metadata, which then tell what it needs."""
    from codegen_cc import metadata_module

    try:
        lowered, needs = _lower(module, target)
        done.metadata = replace(done.metadata, runtime=needs)
        described = metadata_module(done.metadata.to_json(), target)
        existing = (lowered.attrs or {}).get("external_mods") or []
        return _finish(lowered.with_attr("external_mods", [*existing, described]), target)
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


def _metadata(model: onnx.ModelProto, module: tvm.IRModule, threads: int | None) -> Metadata:
    """Pair the names of the ONNX model with the shapes and dtypes of the Relax function."""
    main = module["main"]
    inputs, outputs = model_inputs(model), list(model.graph.output)
    # The declared result knows no symbols but the parameters' own.
    result = main.body.body.ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    _require_same_count("input", inputs, list(main.params))
    _require_same_count("output", outputs, results)
    return Metadata(
        inputs=tuple(
            _input_info(value, parameter.ty)
            for value, parameter in zip(inputs, main.params, strict=True)
        ),
        outputs=tuple(
            _output_info(value.name, type_) for value, type_ in zip(outputs, results, strict=True)
        ),
        threads=threads,
    )


def _require_same_count(
    what: str, values: Sequence[onnx.ValueInfoProto], found: Sequence[object]
) -> None:
    if len(values) != len(found):
        names = [value.name for value in values]
        raise CompileError(
            f"the imported model has {len(found)} {what}s where ONNX has {len(names)}: {names}"
        )


def _input_info(value: onnx.ValueInfoProto, type_: relax.Type) -> TensorInfo:
    """Symbolic extents as the caller gave them: main itself takes whatever its symbols allow."""
    info = _output_info(value.name, type_)
    dims = value.type.tensor_type.shape.dim
    shape = (
        dim.dim_param if isinstance(extent, str) else extent
        for extent, dim in zip(info.shape, dims, strict=True)
    )
    return TensorInfo(info.name, tuple(shape), info.dtype)


def _output_info(name: str, type_: relax.Type) -> TensorInfo:
    shape = getattr(type_, "shape", None)
    sizes = getattr(shape, "values", None)
    if sizes is None:
        raise CompileError(
            f"{name!r} has no known shape after import ({type_}); "
            "give every dynamic axis a size, or cut the model before it"
        )
    extents = (int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes)
    return TensorInfo(name, tuple(extents), str(type_.dtype))


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
