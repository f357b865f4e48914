"""A model in, a C library out that needs no TVM (docs/standalone.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import tvm
from typing_extensions import Unpack

from byoc.arguments import as_path
from byoc.compiler.keywords import CompileKeywords, takes
from byoc.compiler.partitioned import Partitioned, build_kernels, partition_model
from byoc.compiler.request import Request
from byoc.compiler.single_region import SingleRegion
from byoc.compiler.standalone_interface import standalone_interface
from byoc.compiler.states import with_states_in_place
from byoc.deploy.metadata import Metadata
from byoc.destination import require_folder_to_make
from byoc.errors import CompileError
from byoc.frontends import GivenModel, given_model
from byoc.report import Report
from byoc.stages import Stages
from codegen_cc.region.read_relax import read_region
from codegen_cc.standalone import build, default_name, function_names, require_name

#: Where ``compile_standalone`` is not told what to call a model that has no file.
_UNNAMED = "model"


@dataclass
class Standalone:
    """What ``compile_standalone`` wrote: paths below ``folder`` with their sizes in bytes."""

    name: str
    folder: Path
    files: dict[str, int]
    report: Report
    metadata: Metadata
    #: Seconds per stage, in the order in which the stages ran.
    seconds: dict[str, float] = field(default_factory=dict)


@takes(CompileKeywords)
def compile_standalone(
    model: GivenModel,
    output: str | os.PathLike[str],
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    name: str | None = None,
    **keywords: Unpack[CompileKeywords],
) -> Standalone:
    """Compile an ONNX model into a folder with C headers, a static and a shared library.

    ``name`` begins the names of the C functions and of the files; by default it is made from that
    of the model's file.  ``output`` is the folder; one that exists keeps its other files, so that
    several models can share it.  All operators must be in one region: what is in the way is named.
    Axes without a size (``input_shapes``) get theirs at run time.  ``states`` are kept by each
    instance.

    Raises ``ByocError``; no file is then changed.
    """
    folder = as_path(output, "output", CompileError)
    request, stages = Request.of(keywords), Stages(keywords["progress"])
    model = given_model(model)
    _require_place(folder)
    if name is None:
        file = model if isinstance(model, Path) else getattr(model, "file", None)
        name = _UNNAMED if file is None else default_name(file.stem)
    require_name(name, function_names(name), request.target)
    done = partition_model(model, input_shapes, request, stages)
    entry = _require_one_region(done)
    metadata = replace(done.metadata, form="standalone", report=done.report.to_json())
    build_kernels(request.target, stages)
    with stages("generate code and link"):
        region = _region(done.module, entry)
        interface = standalone_interface(name, metadata, entry, read_region(region))
        described = [metadata]

        def describe(in_place: Collection[int]) -> str:
            described.append(with_states_in_place(metadata, in_place))
            return described[-1].to_json()

        package = build(region, interface, folder, describe, request.target)
    report = done.report.with_plan_costs({entry.symbol: package.cost})
    return Standalone(name, folder, package.files, report, described[-1], stages.seconds)


def _require_place(folder: Path) -> None:
    """Stop before minutes of work when the folder could not be written."""
    if folder.exists() and not folder.is_dir():
        raise CompileError(f"cannot write {folder}: it is a file; give a folder")
    if not folder.parent.is_dir():
        raise CompileError(f"cannot write {folder}: there is no folder {folder.parent}")
    require_folder_to_make(folder, CompileError)


def _require_one_region(done: Partitioned) -> SingleRegion:
    """How the network calls its only region; raises ``CompileError`` saying what is in the way."""
    need = "the standalone form needs the whole network in one region"
    report = done.report
    if report.left:
        first = report.left[0]
        reason = re.sub(r"\s+", " ", first.reason)
        raise CompileError(
            f"{need}: {len(report.left)} of {report.operators} operators stay with TVM, the first "
            f"is {first.name} ({first.op}: {reason}); `byoc partition` lists them"
        )
    if isinstance(done.entry, str):
        raise CompileError(f"{need}: {done.entry}; `byoc partition` shows the regions")
    return done.entry


def _region(module: tvm.IRModule, entry: SingleRegion) -> tvm.relax.Function:
    for function in module.functions.values():
        attributes = function.attrs
        if attributes and str(attributes.get("global_symbol", "")) == entry.symbol:
            return function
    raise CompileError(f"the module has no function {entry.symbol}")
