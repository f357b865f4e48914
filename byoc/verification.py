"""Is a compiled library right? Its answers beside those of an independent reference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from byoc.accuracy import TOLERANCES, coarse_tolerance, share_of_range
from byoc.arguments import as_error, as_mapping, as_path, as_whole
from byoc.array_files import read_arrays
from byoc.deploy.conditions import Demands, condition
from byoc.deploy.exchange import numpy_dtype
from byoc.deploy.input_tensors import as_array, as_tensor
from byoc.deploy.loader import Model, load
from byoc.deploy.metadata import TensorInfo, extent_of
from byoc.deploy.stateless import Stateless
from byoc.drawn_inputs import draw_input
from byoc.errors import ByocError, InputError, VerifyError
from byoc.frontends import Arrays, GivenModel, Reference, given_model, references
from byoc.frontends.onnx.dynamic_axes import sizes_to_try
from byoc.frontends.source_files import hash_of
from codegen_cc.errors import foreign_errors_as, one_line

#: Sizes of symbolic axes, one row for each run; the second symbol takes the second, and so on.
_SIZES = ((1, 1, 1, 1), (2, 3, 4, 5), (5, 2, 7, 3), (16, 9, 8, 10))

#: Those that are tried where the reference takes none of these.
_LARGER = ((1, 512, 512, 512), (2, 512, 512, 512))


#: Units in the last place of an output's greatest number that are not counted as an error.
_LAST_DIGITS = 4


#: What is wrong where the tracer did not follow the model.
_OF_TRACE = (
    "it is what the exported program computes, which differs from the module itself, as"
    " torch.export did not follow its code"
)


#: A library as it is compared: one with states is given these.
Runnable = Model | Stateless


@dataclass(frozen=True)
class OutputCheck:
    """One output of one run: its greatest error as a share of the reference's range.

    ``problem`` says what is wrong besides, and is empty where nothing is; ``error`` is infinite
    where there is nothing to subtract.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether the output is right."""
        return not self.problem and self.error <= self.tolerance


@dataclass(frozen=True)
class Run:
    """One set of inputs: sizes of the symbolic axes, and either outputs or why there are none.

    ``failed`` is why the library did not run, ``skipped`` why the reference did not.
    """

    sizes: Mapping[str, int]
    outputs: tuple[OutputCheck, ...] = ()
    failed: str = ""
    skipped: str = ""

    @property
    def holds(self) -> bool:
        """Whether the library ran and all of its outputs are right."""
        return not self.failed and all(output.holds for output in self.outputs)


@dataclass(frozen=True)
class Verification:
    """What ``verify`` found; ``reference`` names what the library was compared with."""

    reference: str
    runs: tuple[Run, ...]

    @property
    def holds(self) -> bool:
        """Whether all runs do."""
        return all(run.holds for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``json.dumps``; an error that cannot be told is null."""
        runs = []
        for run in self.runs:
            found = asdict(run)
            for output, check in zip(found["outputs"], run.outputs, strict=True):
                output["error"] = check.error if np.isfinite(check.error) else None
                output["holds"] = check.holds
            runs.append(found | {"holds": run.holds})
        return {"reference": self.reference, "holds": self.holds, "runs": runs}


