"""The backend of ``torch.compile``: a library for each graph, or PyTorch where none can be made.

A graph is compiled when PyTorch first meets it, and again when its shapes change; PyTorch decides
whether sizes become symbols then. Its parameters and buffers are frozen: packed into the library,
and checked at each call to be the ones that they were. Libraries are kept in a folder, by the hash
of all that they are made of, so that the next process loads them.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from byoc.arguments import as_path
from byoc.compiler.compile import compile
from byoc.compiler.keywords import DEFAULTS
from byoc.compiler.partitioned import versions
from byoc.compiler.request import Request
from byoc.deploy.loader import Model, load
from byoc.errors import (
    ByocError,
    ControlError,
    FallbackWarning,
    ImportFailure,
    InputError,
    LoadError,
)
from byoc.torch_compile.alike import Alike
from byoc.torch_compile.attributes import weights_as_inputs
from byoc.torch_compile.capture import LEAST, Captured, whole_number, with_graphs
from byoc.torch_compile.floats import require_arithmetic, trace_again_with_numbers
from byoc.torch_compile.frozen import Frozen
from byoc.torch_compile.graphs import Graph, Part, Parts, tell
from byoc.torch_compile.inner_graphs import written_out
from byoc.torch_compile.refusal import Refusal
from byoc.torch_compile.results import Number, Result, View
from byoc.torch_compile.split import Piece, operators_of, split_at
from byoc.torch_compile.writing import Writing, tensor_of
from byoc.torch_compile.written import that_write_inputs
from codegen_cc.cache import cache_folder, make_room, used
from codegen_cc.libraries.registry import SHIPPED

#: Options of the backend besides the keywords of ``byoc.compile``.
_OWN = {"cache": True, "verify": True}


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of ``torch.compile``.

    ``options`` are keywords of ``byoc.compile`` but ``states``; ``cache``, a folder for libraries
    or False for none; ``verify``, whether a new library is compared with PyTorch (the default).

    What cannot be compiled runs in PyTorch, and a ``FallbackWarning`` says why: where single
    operators are in the way these, else the graph. Raises ``ByocError`` for options that there
    are none of, and for values that cannot be.
    """
    if mode not in (None, "default"):
        raise ControlError(f"mode {mode!r}; give options to the backend byoc instead")
    chosen, met = _options(options or {}), Graph()
    graph, weights = weights_as_inputs(written_out(graph))
    require_arithmetic(graph)
    run = _run_of(graph, [*inputs, *weights], chosen, met.met, trace_again_with_numbers)
    tell(met)
    return (lambda *given: run(*given, *weights)) if weights else run


def _run_of(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    chosen: dict[str, Any],
    parts: Parts,
    refused: Callable[[torch.fx.GraphModule, ByocError], None] | None = None,
) -> Callable[..., Any]:
    """What runs a graph: a library, PyTorch, or these in turn; ``parts`` gets what they take.

    ``refused`` is told first where there is no library of the whole graph, and may raise.
    """
    try:
        captured = Captured.of(graph, inputs)
        library = _library(captured, chosen)
        if len(library.metadata.states) != len(captured.written):
            raise ImportFailure("it writes inputs otherwise than its operators tell")
    except ByocError as error:
        if refused is not None:
            refused(graph, error)
        # Of control flow PyTorch's tracer may not say what it does not take apart.
        sources = getattr(error, "sources", {})
        sources = sources or {node.name: str(error) for node in with_graphs(graph)}
        sources = sources or {node.name: str(error) for node in that_write_inputs(graph)}
        split = split_at(graph, sources)
        what = "a graph" if split is None else "operators of a graph"
        warnings.warn(f"PyTorch runs {what}: {error}", FallbackWarning, stacklevel=3)
        if split is not None:
            return _in_turn(*split, chosen, parts)
        parts.append(Part(operators_of(graph), None, str(error)))
        return graph.forward
    if not library.metadata.report.get("regions"):
        parts.append(Part(operators_of(graph), None, "no kernel would gain by it"))
        return graph.forward
    parts.append(Part(operators_of(graph), library.metadata))
    return _Runner(captured, library, lambda given: _run_of(graph, given, chosen, []))


def _in_turn(
    whole: torch.fx.GraphModule, pieces: Sequence[Piece], chosen: dict[str, Any], parts: Parts
) -> Callable[..., Any]:
    """What runs a split graph."""
    for piece in pieces:
        if piece.reason:
            parts.append(Part(operators_of(piece.graph), None, piece.reason))
        else:
            own: Parts = []
            parts.append(own)
            setattr(whole, piece.name, _Taken(piece.graph, chosen, own))
    return whole.forward


class _Taken(torch.nn.Module):
    """A piece of a graph, compiled when it first runs, for the tensors that it is given then."""

    def __init__(self, graph: torch.fx.GraphModule, chosen: dict[str, Any], parts: Parts) -> None:
        super().__init__()
        self._compile = lambda inputs: _run_of(graph, inputs, chosen, parts)
        self._run: Callable[..., Any] | None = None

    def forward(self, *inputs: Any) -> Any:
        """The piece's results."""
        if self._run is None:
            self._run = self._compile(inputs)
        return self._run(*inputs)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    # A library's own states would leave the module's buffers as they were.
    known = [name for name in (*_OWN, *DEFAULTS) if name != "states"]
    if unknown := sorted(given.keys() - set(known)):
        raise ControlError(f"option {unknown[0]!r}; the backend byoc has {', '.join(known)}")
    chosen = {**_OWN, **given}
    request = Request.of({**DEFAULTS, **_keywords(chosen)})  # PyTorch would run what it refuses
    folder = _folder(chosen["cache"])
    if any(found.name not in SHIPPED for found in request.rules.libraries.all):
        folder = None  # a user's kernels may be others under the same name and version
    return chosen | {"cache": folder}


