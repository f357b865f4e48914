"""The stages that all forms of libraries share: a model imported and partitioned."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import tvm
import tvm_ffi
from tvm import relax

from byoc.arguments import as_path
from byoc.compiler.single_region import SingleRegion, single_region
from byoc.compiler.source_files import hash_files, hash_model
from byoc.deploy.metadata import Entry, LibraryInfo, Metadata, TargetInfo, TensorInfo
from byoc.destination import require_folder_to_make
from byoc.errors import CompileError, ControlError, ImportFailure, ModelError, PartitionError
from byoc.frontends.onnx import import_onnx, prepare_apart
from byoc.frontends.onnx.given_model import GivenModel, given_model
from byoc.frontends.onnx.input_shapes import model_inputs
from byoc.partition import partition_with_report
from byoc.partition.control import Libraries
from byoc.partition.sizes_of_nothing import least_size
from byoc.report import Report
from byoc.stages import Stages
from byoc.tuning.choice import database_path, select
from byoc.version import __version__
from codegen_cc.region.relax_dims import dim_text
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
    return {"byoc": __version__, "tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}


def target_info(target: Target) -> TargetInfo:
    """What a library for a machine says of it."""
    names = list(X86_64_LEVELS)
    past = names.index(target.level) + 1 if target.level else 0
    flags = [flag for name in names[:past] for flag in X86_64_LEVELS[name]]
    return TargetInfo(target.name, target.machine, target.kernel_levels, tuple(flags))


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