def verify(
    model: GivenModel,
    library: str | os.PathLike[str],
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    tolerance: float | None = None,
    threads: int | None = None,
) -> Verification:
    """Run a compiled library, and its model in ONNX Runtime or PyTorch, on the same inputs.

    Where ONNX Runtime is not installed, or refuses the model, the reference is ONNX's own
    evaluator. ``inputs`` are arrays by name, or an .npz file of them, without them those that a
    program of PyTorch was traced on; what they lack is drawn with ``seed``, for several sizes of
    symbolic axes that they do not fix. An output is right where it has the reference's shape,
    dtype, NaNs and infinities, and where no element is off by more than ``tolerance`` of the
    reference's range (default: ``TOLERANCES`` of ``byoc.accuracy`` by dtype, also by the 16-bit
    dtypes that the model computes in, and ``COARSE_TOLERANCES`` where the library multiplies in
    those; integers must be equal, but for the places of TopK's values that tie). Inputs that were
    fixed when compiling have the library's value; those of several values are among ``inputs``.
    States that the library keeps are inputs and outputs here, as they are the model's.

    Raises ``VerifyError`` where there is nothing to compare with, ``LoadError`` for a library that
    cannot run here, ``InputError`` for inputs that do not fit.
    """
    given = given_inputs(inputs)
    seed = as_whole(seed, "seed", VerifyError, 0, 2**63 - 1)
    path = as_path(library, "the library", VerifyError)
    source = given_model(model)
    with load(path, threads) as loaded:
        compiled = Stateless(loaded) if loaded.metadata.states else loaded
        if tolerance is not None:
            tolerance = as_error(tolerance, "tolerance", VerifyError)
        fixed = _fixed(compiled, given)
        given = {name: array for name, array in given.items() if name not in fixed}
        if unknown := [name for name in given if name not in {i.name for i in compiled.inputs}]:
            raise InputError(f"unknown input {unknown[0]!r}; {path.name} has no such input")
        symbols: dict[str, int] = {}
        for info in compiled.inputs:
            if info.name in given:
                as_tensor(info, given[info.name], symbols)  # raises where it does not fit
        errors: list[str] = []
        for reference in _references(source, compiled, fixed, errors):
            known = given if inputs is not None else reference.examples
            limits = _limits(tolerance, compiled, reference)
            for rows in (_SIZES, _LARGER):
                draws = [*_draws(compiled, known, seed, rows)]
                if inputs is None and known:
                    draws += _parts(compiled, known)
                runs = tuple(_run(compiled, reference, *draw, limits) for draw in draws)
                if any(not run.skipped for run in runs):
                    return Verification(reference.name, runs)
            why = runs[0].skipped if runs else "it takes none of the sizes that are tried"
            errors.append(f"{reference.name}: {why}")
        other = _from_another_file(source, compiled)
    raise VerifyError(f"{other}no reference can compute the model: {'; '.join(errors)}")


def _from_another_file(source: object, compiled: Runnable) -> str:
    """A hint where the model is not the file that a library says it was compiled from."""
    files = compiled.metadata.source
    if not isinstance(source, Path) or not files or files[0].sha256 == hash_of(source):
        return ""
    name = files[0].name or "a model in memory"
    return f"{compiled.path.name} was compiled from another model, {name}; "


def require_agreement(
    model: GivenModel, library: Path, threads: int | None, fixed: Mapping[str, Any]
) -> None:
    """Verify with the inputs that a model has, and those that were ``fixed``.

    Raises ``VerifyError`` as ``verify`` does, and where the library is wrong.
    """
    found = verify(model, library, fixed or None, threads=threads)
    for run in found.runs:
        if run.failed:
            raise VerifyError(f"the library fails where {found.reference} does not: {run.failed}")
        for output in run.outputs:
            if not output.holds:
                what = output.problem or (
                    f"it is off by {output.error:.1e} of its range; need {output.tolerance:.0e}"
                )
                whom = f"the library does not agree with {found.reference}"
                raise VerifyError(f"{whom}: output {output.name!r}: {what}")


def _limits(tolerance: float | None, compiled: Runnable, reference: Reference) -> dict[str, float]:
    if tolerance is not None:
        return dict.fromkeys(TOLERANCES, tolerance)
    coarse = coarse_tolerance(compiled.metadata.report)
    least = max((coarse, *(TOLERANCES[half] for half in reference.halves)))
    return {dtype: max(limit, least) for dtype, limit in TOLERANCES.items()}


def given_inputs(inputs: Any) -> Arrays:
    """Arrays by name from what users give: a dictionary, an .npz file or None.

    Raises ``InputError``.
    """
    if inputs is None:
        return {}
    if isinstance(inputs, str | os.PathLike):
        return read_arrays(as_path(inputs, "inputs", InputError))
    need = "a dictionary of arrays by name, or an .npz file"
    named = as_mapping(inputs, "inputs", InputError, need)
    with foreign_errors_as(InputError, "reading the inputs"):
        return {name: np.asarray(value) for name, value in named.items()}


def _fixed(compiled: Runnable, given: Arrays) -> Arrays:
    """The inputs that were fixed when a library was compiled. Raises ``InputError``."""
    arrays: Arrays = {}
    for each in compiled.metadata.fixed:
        name, shape = each.input.name, each.input.shape
        value = given.get(name, each.value)
        if value is None:
            raise InputError(
                f"{compiled.path.name} has input {each}; need its array among the inputs"
            )
        array = np.asarray(value)
        if each.value is not None and not (array == each.value).all():
            raise InputError(f"{compiled.path.name} has input {each}; it cannot be another here")
        with foreign_errors_as(InputError, f"the array of input {each.input}"):
            arrays[name] = np.broadcast_to(array.astype(numpy_dtype(each.input.dtype)), shape)
    return arrays


