"""Rows of a Ray dataset through a compiled network: ``dataset.map_batches(Predictor("model.so"))``.

Each worker process loads the library once. Workers of a host share its weights, as these are pages
of the file. Needs the extra ``ray``.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byoc.arguments import as_mapping, as_path, as_texts, as_whole
from byoc.deploy.compiled_file import read_compiled
from byoc.deploy.exchange import numpy_dtype
from byoc.deploy.loader import load
from byoc.deploy.open_compiled import require_fitting
from byoc.errors import ByocError, InputError, LoadError, RunError
from byoc.integrations.engines import require_engine
from byoc.integrations.rows import chunks, rows_of_a_call

if TYPE_CHECKING:
    from byoc.deploy.loader import Model
    from byoc.deploy.metadata import TensorInfo

#: The column that says what is wrong with a row.
ERROR = "error"

_MOST_ROWS = 1 << 31
_SECONDS = 60  # that a node may take to answer whether it can load a library

Rows = Mapping[str, np.ndarray]
Prepare = Mapping[str, Callable[[Any], Any]]


class Predictor:
    """A compiled network as a function of Ray Data's ``map_batches``.

    ``inputs`` gives the column of each input of the network by the input's name; without it columns
    have the names of inputs. A column holds a row of the input each, without the batch's axis, of
    exactly the input's dtype. Where ``prepare`` has a function for an input, it makes this row of
    the column's value, such as an array of the bytes of a picture. ``batch`` is how many rows one
    call of the network computes at most, besides ``map_batches``'s ``batch_size``. ``keep`` names
    the columns that are handed on, by default all but those of inputs.

    The results have a column for each output of the network and the column ``error``, which is
    empty for rows that were computed. A row that cannot be prepared or computed says there why not,
    and holds NaN, or 0 in outputs that have none. What is wrong with a whole column, such as its
    dtype, ends the job.

    Make it where the job is started, not in a worker: it asks every node of the cluster whether it
    can load the library, before the job begins. Raises ``LoadError`` where one cannot, and
    ``InputError`` for a network that does not take any number of rows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        inputs: Mapping[str, str] | None = None,
        batch: int | None = None,
        prepare: Prepare | None = None,
        keep: Sequence[str] | None = None,
    ) -> None:
        require_engine("ray", "ray")
        self.path = as_path(path, "the library", LoadError).absolute()
        metadata = read_compiled(self.path).metadata()
        most = rows_of_a_call(metadata, self.path.name)
        wanted = (
            _MOST_ROWS if batch is None else as_whole(batch, "batch", InputError, 1, _MOST_ROWS)
        )
        self._rows = min(wanted, most or wanted)
        self._inputs, self._outputs = metadata.inputs, metadata.outputs
        names = [info.name for info in self._inputs]
        self._columns = _of_inputs(inputs or {}, "inputs", names, "columns by the names of inputs")
        self._prepare = _of_inputs(prepare or {}, "prepare", names, "functions by names of inputs")
        if strange := [name for name, make in self._prepare.items() if not callable(make)]:
            raise InputError(
                f"prepare[{strange[0]!r}] cannot be called; need a function of a value"
            )
        self._keep = None if keep is None else as_texts(keep, "keep", InputError)
        check(self.path)

    def __call__(self, rows: Rows) -> dict[str, np.ndarray]:
        """Run the network on columns of ``n`` rows each; columns of ``n`` rows again."""
        batch = _Batch(_model(self.path, _cpus()), self._rows)
        columns = [self._columns.get(info.name, info.name) for info in self._inputs]
        if missing := [name for name in columns if name not in rows]:
            raise InputError(f"there is no column {missing[0]!r}; there are {', '.join(rows)}")
        batch.count = len(rows[columns[0]])
        for info, name in zip(self._inputs, columns, strict=True):
            batch.add(info, rows[name], self._prepare.get(info.name))
        keep = [name for name in rows if name not in columns] if self._keep is None else self._keep
        found = batch.run()
        if lost := [name for name in keep if name not in rows]:
            raise InputError(f"there is no column {lost[0]!r} to keep; there are {', '.join(rows)}")
        if twice := [name for name in keep if name in found]:
            raise InputError(f"the column {twice[0]!r} is an output as well; leave it out of keep")
        return {name: rows[name] for name in keep} | found


def _of_inputs(value: Any, what: str, names: Sequence[str], need: str) -> dict[str, Any]:
    given = as_mapping(value, what, InputError, need)
    if unknown := [name for name in given if name not in names]:
        raise InputError(f"{what}: unknown input {unknown[0]!r}; there are {', '.join(names)}")
    return dict(given)


