"""The stages that all forms of libraries share: a model imported and partitioned."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import tvm
import tvm_ffi

from byoc.compiler.request import Request, with_times
from byoc.compiler.rows_first import mark_states
from byoc.compiler.single_region import SingleRegion, single_region
from byoc.compiler.states import (
    growing_states,
    keep_states,
    mark_replaced,
    placed_states,
    require_empty,
)
from byoc.compiler.tune import time_missing
from byoc.deploy.metadata import Entry, LibraryInfo, Metadata, TargetInfo, TensorInfo
from byoc.errors import ByocError, CompileError, ImportFailure, PartitionError
from byoc.frontends import GivenModel, Imported, import_model
from byoc.ir.custom import NAME as CUSTOM
from byoc.partition import partition
from byoc.partition.expose import Expose
from byoc.partition.sizes_of_nothing import least_size
from byoc.report import Report
from byoc.stages import Stages
from byoc.version import __version__
from codegen_cc.libraries import Selection
from codegen_cc.link.foreign_kernels import kernel_archive, need_building
from codegen_cc.operator import owner_of
from codegen_cc.target import X86_64_LEVELS, Target

Made = TypeVar("Made")


@dataclass(frozen=True)
class Partitioned:
    """A network with its regions marked, ready for code generation.

    ``entry`` is how ``main`` calls its one region, or why that is not all it does.
    """

    module: tvm.IRModule
    report: Report
    metadata: Metadata
    entry: SingleRegion | str


def partition_model(
    model: GivenModel,
    input_shapes: Mapping[str, Sequence[int | str]] | None,
    request: Request,
    stages: Stages,
) -> Partitioned:
    """The stages up to partitioning, which all forms of deployment share."""
    return partition_and(lambda done: done, model, input_shapes, request, stages)


def partition_and(
    finish: Callable[[Partitioned], Made],
    model: GivenModel,
    input_shapes: Mapping[str, Sequence[int | str]] | None,
    request: Request,
    stages: Stages,
) -> Made:
    """What ``finish`` makes of a partitioned model.

    Where that or the partition fails, and we chose extents of dynamic axes, less general ones are
    tried; if none will do, the first failure counts.
    """
    imported = import_model(
        model,
        input_shapes,
        request.allow_wrong,
        stages,
        states=bool(request.states),
        fixed_inputs=request.fixed_inputs,
    )
    _return_memory()
    first: CompileError | PartitionError | None = None
    while True:
        less_general = imported.less_general
        try:
            done = partition_imported(imported, request, stages)
            del imported  # and its constants, which may have been replaced
            return finish(done)
        except (CompileError, PartitionError) as error:
            if isinstance(error.__cause__, OSError):  # no extents make room on a disk
                raise
            first = first or error
        if less_general is None:
            raise first
        try:
            with stages("import into TVM", ImportFailure):
                imported = less_general()
        except ByocError:
            raise first from None


def partition_imported(
    imported: Imported, request: Request, stages: Stages, expose: Expose | None = None
) -> Partitioned:
    """The stages from an imported model on; ``expose`` adds outputs, and maybe inputs."""
    if expose is None:
        imported = keep_states(imported, request.states)
    rules, database, threads = request.rules, request.outdated, request.threads
    if database is not None:
        with stages("tune"):
            time_missing(imported.module, rules, database, threads or 1, stages)
            rules = with_times(rules, database, threads or 1)
    with stages("partition", PartitionError):
        module, report = partition(imported.module, rules, request.dump_ir, expose)
        _require_kernels(report, rules.libraries)
        report = replace(report, axes=imported.axes)
        module = mark_states(module, growing_states(imported), placed_states(imported))
        require_empty(module, imported.states)
    entry = single_region(module)
    inputs, outputs = imported.inputs, imported.outputs
    if expose is not None:
        inputs, outputs = expose.signature(inputs, outputs)
    single = _entry(entry, (*inputs, *(state.input for state in imported.states)))
    at_once = isinstance(entry, str) or not entry.doubtful
    metadata = Metadata(
        inputs,
        outputs,
        threads=threads,
        libraries=tuple(LibraryInfo(u.name, u.version, u.linked) for u in report.libraries),
        target=target_info(request.target),
        versions=versions(),
        source=imported.source,
        entry=single if at_once else None,
        repeats=None if at_once else single,
        least_size=least_size(module),
        ranges=imported.ranges,
        conditions=imported.conditions,
        states=imported.states,
        fixed=imported.fixed,
        labelled=imported.labelled,
    )
    return Partitioned(mark_replaced(module, metadata), report, metadata, entry)


def _require_kernels(report: Report, libraries: Selection) -> None:
    """Raise ``CompileError`` for an operator of a user's library that no library takes: TVM has no
    code for it."""
    for entry in report.left:
        if not entry.op.startswith(CUSTOM):
            continue
        owner = owner_of(entry.op.removeprefix(CUSTOM).strip("()"))
        why = f"{entry.reason}; extend a kernel of library {owner}"
        if owner not in (found.name for found in libraries.all):
            why = f"library {owner} has it and is not asked; need --library {owner},builtin"
        raise CompileError(f"no kernel computes {entry.name} ({entry.shapes}): {why}")


def build_kernels(target: Target, stages: Stages) -> None:
    """The stage in which a target's kernels are built, where nothing has them yet."""
    if need_building(target):
        with stages(f"build the kernels for {target.name}, once"):
            kernel_archive(target)


def _entry(region: SingleRegion | str, given: tuple[TensorInfo, ...]) -> Entry | None:
    """The region that is all, where a loader can tell the sizes of all that it takes and gives."""
    told = {symbol for info in given for symbol in info.symbols}
    if isinstance(region, str) or {*region.sizes} - told:
        return None
    return Entry(region.symbol, region.inputs, region.outputs, region.sizes)


def versions() -> dict[str, str]:
    """Versions of what makes a library."""
    return {"byoc": __version__, "tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}


def target_info(target: Target) -> TargetInfo:
    """What a library for a machine says of it."""
    names = list(X86_64_LEVELS)
    past = names.index(target.level) + 1 if target.level else 0
    flags = [flag for name in names[:past] for flag in X86_64_LEVELS[name]]
    return TargetInfo(target.name, target.machine, target.kernel_levels, tuple(flags))


def _return_memory() -> None:
    """Give the system what is free between allocated blocks, which glibc would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
