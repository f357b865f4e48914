"""Options of the verbs that partition: what may be offloaded, and how much must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from byoc.cli import options
from byoc.tuning.choice import CHOICES

if TYPE_CHECKING:
    from byoc.compiler.keywords import PartitionKeywords


class Demand(TypedDict):
    """Keywords of ``Report.require``."""

    min_coverage: float | None
    full: bool


@dataclass(frozen=True)
class Choices:
    """``partition`` goes to what partitions, ``allow_wrong`` to the importer, and ``demand`` to
    ``Report.require``."""

    partition: PartitionKeywords
    allow_wrong: tuple[str, ...]
    demand: Demand


tuning_db = options.file(
    "--tuning-db",
    "FILE",
    "Let the times that `byoc tune` stored here decide (default: none, so that builds do not "
    "depend on the machine's past; with --choose measured the default database).",
)

tuning_machine = click.option(
    "--tuning-machine",
    default="",
    metavar="TEXT",
    help="Let the times of the machine count whose name in --tuning-db has TEXT in it, one that "
    "`byoc tune --rpc` measured (default: this machine's).",
)

_tuning_machines = options.words(
    "--tuning-machine tuning_machines",
    "TEXT",
    "Let the times of the machine count whose name in --tuning-db has TEXT in it, one that "
    "`byoc tune --rpc` measured (default: this machine's); repeatable: the library then has the "
    "choices of all, and takes those of the machine that loads it.",
)

allow_wrong = options.words(
    "--allow-wrong",
    "OP",
    "Take this ONNX operator, such as Resize, with a warning even in a form whose result is "
    "known or suspected to be wrong; repeatable.",
)

exact = options.flag(
    "--exact",
    "Let NaN, infinities and huge numbers flow as through the operators' formulas: no "
    "Winograd, no joined branches, attention operator by operator, no region too small. Slower.",
)

precision = options.words(
    "--precision",
    "PRECISION",
    "What to multiply in: fp32 (the default), bf16, or bf16x3 (fp32 as two parts of bf16, where "
    "that is faster), with sums in fp32; int8-data rounds the data of products whose weight has 4 "
    "or 8 bits to bytes; softmax=fp32 or 'head/*=fp32' chooses for an operator or for nodes; "
    "repeatable. compile takes auto as well.",
)

_OPTIONS = (
    options.words(
        "--skip-op",
        "OP",
        "Leave this Relax operator to TVM, such as softmax or relax.nn.softmax; repeatable.",
    ),
    options.words(
        "--skip-node",
        "GLOB",
        "Leave the ONNX nodes of these names to TVM, such as 'encoder/*'; repeatable.",
    ),
    options.words("--only", "OP", "Offload this Relax operator and no other; repeatable."),
    options.words(
        "--library",
        "NAMES",
        "Kernel libraries to ask, in order, by name or .py file, such as onednn,builtin; "
        "conv2d=onednn or 'encoder/*=cblas' forces one for an operator or for nodes; repeatable.",
    ),
    click.option(
        "--choose",
        type=click.Choice(CHOICES),
        help="Where several libraries can: the first in order (the default), the one that states "
        "the least cost, or by the times of the tuning database; compile then measures first what "
        "that lacks.",
    ),
    tuning_db,
    _tuning_machines,
    exact,
    precision,
    allow_wrong,
    click.option(
        "--min-bytes",
        type=click.IntRange(min=0),
        metavar="N",
        help="Offload a region without a contraction only if it computes on so many bytes; 0 keeps "
        "every region (default: what is worth a call). One that is the whole network is always "
        "called.",
    ),
    options.share(
        "--min-coverage",
        "Fail with exit code 1 if less than this share of the multiply-accumulates is "
        "offloaded, such as 0.99.",
        most=1,
    ),
    options.flag("--require-full", "Fail with exit code 1 if any operator stays with TVM."),
)


def rules(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a verb, which gets them as one ``Choices`` argument called ``rules``."""

    @wraps(verb)
    def bundled(
        skip_op: tuple[str, ...],
        skip_node: tuple[str, ...],
        only: tuple[str, ...],
        library: tuple[str, ...],
        choose: str | None,
        tuning_db: Path | None,
        tuning_machines: tuple[str, ...],
        exact: bool,
        precision: tuple[str, ...],
        allow_wrong: tuple[str, ...],
        min_bytes: int | None,
        min_coverage: float | None,
        require_full: bool,
        **others: Any,
    ) -> Any:
        given: PartitionKeywords = {"skip_ops": skip_op, "skip_nodes": skip_node, "only": only}
        given["exact"], given["precision"] = exact, precision
        if min_bytes is not None:
            given["min_bytes"] = min_bytes
        given["libraries"], given["choose"] = library or None, choose
        given["tuning_db"], given["tuning_machines"] = tuning_db, tuning_machines
        demand: Demand = {"min_coverage": min_coverage, "full": require_full}
        return verb(rules=Choices(given, allow_wrong, demand), **others)

    for option in reversed(_OPTIONS):
        bundled = option(bundled)
    return bundled