class _Batch:
    """Rows that are computed together: the network's inputs, and what is wrong with each row."""

    def __init__(self, model: Model, most: int) -> None:
        self.model, self.most, self.count = model, most, 0
        self.problems: dict[int, str] = {}
        self.values: dict[str, np.ndarray | list[np.ndarray | None]] = {}

    def add(self, info: TensorInfo, column: np.ndarray, prepare: Callable | None) -> None:
        """Take the rows of an input from a column. Raises ``InputError`` for a whole column."""
        dtype = numpy_dtype(info.dtype)
        if prepare is None and column.dtype != object:
            if column.dtype != dtype or not _fits(info, column.shape[1:]):
                raise InputError(
                    f"the column for input {info.name!r} has rows of "
                    f"{column.dtype}{list(column.shape[1:])}; need {info}, nothing is cast"
                )
            self.values[info.name] = column
            return
        made: list[np.ndarray | None] = [None] * self.count
        for number, value in enumerate(column):
            if number in self.problems:
                continue
            try:
                made[number] = row = np.asarray(value if prepare is None else prepare(value))
            except Exception as error:  # of a user's function on one row
                text = f"preparing input {info.name!r}: {type(error).__name__}: {error}"
                self.problems[number] = " ".join(text.split())
                continue
            if row.dtype != dtype or not _fits(info, row.shape):
                self.problems[number] = (
                    f"a row of input {info.name!r} is {row.dtype}{list(row.shape)}; need {info} "
                    "without its first axis"
                )
        self.values[info.name] = made

    def run(self) -> dict[str, np.ndarray]:
        """Compute all rows, those of equal shapes together; the outputs and the errors by name."""
        found: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        for numbers in self._of_one_shape():
            for part in chunks(len(numbers), self.most):
                self._compute(numbers[part], found)
        columns = {info.name: self._column(info, found) for info in self.model.outputs}
        errors = np.array([self.problems.get(n, "") for n in range(self.count)], object)
        return {**columns, ERROR: errors}

    def _of_one_shape(self) -> list[np.ndarray]:
        """The numbers of rows that can be computed, in groups of equal shapes."""
        uneven = [values for values in self.values.values() if isinstance(values, list)]
        groups = defaultdict(list)
        for number in range(self.count):
            if number not in self.problems:
                groups[tuple(values[number].shape for values in uneven)].append(number)
        return [np.array(numbers) for numbers in groups.values()]

    def _compute(self, numbers: np.ndarray, found: list) -> None:
        """Compute some rows in one call; where it fails, each alone, to tell which one it was."""
        try:
            given = {name: _stacked(values, numbers) for name, values in self.values.items()}
            found.append((numbers, self.model.run(given)))
        except (InputError, RunError) as error:
            if len(numbers) == 1:
                self.problems[int(numbers[0])] = str(error)
                return
            for number in numbers:
                self._compute(np.array([number]), found)

    def _column(self, info: TensorInfo, found: list) -> np.ndarray:
        """The rows of an output in the order of the inputs' rows."""
        parts = [(numbers, results[info.name]) for numbers, results in found]
        if len(parts) == 1 and len(parts[0][0]) == self.count:
            return parts[0][1]
        dtype = numpy_dtype(info.dtype)
        empty = np.nan if np.issubdtype(dtype, np.inexact) else 0
        if all(isinstance(extent, int) for extent in info.shape[1:]):
            column = np.full((self.count, *info.shape[1:]), empty, dtype)
            for numbers, rows in parts:
                column[numbers] = rows
            return column
        column = np.empty(self.count, object)
        nothing = tuple(extent if isinstance(extent, int) else 0 for extent in info.shape[1:])
        for number in self.problems:
            column[number] = np.full(nothing, empty, dtype)
        for numbers, rows in parts:
            for number, row in zip(numbers, rows, strict=True):
                column[number] = row
        return column


def _stacked(values: np.ndarray | list[np.ndarray | None], numbers: np.ndarray) -> np.ndarray:
    if isinstance(values, list):
        return np.stack([values[number] for number in numbers])
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    return values[numbers[0] : numbers[-1] + 1] if whole else values[numbers]


def _fits(info: TensorInfo, shape: tuple[int, ...]) -> bool:
    """Whether a row has the shape of an input without its first axis, where that is known."""
    wanted = info.shape[1:]
    return len(shape) == len(wanted) and all(
        isinstance(want, str) or want == extent for want, extent in zip(wanted, shape, strict=True)
    )


# ---------------------------------------------------------------------- in the workers

#: By path: what was loaded, of which file and for how many threads.
_models: dict[Path, tuple[tuple[int | None, ...], Model]] = {}
_loading = threading.Lock()


def _model(path: Path, threads: int | None) -> Model:
    """The library in this process, loaded when it is first asked for and when it was replaced."""
    try:
        status = path.stat()
    except OSError as error:
        raise LoadError(f"cannot load {path}: {error.strerror}") from error
    key = status.st_dev, status.st_ino, status.st_mtime_ns, threads
    with _loading:
        if path not in _models or _models[path][0] != key:
            _models[path] = key, load(path, threads)
        return _models[path][1]


def _cpus() -> int | None:
    """The whole CPUs that Ray gave to this task or actor; None outside of one."""
    import ray

    if not _is_worker():
        return None
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def _is_worker() -> bool:
    import ray

    return ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE


# ---------------------------------------------------------------------- before a job


def check(path: str | os.PathLike[str]) -> None:
    """Ask every node of the cluster that runs tasks whether it can load a library.

    A worker asks itself alone. Connects to a cluster, as Ray Data does, where nobody did. Raises
    ``LoadError``, which names the first node that cannot, and why.
    """
    ray = require_engine("ray", "ray")
    path = as_path(path, "the library", LoadError).absolute()
    if _is_worker():
        require_fitting(path)
        return
    if not ray.is_initialized():
        ray.init()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    ask = ray.remote(num_cpus=0, max_retries=1)(_why_not)
    answers = [
        ask.options(scheduling_strategy=OnNode(node["NodeID"], soft=False)).remote(str(path))
        for node in nodes
    ]
    for node, answer in zip(nodes, answers, strict=True):
        name = f"node {node['NodeManagerHostname']} ({node['NodeID'][:8]})"
        try:
            problem = ray.get(answer, timeout=_SECONDS)
        except ray.exceptions.RayError as error:
            raise LoadError(f"{name} did not say whether it can load {path}: {error}") from error
        if problem:
            raise LoadError(f"{name}: {problem}")


def _why_not(path: str) -> str:
    """Why this node cannot load a library; empty where it can."""
    try:
        require_fitting(Path(path))
    except ByocError as error:
        return str(error)
    return ""
