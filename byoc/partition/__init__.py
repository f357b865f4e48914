"""Partition a Relax module for this backend: the passes, by rules that were read before.

The doors for users are ``byoc.compiler.partition`` and, from a model on, ``byoc.compiler``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import tvm
from tvm import relax

from byoc.canonicalise import canonicalise
from byoc.canonicalise.index_out_of_bounds import no_index_out_of_leftovers
from byoc.canonicalise.widen_halves import widen_halves
from byoc.destination import write_whole
from byoc.errors import CompileError, OffloadWarning, PartitionError, SuspectWarning
from byoc.ir.dataflow import is_candidate, is_region

# The passes by their modules: a function of the same name would hide the module from importers.
from byoc.partition import annotate, detach_constants, merge, prune, reachable_regions
from byoc.partition.distinct_symbols import distinct_symbols
from byoc.partition.empty_constants import empty_constants
from byoc.partition.expose import Expose
from byoc.partition.failing_node import failing_node
from byoc.partition.position_of_lowest import position_of_lowest
from byoc.partition.prune import too_little_work
from byoc.partition.reductions_of_nothing import reductions_of_nothing
from byoc.partition.rules import FREE, Rules
from byoc.partition.suspect import suspect_forms
from byoc.report import Pruned, Report
from byoc.report.asked import asked_libraries
from byoc.report.reasons import Reasons
from codegen_cc.errors import foreign_errors_as

Observer = Callable[[str, tvm.IRModule], None]
Pass = tuple[str, Callable[[tvm.IRModule], tvm.IRModule]]


def partition(
    mod: tvm.IRModule,
    rules: Rules = FREE,
    dump_ir: Path | None = None,
    expose: Expose | None = None,
) -> tuple[tvm.IRModule, Report]:
    """Move what kernels can run into regions, and say what was taken and what was not, and why.

    With ``dump_ir``, the module after each pass is written to that folder as text, without
    weights. The given module is not changed. With ``expose``, ``main`` has more outputs, and maybe
    inputs, than the module given. Raises ``PartitionError``; ``ControlError`` and
    ``LibraryError`` for rules that name no node. Warns of what ``byoc.partition_for_ext`` names.
    """
    if not isinstance(mod, tvm.IRModule):
        raise PartitionError(
            f"the module is of type {type(mod).__name__}; need a tvm.IRModule of Relax functions, "
            "such as tvm.relax.frontend.onnx.from_onnx gives"
        )
    rules.check_nodes(mod)
    mod = _normalised(mod)
    for suspect in suspect_forms(mod):
        warnings.warn(suspect, SuspectWarning, stacklevel=_levels_to_user())
    reasons: Reasons = {}
    pruned: list[Pruned] = []
    observe = None if dump_ir is None else _writer(dump_ir)
    if observe is not None:
        observe("imported", mod)
    for name, run in _passes(mod, rules, reasons, pruned, observe, expose):
        with foreign_errors_as(PartitionError, f"the pass {name}", failing_node):
            mod = run(mod)
        if observe is not None:
            observe(name, mod)
    report = Report.of(mod, reasons)
    asked = asked_libraries(mod, rules.libraries, report.left)
    report = replace(report, pruned=tuple(pruned), asked=asked, exact=rules.exact)
    if report.shortfall is not None:
        warnings.warn(str(report.shortfall), OffloadWarning, stacklevel=_levels_to_user())
    # After the report, which is about the user's operators.
    for run in (
        no_index_out_of_leftovers,
        position_of_lowest,
        reductions_of_nothing,
        empty_constants,
    ):
        mod = run(mod)
        if observe is not None:
            observe(run.__name__, mod)
    return mod, report


def _passes(
    mod: tvm.IRModule,
    rules: Rules,
    reasons: Reasons,
    pruned: list[Pruned],
    observe: Observer | None,
    expose: Expose | None,
) -> tuple[Pass, ...]:
    """The passes by name, in order; they add to ``reasons`` and to ``pruned``."""
    # Regions of an earlier partition, with other libraries say, stay as they are.
    given = {gvar.name_hint for gvar, func in mod.functions.items() if is_region(func)}
    verdict = partial(too_little_work, min_bytes=rules.least_bytes(mod))
    return (
        # Symbols of one name would be one symbol from here on.
        ("distinct_symbols", distinct_symbols),
        # Straight-line code becomes dataflow blocks, so that nothing is missed in silence.
        ("convert_to_dataflow", convert_to_dataflow),
        # Kernels compute in single precision what is stored in 16 bits.
        ("widen_halves", widen_halves),
        *((("named_values", expose.note),) if expose is not None else ()),
        # Importer idioms become one operator each; writes a dump for each of its rules.
        (
            "canonicalise",
            lambda m: canonicalise(
                m, observe, rules.others_compute, rules.exact, not rules.precision.is_full
            ),
        ),
        # Supported chains become composites, composites regions, and small regions TVM's again.
        ("annotate", lambda m: annotate.annotate(m, reasons, rules)),
        *((("expose", expose),) if expose is not None else ()),
        ("merge", merge.merge),
        (
            "prune",
            lambda m: prune.prune(m, reasons, verdict, pruned, given | prune.whole_network(m)),
        ),
        ("reachable_regions", reachable_regions.reachable_regions),
        # Weights leave the expressions, or TVM would store them a second time.
        ("detach_constants", detach_constants.detach_constants),
    )


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
        file = folder / f"{count:02d}_{name}.py"
        write_whole(file, mod.script(show_meta=False) + "\n", CompileError)
        count += 1

    return write