def _draws(
    compiled: Runnable, given: Arrays, seed: int, rows: Sequence[Sequence[int]]
) -> Iterator[tuple[dict[str, int], Arrays]]:
    """Inputs for each run, with the sizes of the symbols that the given ones leave open."""
    fixed: dict[str, int] = {}
    factors: dict[str, int] = {}
    for info in compiled.inputs:
        for axis, extent in enumerate(info.shape):
            if isinstance(extent, int):
                continue
            form = extent_of(extent)
            array = given.get(info.name)
            if array is None:
                factors |= {name: form.factor for name in form.names if name not in factors}
            elif form.others:
                continue
            elif axis < array.ndim and (value := form.solve(array.shape[axis])) is not None:
                fixed[form.name] = value
    open_names = [name for name in factors if name not in fixed]
    columns: dict[str, Sequence[int]] = {}
    for index, name in enumerate(open_names):
        column = [row[index % len(row)] for row in rows]
        wide = sizes_to_try(name, factors[name], column) if rows is _SIZES else column
        least = next((r.least for r in compiled.metadata.ranges if r.name == name), 0)
        columns[name] = [max(size, least) for size in wide]
    for number in range(len(rows) if open_names else 1):
        sizes = {name: column[number] for name, column in columns.items()}
        if not all(condition(text).holds(fixed | sizes) for text in compiled.metadata.conditions):
            continue
        random = np.random.default_rng(seed)
        known = fixed | sizes
        arrays = {
            info.name: as_array(info, given[info.name])
            if info.name in given
            else draw_input(info, _shape(info, known), random)
            for info in compiled.inputs
        }
        yield sizes, arrays


