"""The stages that all forms of libraries share: a model imported and partitioned."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tvm
import tvm_ffi

from byoc.arguments import as_path
from byoc.compiler.single_region import SingleRegion, single_region
from byoc.compiler.tune import time_missing
from byoc.deploy.metadata import Entry, LibraryInfo, Metadata, TargetInfo
from byoc.destination import require_folder_to_make
from byoc.errors import ControlError, PartitionError
from byoc.frontends import GivenModel, import_model
from byoc.partition import partition_with_report
from byoc.partition.control import Libraries
from byoc.partition.sizes_of_nothing import least_size
from byoc.report import Report
from byoc.stages import Stages
from byoc.tuning.choice import database_path, select
from byoc.version import __version__
from codegen_cc.target import X86_64_LEVELS, Target


@dataclass
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
    imported = import_model(model, input_shapes, allow_wrong, stages)
    _return_memory()
    module = imported.module
    if choose == "measured":
        with stages("tune"):
            time_missing(module, rules, libraries, database_path(tuning_db), threads or 1, stages)
    with stages("partition", PartitionError):
        selection = select(libraries, choose, tuning_db, threads or 1)
        module, report = partition_with_report(
            module, **rules, libraries=selection, dump_ir=dump_ir
        )
    entry = single_region(module)
    metadata = Metadata(
        imported.inputs,
        imported.outputs,
        threads=threads,
        libraries=tuple(LibraryInfo(u.name, u.version, u.linked) for u in report.libraries),
        target=target_info(target),
        versions=versions(),
        source=imported.source,
        entry=None if isinstance(entry, str) else Entry(**asdict(entry)),
        least_size=least_size(module),
    )
    return Partitioned(module, report, metadata, entry)


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
