"""Partition a Relax module for this backend."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import tvm
from tvm import relax

from byoc.arguments import as_path, as_whole
from byoc.canonicalise import canonicalise
from byoc.errors import ControlError, OffloadWarning, PartitionError, SuspectWarning
from byoc.ir.dataflow import is_candidate, is_region

# The passes by their modules: a function of the same name would hide the module from importers.
from byoc.partition import annotate, detach_constants, merge, prune, reachable_regions
from byoc.partition.control import Control, Libraries
from byoc.partition.distinct_symbols import distinct_symbols
from byoc.partition.failing_node import failing_node
from byoc.partition.marks import is_marked
from byoc.partition.position_of_lowest import position_of_lowest
from byoc.partition.prune import MIN_COMPUTE_BYTES, too_little_work
from byoc.partition.suspect import suspect_forms
from byoc.patterns.registry import Predicate
from byoc.report import Pruned, Report
from byoc.report.asked import asked_libraries
from byoc.report.reasons import Reasons
from byoc.tuning.choice import select
from codegen_cc.errors import foreign_errors_as

Observer = Callable[[str, tvm.IRModule], None]


def partition_for_ext(
    mod: tvm.IRModule,
    *,
    skip_ops: Iterable[str] = (),
    skip_nodes: Iterable[str] = (),
    only: Iterable[str] = (),
    predicate: Predicate | None = None,
    libraries: Libraries = None,
    choose: str | None = None,
    tuning_db: str | os.PathLike[str] | None = None,
    tuning_threads: int = 1,
    exact: bool = False,
    min_bytes: int = MIN_COMPUTE_BYTES,
    dump_ir: Path | str | None = None,
) -> tvm.IRModule:
    """Move what this backend's kernels can run into functions of their own.

    The result has global functions with the attributes ``Codegen="ext"`` and ``global_symbol``;
    ``relax.transform.RunCodegen()`` compiles them, and everything else stays as TVM has it.
    With ``dump_ir``, the module after each pass is written to that folder as text, without
    weights. The given module is not changed.

    These leave calls to TVM, whatever the kernels could do: ``skip_ops``, Relax operators by name
    (``relax.nn.softmax`` or ``softmax``); ``skip_nodes``, shell patterns of ONNX node names, or of
    variables in a module that did not come from ONNX; ``only``, the operators that may be
    offloaded, alone; ``predicate(node, call)``, asked about each call as in ``register_ext_op``.
    A module with marks (see ``mark``) has only marked bindings offloaded. A region without a
    contraction must compute on ``min_bytes`` bytes to be worth its call; 0 keeps every region.

    ``libraries`` are the kernel libraries to ask, in order: names (``builtin``, ``onednn``), paths
    of ``.py`` files or objects; ``conv2d=onednn`` and ``encoder/*=cblas`` force one for an operator
    or for named nodes. Without it, ``builtin`` computes everything. Where several can, ``choose``
    takes the first in ``order`` (the default), or by ``model`` the one that states the least cost;
    ``tuning_db``, a file that ``byoc.tune`` wrote, decides on library and algorithm of the layers
    that it knows by their times on this CPU with ``tuning_threads`` threads (``measured``: the
    default database does). What is wrong with it is a ``TuningWarning``.

    With ``exact``, NaN, infinities and huge numbers flow as through the operators' formulas: no
    Winograd, attention operator by operator, and no region is too small, as TVM's own kernels drop
    NaN in ``relu``, ``clip`` and ``maximum``. Numbers within their range are as right without it.

    Where less than half of the work is offloaded, an ``OffloadWarning`` says why and what it costs.
    A BatchNorm in training form whose new statistics nobody reads is a ``SuspectWarning``.

    Raises ``ControlError`` for names that fit no operator or no node, ``LibraryError`` for a
    library that is missing or does not load.
    """
    return partition_with_report(
        mod,
        skip_ops=skip_ops,
        skip_nodes=skip_nodes,
        only=only,
        predicate=predicate,
        libraries=libraries,
        choose=choose,
        tuning_db=tuning_db,
        tuning_threads=tuning_threads,
        exact=exact,
        min_bytes=min_bytes,
        dump_ir=dump_ir,
    )[0]


def partition_with_report(
    mod: tvm.IRModule,
    *,
    skip_ops: Iterable[str] = (),
    skip_nodes: Iterable[str] = (),
    only: Iterable[str] = (),
    predicate: Predicate | None = None,
    libraries: Libraries = None,
    choose: str | None = None,
    tuning_db: str | os.PathLike[str] | None = None,
    tuning_threads: int = 1,
    exact: bool = False,
    min_bytes: int = MIN_COMPUTE_BYTES,
    dump_ir: Path | str | None = None,
) -> tuple[tvm.IRModule, Report]:
    """Partition as ``partition_for_ext`` does, and say what was taken and what was not, and why."""
    if not isinstance(mod, tvm.IRModule):
        raise PartitionError(
            f"the module is of type {type(mod).__name__}; need a tvm.IRModule of Relax functions, "
            "such as tvm.relax.frontend.onnx.from_onnx gives"
        )
    min_bytes = as_whole(min_bytes, "min_bytes", ControlError, 0, sys.maxsize)
    folder = None if dump_ir is None else as_path(dump_ir, "dump_ir", PartitionError)
    reasons: Reasons = {}
    pruned: list[Pruned] = []
    selection = select(libraries, choose, tuning_db, tuning_threads, exact=exact)
    control = Control.of(skip_ops, skip_nodes, only, predicate, selection)
    control.check_nodes(mod)
    if is_marked(mod) or selection.exact:
        min_bytes = 0  # who marks a binding has decided that it is worth a region
    mod = _normalised(mod)
    for suspect in suspect_forms(mod):
        warnings.warn(suspect, SuspectWarning, stacklevel=_levels_to_user())
    # Regions of an earlier partition, with other libraries say, stay as they are.
    given = {gvar.name_hint for gvar, func in mod.functions.items() if is_region(func)}
    observe = None if folder is None else _writer(folder)
    passes: tuple[tuple[str, Callable[[tvm.IRModule], tvm.IRModule]], ...] = (
        # Symbols of one name would be one symbol from here on.
        ("distinct_symbols", distinct_symbols),
        # Straight-line code becomes dataflow blocks, so that nothing is missed in silence.
        ("convert_to_dataflow", convert_to_dataflow),
        # Importer idioms become one operator each; writes a dump for each of its rules.
        ("canonicalise", lambda m: canonicalise(m, observe)),
        # Supported chains become composites, composites regions, and small regions TVM's again.
        ("annotate", lambda m: annotate.annotate(m, reasons, control)),
        ("merge", merge.merge),
        (
            "prune",
            lambda m: prune.prune(
                m, reasons, partial(too_little_work, min_bytes=min_bytes), pruned, given
            ),
        ),
        ("reachable_regions", reachable_regions.reachable_regions),
        # Weights leave the expressions, or TVM would store them a second time.
        ("detach_constants", detach_constants.detach_constants),
    )
    if observe is not None:
        observe("imported", mod)
    for name, run in passes:
        with foreign_errors_as(PartitionError, f"the pass {name}", failing_node):
            mod = run(mod)
        if observe is not None:
            observe(name, mod)
    report = Report.of(mod, reasons)
    asked = asked_libraries(mod, selection, report.left)
    report = replace(report, pruned=tuple(pruned), asked=asked, exact=selection.exact)
    if report.shortfall is not None:
        warnings.warn(str(report.shortfall), OffloadWarning, stacklevel=_levels_to_user())
    # After the report, which is about the user's operators.
    mod = position_of_lowest(mod)
    if observe is not None:
        observe("position_of_lowest", mod)
    return mod, report


def _levels_to_user() -> int:
    """How far up the stack, counted from the caller, the first code outside of the package is."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "byoc":
        frame, level = frame.f_back, level + 1
    return level


def _normalised(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with the types inferred that code written by hand may lack, as TVM's build does.

    What ``Normalize`` cannot mend, the passes refuse with a reason or do not care about.
    """
    if relax.analysis.check_well_formed(mod):
        return mod
    try:
        return relax.transform.Normalize()(mod)
    except (tvm.error.InternalError, TypeError, ValueError):
        return mod


def convert_to_dataflow(mod: tvm.IRModule) -> tvm.IRModule:
    """Put straight-line code outside of dataflow blocks into such blocks."""
    plain = any(
        not isinstance(block, relax.DataflowBlock)
        for func in mod.functions.values()
        if is_candidate(func)
        for block in func.body.blocks
    )
    if not plain:
        return mod
    # The pass fails, or loses bindings that later code reads, where it does not know an operator
    # (those of distributed tensors). Such code stays outside of dataflow blocks.
    try:
        converted = relax.transform.ConvertToDataflow(min_size=1)(mod)
    except (tvm.error.InternalError, TypeError, ValueError):
        return mod
    sound = relax.analysis.check_well_formed
    return converted if sound(converted) or not sound(mod) else mod


def _writer(folder: Path) -> Observer:
    """Write modules as ``00_imported.py``, ``01_...`` in the order of the calls."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0

    def write(name: str, mod: tvm.IRModule) -> None:
        nonlocal count
        (folder / f"{count:02d}_{name}.py").write_text(mod.script(show_meta=False) + "\n")
        count += 1

    return write