def _keywords(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that are keywords of ``byoc.compile``."""
    return {name: value for name, value in chosen.items() if name not in _OWN}


def _folder(cache: Any) -> Path | None:
    """The folder that libraries are kept in, which is there then. Raises ``ControlError``."""
    if cache is None or cache is False:
        return None
    folder = _own_folder() if cache is True else as_path(cache, "cache", ControlError)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ControlError(
            f"cannot keep libraries in {folder}: {error.strerror}; the option cache is another "
            "folder, or False for none"
        ) from error
    return folder


def _own_folder() -> Path:
    return cache_folder() / "torch"


def _library(captured: Captured, chosen: dict[str, Any]) -> Model:
    """The library of a graph: from the cache, else compiled."""
    keywords, folder = _keywords(chosen), chosen["cache"]
    told = [f"{name}={value!r}" for name, value in sorted(keywords.items())]
    told += [*versions().values(), torch.__version__]
    if folder is None:
        return _compiled(captured, None, chosen["verify"], keywords)
    path = folder / f"{captured.key(*told)}.so"
    if path.exists():
        used(path)
        with suppress(LoadError):  # one that is damaged is made again
            return load(path, keywords.get("threads"))
    refusal = Refusal(path.with_suffix(".json"))
    refusal.raise_again()
    with refusal.noted():
        compiled = _compiled(captured, path, chosen["verify"], keywords)
    if folder == _own_folder():
        make_room()
    return compiled


def _compiled(
    captured: Captured, path: Path | None, verify: bool, keywords: dict[str, Any]
) -> Model:
    if path is None:
        with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
            return _compiled(captured, Path(folder, "graph.so"), verify, keywords)
    with torch._guards.tracing(None):  # else it asks its own symbols of the graph's tracer
        states = bool(captured.written)
        compile(captured.program(), path, verify=verify, states=states, **keywords)
    return load(path, keywords.get("threads"))


_OTHER_WEIGHTS = (
    "its weights are not those that it was compiled with; call torch.compiler.reset() after "
    "changing them"
)


class _Runner:
    """A graph that a library computes, for PyTorch to call with the graph's inputs."""

    def __init__(
        self, captured: Captured, library: Model, compiled: Callable[[Sequence[Any]], Any]
    ) -> None:
        self._graph = captured.graph
        self._captured = captured
        self._outputs = captured.outputs
        self._views = [(p, kind) for p, kind in enumerate(self._outputs) if isinstance(kind, View)]
        self._library = library
        self._frozen = [(place, Frozen(captured.inputs[place])) for place in captured.frozen]
        self._names = [info.name for info in library.inputs]
        self._run = Writing(captured, library).run if captured.written else self._plainly
        self._warned = False
        # Libraries for other numbers among the inputs, those below 2 each for itself.
        self._numbers = (*captured.numbers, *captured.fixed)
        self._others = {self._kinds(captured.inputs): self}
        self._alike = Alike()  # for other weights
        self._compiled = compiled

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The graph's results."""
        if self._numbers and (kinds := self._kinds(inputs)) not in self._others:
            self._others[kinds] = self._compiled(inputs)
        run = self._others[kinds] if self._numbers else self
        return self._results(inputs) if run is self else run(*inputs)

    def _kinds(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """What decides which library is for these numbers."""
        numbers = (whole_number(inputs[place]) for place in self._numbers)
        return tuple(min(max(number, -1), LEAST) for number in numbers)

    def _results(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if not all(frozen.is_still(inputs[place]) for place, frozen in self._frozen):
            return self._with_other_weights(inputs)
        tensors = self._captured.tensors(inputs)
        try:
            found = self._run(tensors)
        except InputError as error:  # a condition on sizes that the tracer of the graph did not see
            return self._by_pytorch(inputs, str(error))
        results = iter(found.values())
        made = [self._result(kind, results, inputs) for kind in self._outputs]
        for place, kind in self._views:
            made[place] = kind.of((made if kind.of_result else inputs)[kind.place], inputs)
        return tuple(made)

    def _with_other_weights(self, inputs: Sequence[Any]) -> Any:
        """The results by the library for these weights; by PyTorch where some were written."""
        weights = [inputs[place] for place, _ in self._frozen]
        run = self._alike.find(weights)
        if run is None:
            written = any(f.is_of(inputs[p]) and not f.is_still(inputs[p]) for p, f in self._frozen)
            if written or not self._alike.has_room():
                return self._by_pytorch(inputs, _OTHER_WEIGHTS)
            run = self._compiled(inputs)
            self._alike.keep(weights, run)
        return run(*inputs)

    def _plainly(self, tensors: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        return self._library.run(dict(zip(self._names, tensors, strict=True)))

    @staticmethod
    def _result(kind: Result, results: Iterator[np.ndarray], inputs: Sequence[Any]) -> Any:
        if isinstance(kind, Number):
            return kind.of(inputs)
        return _laid_out(tensor_of(next(results)), kind) if isinstance(kind, tuple) else None

    def _by_pytorch(self, inputs: Sequence[Any], why: str) -> Any:
        if not self._warned:
            self._warned = True
            warnings.warn(f"PyTorch runs a graph: {why}", FallbackWarning, stacklevel=3)
        return self._graph(*inputs)


def _laid_out(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """A dense tensor with its axes in this order of memory, which views of it need to be."""
    if order == tuple(range(tensor.dim())):
        return tensor
    back = [order.index(axis) for axis in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)
