"""The public functions that partition a module: the rules are read here, and applied below."""

from __future__ import annotations

import tvm
from typing_extensions import Unpack

from byoc.compiler.keywords import PartitionKeywords, takes
from byoc.compiler.request import dump_folder, partition_rules
from byoc.partition import partition
from byoc.report import Report


@takes(PartitionKeywords)
def partition_for_ext(
    mod: tvm.IRModule, *, tuning_threads: int = 1, **keywords: Unpack[PartitionKeywords]
) -> tvm.IRModule:
    """Move what this backend's kernels can run into functions of their own.

    The result has global functions with the attributes ``Codegen="ext"`` and ``global_symbol``;
    ``relax.transform.RunCodegen()`` compiles them, and everything else stays as TVM has it. The
    given module is not changed.

    Where less than half of the work is offloaded, an ``OffloadWarning`` says why and what it costs.
    A BatchNorm in training form whose new statistics nobody reads is a ``SuspectWarning``.

    Raises ``ControlError`` for names that fit no operator or no node, ``LibraryError`` for a
    library that is missing or does not load.

    Times of a tuning database count that were measured with ``tuning_threads`` threads.
    """
    return partition_with_report(mod, tuning_threads=tuning_threads, **keywords)[0]


@takes(PartitionKeywords)
def partition_with_report(
    mod: tvm.IRModule, *, tuning_threads: int = 1, **keywords: Unpack[PartitionKeywords]
) -> tuple[tvm.IRModule, Report]:
    """Partition as ``partition_for_ext`` does, and say what was taken and what was not, and why."""
    folder = dump_folder(keywords)
    return partition(mod, partition_rules(keywords, tuning_threads), folder)