def _parts(compiled: Runnable, examples: Arrays) -> Iterator[tuple[dict[str, int], Arrays]]:
    """The first halves of examples along open axes, sizes that the tracer did not see; two rows at
    least, as it supposes."""
    given: dict[str, int] = {}
    for info in compiled.inputs:
        for axis, extent in enumerate(info.shape):
            form = None if isinstance(extent, int) else extent_of(extent)
            if form is not None and not form.others:
                given[form.name] = form.solve(examples[info.name].shape[axis]) or 0
    least = {declared.name: declared.least for declared in compiled.metadata.ranges}
    sizes = {name: max((size + 1) // 2, least.get(name, 0), 2) for name, size in given.items()}
    metadata = compiled.metadata
    if sizes == given or Demands(metadata.ranges, metadata.conditions).problem(sizes):
        return
    shapes = {info.name: _shape(info, sizes) for info in compiled.inputs}
    if all(np.less_equal(shape, examples[name].shape).all() for name, shape in shapes.items()):
        cuts = {name: tuple(map(slice, shape)) for name, shape in shapes.items()}
        yield sizes, {name: examples[name][cuts[name]].copy() for name in shapes}


def _shape(info: TensorInfo, sizes: Mapping[str, int]) -> list[int]:
    forms = (e if isinstance(e, int) else extent_of(e) for e in info.shape)
    return [form if isinstance(form, int) else form.within(sizes) for form in forms]


def _references(
    model: Path | object, compiled: Runnable, fixed: Arrays, errors: list[str]
) -> Iterator[Reference]:
    """What can compute the model, the best first, given what is ``fixed`` as well.

    Why others cannot goes into ``errors``.
    """
    wanted = {info.name for info in compiled.inputs} | fixed.keys()
    for reference in references(model, errors):
        names = set(reference.inputs)
        own = [s.input.name for s in compiled.metadata.states if s.input.name not in names]
        if own:
            raise VerifyError(
                f"{compiled.path.name} keeps {own[0]!r}, which the model has within itself; compile"
                " it without states to compare it"
            )
        if missing := sorted(names - wanted) or sorted(wanted - names):
            raise VerifyError(
                f"{compiled.path.name} was compiled from another model: input {missing[0]!r} is in "
                "one of them only"
            )
        answer = reference.answer
        yield replace(reference, answer=lambda arrays, answer=answer: answer(arrays | fixed))


def _run(
    compiled: Runnable,
    reference: Reference,
    sizes: Mapping[str, int],
    arrays: Arrays,
    limits: Mapping[str, float],
) -> Run:
    try:
        expected = reference.answer(arrays)
    except Exception as error:
        return Run(sizes, skipped=one_line(error))
    try:
        found = compiled.run(arrays)
    except ByocError as error:
        return Run(sizes, failed=str(error))
    # A library without metadata numbers its outputs.
    got = dict(zip(expected, found.values(), strict=False)) if not compiled.outputs else found
    checks = [
        _check(name, got.get(name), want, limits, reference.rounding.get(name, 0.0))
        for name, want in expected.items()
    ]
    for number, check in enumerate(checks):
        values, axis = reference.places.get(check.name, ("", 0))
        of = next((other for other in checks if other.name == values), None)
        if of is None or not of.holds or check.holds or check.name not in got:
            continue
        by_value = expected[values], of.tolerance
        if only_ties(got[check.name], expected[check.name], *by_value, axis):
            checks[number] = replace(check, problem="", error=0.0)
    if reference.traced is not None and not all(check.holds for check in checks):
        checks = _blamed(checks, got, reference.traced(arrays), limits)
    return Run(sizes, tuple(checks))


def _blamed(
    checks: Sequence[OutputCheck], got: Arrays, traced: Arrays, limits: Mapping[str, float]
) -> list[OutputCheck]:
    """Checks that say so where it is the traced program that differs from the model, which the
    library computes as it is."""
    found = []
    for check in checks:
        by_trace = None
        if not check.holds and check.name in traced:
            by_trace = _check(check.name, got.get(check.name), traced[check.name], limits)
        if by_trace is not None and by_trace.holds:
            why = check.problem or f"off by {check.error:.1e} of its range"
            check = replace(check, problem=f"{_OF_TRACE} ({why})")
        found.append(check)
    return found


def only_ties(
    mine: np.ndarray, theirs: np.ndarray, values: np.ndarray, tolerance: float, axis: int
) -> bool:
    """Whether places differ where values tie alone, to a tolerance of their range.

    ``values`` [.., k, ..] are sorted and right. Places of equal values may be swapped. The last
    ones may be places that the reference does not give, as a value beyond the k-th may be as large.
    """
    if mine.shape != theirs.shape or theirs.shape != values.shape or not mine.size:
        return False
    mine, theirs, values = (np.moveaxis(a, axis, -1) for a in (mine, theirs, values))
    k = values.shape[-1]
    finite = values[np.isfinite(values)]
    limit = tolerance * float(np.ptp(finite)) if finite.size else 0.0
    for own, other, row in zip(*(a.reshape(-1, k) for a in (mine, theirs, values)), strict=True):
        if len({*own.tolist()}) != k:
            return False
        stood = {place: row[i] for i, place in enumerate(other.tolist())}
        for i in np.flatnonzero(own != other):
            value = stood.get(own[i].item(), row[-1])
            if not (value == row[i] or abs(value - row[i]) <= limit):
                return False
    return True


def _last_digits(array: np.ndarray) -> float:
    """A few units in the last place of the greatest number: no engine is nearer to another.

    Elements that are all but equal have no range that says more.
    """
    if array.dtype.kind != "f" or not np.isfinite(array).any():
        return 0.0
    greatest = float(np.abs(array[np.isfinite(array)]).max())
    return _LAST_DIGITS * float(np.finfo(array.dtype).eps) * greatest


def _check(
    name: str,
    mine: np.ndarray | None,
    theirs: np.ndarray,
    limits: Mapping[str, float],
    rounding: float = 0.0,
) -> OutputCheck:
    theirs = np.asarray(theirs)
    dtype, shape = str(theirs.dtype), tuple(theirs.shape)
    tolerance = limits.get(dtype, 0.0)

    def wrong(problem: str) -> OutputCheck:
        return OutputCheck(name, dtype, shape, float("inf"), tolerance, problem)

    if mine is None:
        return wrong("the library does not give it")
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return wrong(f"it is {mine.dtype}{list(mine.shape)}; need {dtype}{list(shape)}")
    if dtype not in limits:
        differ = int(np.count_nonzero(mine != theirs))
        return (
            wrong(f"{differ} of {mine.size} elements differ")
            if differ
            else OutputCheck(name, dtype, shape, 0.0, tolerance)
        )
    digits = _last_digits(theirs) if tolerance > 0 else 0.0  # 0 asks for the same bits
    error = share_of_range(mine, theirs, max(rounding, digits))
    if not np.isfinite(error):
        return wrong("NaN or infinity is at other places")
    return OutputCheck(name, dtype, shape, error, tolerance)
