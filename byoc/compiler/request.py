"""What users ask for, as they give it by keywords: read and checked once, before anything runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from byoc.arguments import as_flag, as_path, as_texts, as_threads
from byoc.compiler.keywords import CompileKeywords, PartitionKeywords
from byoc.compiler.states import States, as_states
from byoc.destination import require_folder_to_make
from byoc.errors import CompileError, ControlError, PartitionError, TuningError
from byoc.frontends.onnx.fixed_inputs import FixedInputs, given_values
from byoc.partition.rules import Rules
from byoc.tuning.choice import deciding_database, select, timed, timed_by_all
from codegen_cc.instruction_sets import COMPILE_ISA, compiled_for
from codegen_cc.target import Target


@dataclass(frozen=True)
class Request:
    """How a network is to be compiled, whatever form of library it becomes.

    ``rules`` know the measured times, unless ``outdated`` is there: a tuning database that is to
    have times of the network's layers first. ``threads`` is the default number of whoever loads
    the library, None for all cores; ``allow_wrong`` and ``fixed_inputs`` go to the front end.
    """

    rules: Rules
    target: Target
    threads: int | None
    allow_wrong: Iterable[str]
    dump_ir: Path | None
    outdated: Path | None
    states: States | None = None
    fixed_inputs: FixedInputs = field(default_factory=dict)

    @classmethod
    def of(cls, keywords: CompileKeywords) -> Request:
        """Read keywords, all of which are there. Raises ``ByocError``."""
        target = Target.parse(keywords["target"])
        threads = as_threads(keywords["threads"], CompileError)
        if os.environ.get(COMPILE_ISA):
            compiled_for()  # raises for a name that is none, which not every network asks for
        dump_ir = dump_folder(keywords)
        if dump_ir is not None:
            require_folder_to_make(dump_ir, PartitionError)
        measured = keywords["choose"] == "measured"
        machines = _machines(keywords)
        if target.is_foreign and not machines and (measured or keywords["tuning_db"] is not None):
            raise ControlError(
                f"times measured here say nothing of {target.name}; tune on such a machine (byoc "
                "tune --rpc), and name it with --tuning-machine (tuning_machines in Python)"
            )
        rules = untimed_rules(keywords)
        database = deciding_database(keywords["choose"], keywords["tuning_db"])
        if not measured:
            rules = with_times(rules, database, threads or 1, machines)
        outdated = database if measured else None
        states = as_states(keywords["states"])
        fixed = given_values(keywords["fixed_inputs"])
        allowed = as_texts(keywords["allow_wrong"], "allow_wrong", ControlError)
        return cls(rules, target, threads, allowed, dump_ir, outdated, states, fixed)


def partition_rules(keywords: PartitionKeywords, threads: int) -> Rules:
    """The rules of keywords, all of which are there, with the times of the database as it is.

    Raises ``ControlError``, ``LibraryError`` and ``TuningError``.
    """
    database = deciding_database(keywords["choose"], keywords["tuning_db"])
    return with_times(untimed_rules(keywords), database, threads, _machines(keywords))


def untimed_rules(keywords: PartitionKeywords) -> Rules:
    """The rules of keywords, all of which are there, without measured times.

    Raises ``ControlError``, ``LibraryError`` and ``TuningError``.
    """
    exact = as_flag(keywords["exact"], "exact", ControlError)
    return Rules.of(
        keywords["skip_ops"],
        keywords["skip_nodes"],
        keywords["only"],
        keywords["predicate"],
        select(keywords["libraries"], keywords["choose"], exact),
        keywords["min_bytes"],
        keywords["precision"],
    )


def with_times(
    rules: Rules, database: Path | None, threads: int, machines: Sequence[str] = ()
) -> Rules:
    """Rules that know the times of a database, by ``threads`` threads; see ``timed``.

    ``machines`` are those whose times count, by default this one.
    """
    if database is not None and len(machines) > 1:
        return replace(rules, libraries=timed_by_all(rules.libraries, database, threads, machines))
    machine = machines[0] if machines else ""
    return replace(rules, libraries=timed(rules.libraries, database, threads, machine))


def _machines(keywords: PartitionKeywords) -> tuple[str, ...]:
    """The machines whose times count. Raises ``TuningError``."""
    found = as_texts(keywords["tuning_machines"], "tuning_machines", TuningError)
    if found and (keywords["tuning_db"] is None or keywords["choose"] == "measured"):
        raise TuningError(
            "--tuning-machine (tuning_machines in Python) needs --tuning-db (tuning_db) with the "
            "times to take from it, and nothing measured here"
        )
    return tuple(found)


def dump_folder(keywords: PartitionKeywords) -> Path | None:
    """Where the module is to be written after each pass. Raises ``PartitionError``."""
    given: str | os.PathLike[str] | None = keywords["dump_ir"]
    return None if given is None else as_path(given, "dump_ir", PartitionError)
