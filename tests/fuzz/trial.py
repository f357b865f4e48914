"""Graphs, the user's way: compiled to a library, loaded, run at every size, and judged."""

from __future__ import annotations

import os
import resource
import tempfile
import traceback
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import compose

import byoc
from byoc.accuracy import coarse_tolerance
from byoc.errors import ByocError, CompileError, RunError
from byoc.frontends.onnx import import_onnx, prepare_apart
from tests.fuzz.draft import Drawn
from tests.fuzz.evaluate import (
    ROUNDINGS,
    Arrays,
    by_reference,
    differences,
    expected,
    is_sensitive,
    is_unstable,
)
from tests.fuzz.on_purpose import may_differ

#: Outcomes. The last three are no verdict: a rounding error would change the result; the ONNX
#: reference evaluator says what we say and ONNX Runtime something else; or NaN, infinities or huge
#: values flow, and an operator for which docs/reliability.md says where engines differ.
EQUAL, REFUSED = "equal", "refused"
WRONG, RAW, CRASH, TIMEOUT = "wrong", "raw error", "crash", "timeout"
UNSTABLE, DISPUTED, SPECIAL = "unstable", "disputed", "special values differ"
FAILURES = (WRONG, RAW, CRASH, TIMEOUT)

#: The precision in which networks are computed unless one is asked for.
FULL = "fp32"

#: Words of errors that were passed on instead of understood.
INTERNAL = (
    "Check failed",
    "InternalError",
    "bad_alloc",
    "Traceback",
    "Error: ",
    "has no attribute",
)

#: Files whose exceptions are errors of ours.
OURS = (str(Path(byoc.__file__).parent), str(Path(byoc.__file__).parents[1] / "codegen_cc"))

#: Bytes of address space of a worker: what takes more is an error, not a machine that swaps.
MEMORY = 12 << 30


def limit_memory() -> None:
    """Limit what this process may take; not with AddressSanitizer, whose shadow is 20 TB."""
    if "BYOC_INSTRUMENTED" not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@dataclass(frozen=True)
class Outcome:
    """What became of a graph, and how much of it was offloaded."""

    kind: str
    text: str = ""
    offloaded: int = 0
    operators: int = 0


def try_graphs(graphs: Sequence[Drawn], precision: str = FULL) -> list[Outcome]:
    """The outcome of each graph in a precision.

    Those that can be imported go through the compiler together, because the C compiler takes longer
    than a graph does, and one by one where something is not as it should be.
    """
    outcomes: dict[int, Outcome] = {}
    together = []
    for index, graph in enumerate(graphs):
        if len(graphs) > 1 and _is_imported(graph):
            together.append(index)
        else:
            outcomes[index] = try_together([graph], precision)
    if together:
        joint = try_together([graphs[index] for index in together], precision)
        for index in together:
            alone = [graphs[index]]
            outcomes[index] = joint if joint.kind == EQUAL else try_together(alone, precision)
        if joint.kind in FAILURES and all(outcomes[i].kind == EQUAL for i in together):
            outcomes[together[0]] = Outcome(joint.kind, f"only together with others: {joint.text}")
    return [outcomes[index] for index in range(len(graphs))]


def _is_imported(graph: Drawn) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_onnx(prepare_apart(graph.model, given_shapes(graph)))
    except Exception:  # said when it is compiled alone
        return False
    return True


def try_together(graphs: Sequence[Drawn], precision: str = FULL) -> Outcome:
    """The outcome of one model of several graphs that do not know of each other."""
    whole = merged(graphs)
    try:
        with tempfile.TemporaryDirectory(prefix="fuzz_") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = Path(folder, "model.so")
            # Tensors of these graphs are tiny: no region is too small, or few kernels would run.
            report = byoc.compile(
                whole.model,
                file,
                given_shapes(whole),
                exact=whole.special,
                min_bytes=0,
                precision=precision,
            ).report
            library = byoc.load(file, threads=1)
            coarse = coarse_tolerance(library.metadata.report)
            results = [library.run(feeds) for feeds in whole.feeds]
    except ByocError as error:
        return Outcome(RAW if is_internal(error) else REFUSED, _one_line(error))
    except Exception as error:
        return Outcome(RAW, f"{_one_line(error)} [{_place(error)}]")
    for feeds, got in zip(whole.feeds, results, strict=True):
        verdict = judge(whole, feeds, got, precision, coarse)
        if verdict.kind != EQUAL:
            return verdict
    return Outcome(EQUAL, "", report.offloaded, report.operators)


def given_shapes(graph: Drawn) -> dict[str, list[int | str]]:
    """The shapes that a user gives: of symbolic inputs, and of those with an axis of 0.

    In ONNX files 0 often stands for an axis of unknown size, so that it must be said.
    """
    fed = graph.feeds[0]
    return {name: list(x.shape) for name, x in fed.items() if 0 in x.shape} | graph.shapes


