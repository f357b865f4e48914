"""A model in, times of its layers out: import, partition, and let ``byoc.tuning`` time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tvm

from byoc.arguments import MAX_THREADS, as_whole
from byoc.errors import TuningError
from byoc.frontends import GivenModel, import_model
from byoc.frontends.onnx.fixed_inputs import FixedInputs
from byoc.frontends.onnx.one_layer import onnxruntime_answer
from byoc.machine import choose_cores
from byoc.partition import partition
from byoc.partition.precision import Precision, PrecisionSpecs
from byoc.partition.rules import Libraries, Rules
from byoc.rpc.devices import Devices
from byoc.stages import Stages
from byoc.tuning.choice import database_path, select
from byoc.tuning.database import require_writable
from byoc.tuning.tuner import ROUNDS, Progress, Tuned, present_libraries, silent, tune_partitioned
from codegen_cc.target import Target


def tune(
    model: GivenModel,
    db: str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    threads: Sequence[int] = (1,),
    libraries: Libraries = None,
    rounds: int = ROUNDS,
    again: bool = False,
    exact: bool = False,
    precision: PrecisionSpecs = (),
    allow_wrong: Iterable[str] = (),
    fixed_inputs: FixedInputs | None = None,
    devices: Devices | None = None,
    target: str | None = None,
    progress: Progress = silent,
) -> Tuned:
    """Time the candidates of every distinct layer of an ONNX model, and store the times.

    ``db`` is the database (default: ``byoc.tuning.database.default_path()``). ``libraries`` are the
    kernel libraries to try, as for ``compile`` (default: all that are present, ``builtin`` first).
    Layers that the database has, with these candidates, are not timed again unless ``again``.
    ``exact``, ``precision``, ``allow_wrong`` and ``fixed_inputs`` are those of ``compile``; exact
    layers have times of their own. With ``devices`` they are timed there, compiled for ``target``
    (see ``byoc.compile``), by libraries that need no file of the device's own.

    Raises ``ByocError``. Batches of layers that were done by then are in the database.
    """
    counts = _thread_counts(threads)
    Target.parse(target)
    rounds = as_whole(rounds, "rounds", TuningError, 1, sys.maxsize)
    if devices is None:
        choose_cores(counts[-1])
    wanted, path = Precision.of(precision), database_path(db)
    require_writable(path)
    absent: dict[str, str] = {}
    if libraries is None:
        libraries, absent = present_libraries(alone=devices is not None)
    # Before the model is read, which may call operators that a library brings.
    rules = Rules(libraries=select(libraries, exact=exact), precision=wanted)
    progress("importing the model", 0, 1)
    imported = import_model(model, input_shapes, allow_wrong, sized=True, fixed_inputs=fixed_inputs)
    progress("partitioning", 0, 1)
    module, _ = partition(imported.module, rules)
    tuned = tune_partitioned(
        module,
        rules.libraries,
        path,
        onnxruntime_answer,
        counts,
        rounds,
        again,
        devices,
        target,
        progress,
    )
    return replace(tuned, absent=absent)


def _thread_counts(threads: Sequence[int]) -> list[int]:
    """Numbers of threads, each once. Raises ``TuningError``."""
    if not isinstance(threads, Iterable) or isinstance(threads, str | bytes):
        raise TuningError(f"threads is of type {type(threads).__name__}; need a list of numbers")
    counts = sorted({as_whole(n, "threads", TuningError, 1, MAX_THREADS) for n in threads})
    if not counts:
        raise TuningError("threads is empty; need at least one number")
    return counts


def time_missing(
    module: tvm.IRModule, rules: Rules, database: Path, threads: int, stages: Stages
) -> None:
    """Bring a tuning database up to date for the layers of an imported module.

    ``rules`` are those of the partition, without measured times.
    """

    def tell(what: str, done: int, total: int) -> None:
        stages.announce(f"tune, {done} of {total}: {what}")

    regions, _ = partition(module, rules)
    answer, counts = onnxruntime_answer, [threads]
    tune_partitioned(regions, rules.libraries, database, answer, counts, progress=tell)