def merged(graphs: Sequence[Drawn]) -> Drawn:
    """One model of several graphs; each is run in all its worlds."""
    if len(graphs) == 1:
        return graphs[0]
    whole = onnx.ModelProto()
    shapes: dict[str, list[int | str]] = {}
    runs = max(len(graph.feeds) for graph in graphs)
    feeds: list[Arrays] = [{} for _ in range(runs)]
    for index, graph in enumerate(graphs):
        mark = f"g{index}_"
        model = compose.add_prefix(graph.model, mark)
        # Symbols are the axes' own in each graph: their sizes are not the same.
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = mark + dim.dim_param
        if not index:
            whole.CopyFrom(model)
        else:
            for field in ("node", "input", "output", "initializer"):
                getattr(whole.graph, field).extend(getattr(model.graph, field))
            known = {entry.domain for entry in whole.opset_import}
            whole.opset_import.extend(e for e in model.opset_import if e.domain not in known)
        for name, shape in graph.shapes.items():
            shapes[mark + name] = [mark + e if isinstance(e, str) else e for e in shape]
        for run, feed in enumerate(feeds):
            given = graph.feeds[run % len(graph.feeds)]
            feed.update({mark + name: x for name, x in given.items()})
    return Drawn(whole, feeds, shapes, any(graph.special for graph in graphs))


def judge(
    graph: Drawn, feeds: Arrays, got: Arrays, precision: str = FULL, coarse: float = 0.0
) -> Outcome:
    """Compare results with ONNX Runtime's; doubt it before calling something wrong.

    Those of a precision of fewer bits may be off by ``coarse`` of their range, where it is not 0.
    """
    want = expected(graph.model, feeds)
    with np.errstate(all="ignore"):
        found = differences(got, want, coarse)
    if not found:
        return Outcome(EQUAL)
    text = "; ".join(f"{name}: {how}" for name, how in sorted(found.items()))
    if graph.shapes:
        sizes = {n: list(feeds[n].shape) for n in graph.shapes}
        text += f" with {sizes}"
    alike = not any("instead of" in how for how in found.values())  # shapes and dtypes agree
    if not alike and _inferred(graph.model, feeds, got, found):
        return Outcome(DISPUTED, text)
    reference = by_reference(graph.model, feeds)
    theirs = {name: reference[name] for name in found} if reference is not None else {}
    if theirs and not differences(got, theirs, coarse):
        return Outcome(DISPUTED, text)
    if alike and graph.special and may_differ(graph.model, found):
        return Outcome(SPECIAL, text)
    rounding = ROUNDINGS[precision]
    off = {name: np.asarray(got[name]) for name in found}
    if alike and rounding and is_sensitive(graph.model, feeds, off, rounding):
        return Outcome(UNSTABLE, text)
    if alike and is_unstable(graph.model, feeds, set(found)):
        return Outcome(UNSTABLE, text)
    return Outcome(WRONG, text)


def _inferred(model: onnx.ModelProto, feeds: Arrays, got: Arrays, names: Collection[str]) -> bool:
    """Whether ONNX infers the shapes that we give; reductions of nothing are ONNX Runtime's own."""
    static = onnx.ModelProto.FromString(model.SerializeToString())
    for value in static.graph.input:
        for dim, extent in zip(
            value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True
        ):
            dim.dim_value = extent
    asked = [value for value in static.graph.output if value.name in names]
    del static.graph.output[:]  # inference gives up where an input is an output
    static.graph.output.extend(asked)
    inferred = onnx.shape_inference.infer_shapes(static, data_prop=True)
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.output
        if all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return all(shapes.get(name) == got[name].shape for name in names)


def is_internal(error: ByocError) -> bool:
    """Whether an error was passed on rather than understood.

    TVM's converters raise whatever their code runs into; a line that names the operator and the
    node tells a user what to change, unless the code is ours.
    """
    text = str(error)
    if "pass larger inputs" in text:
        return False  # ONNX Runtime makes something of windows that do not fit
    if "\n" in text or isinstance(error, RunError):  # what was compiled runs
        return True
    cause = error.__cause__
    foreign = cause is not None and not isinstance(cause, (ByocError, OSError))
    if foreign and not isinstance(error, CompileError) and _is_ours(cause):
        return True  # a CompileError tells of TVM's compiler, which our code only calls
    named = "node " in text
    return not named and any(word in text for word in INTERNAL)


def _is_ours(error: BaseException) -> bool:
    """Whether code of ours ran into an error, itself or in a package that it called.

    What it raises itself is meant, and what TVM's importer runs into is none of it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if Path(frame.filename).name in ("named_import.py", "named_builder.py"):
            continue  # hands on to TVM's importer what it is given
        if frame.filename.startswith(OURS):
            return not (frame is frames[-1] and (frame.line or "").startswith("raise "))
        if "/relax/frontend/" in frame.filename:
            return False
    return False


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(OURS)] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]
