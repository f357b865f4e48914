"""A graph of ``torch.compile`` as a program: weights frozen, sizes read from the tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from byoc.errors import ImportFailure
from byoc.frontends.torch.control_flow import converts
from byoc.frontends.torch.names import MODULE, NODE, module_path
from byoc.frontends.torch.program import Program, exported
from byoc.torch_compile.floats import open_number
from byoc.torch_compile.results import Result, failure, results_of
from byoc.torch_compile.written import that_turn_inputs, written_inputs

#: The least number that an open extent is: PyTorch takes all to be 2 or more.
LEAST = 2

#: How functions end that begin such a level.
_BEGINS = "_increment_nesting"

_STATIC = "_dynamo_static_input_type"


def freeze(placeholder: torch.fx.Node) -> None:
    """Make an input of a graph a constant, which goes into the library."""
    placeholder.meta["tensor_dict"] = {**(placeholder.meta.get("tensor_dict") or {}), _STATIC: ""}


def thaw(placeholder: torch.fx.Node) -> None:
    """Make an input of a graph one that each call gives, as one is that the graph writes."""
    told = dict(placeholder.meta.get("tensor_dict") or {})
    told.pop(_STATIC, None)
    placeholder.meta["tensor_dict"] = told


@dataclass(frozen=True)
class Captured:
    """A graph, and what its inputs are.

    ``frozen`` are the places of parameters and buffers, ``given`` those of other tensors, ``sizes``
    where each input that is a size stands: place of a tensor, axis; none for those that nothing
    reads, as strides. ``numbers`` are the places of whole numbers that no axis has: each is the
    extent of one more tensor, which has no element; those below 2, which no open extent is to
    PyTorch, are ``fixed``, each as it is. ``written`` are those of ``given`` that the
    graph writes. ``floats`` are those of other numbers, each the element of one more tensor of
    ``dtype``. ``outputs`` says what each result is.
    """

    graph: torch.fx.GraphModule
    inputs: Sequence[Any]
    frozen: tuple[int, ...]
    given: tuple[int, ...]
    written: tuple[int, ...]
    sizes: dict[int, tuple[int, int]]
    numbers: tuple[int, ...]
    fixed: dict[int, int]
    floats: tuple[int, ...]
    dtype: torch.dtype
    outputs: tuple[Result, ...]

    @classmethod
    def of(cls, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Captured:
        """Read a graph. Raises ``ImportFailure`` for what no library can be made of."""
        if levels_of(graph) - {"vmap"}:
            raise ImportFailure("derivatives by torch.func; need torch.vmap alone")
        if turning := that_turn_inputs(graph):
            raise failure("an input itself gets other axes in place", *turning)
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        shapes = [node.meta.get("example_value") for node in nodes]
        frozen, given, written, sizes, numbers, fixed, floats = [], [], [], {}, [], {}, []
        changed = written_inputs(graph)
        for place, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
            if not isinstance(value, torch.Tensor):
                if all(user.op == "output" for user in node.users):
                    continue
                if found := _place_of(shapes[place], shapes):
                    sizes[place] = found
                elif isinstance(shapes[place], torch.SymFloat):
                    floats.append(place)
                elif (whole := _whole(value, shapes[place])) >= LEAST:
                    numbers.append(place)
                else:
                    fixed[place] = whole
            elif value.device.type != "cpu":
                raise ImportFailure(f"input {node.name} is on {value.device}; need CPU memory")
            elif node in changed:
                written.append(place)
                given.append(place)
            elif _STATIC in (node.meta.get("tensor_dict") or {}):
                frozen.append(place)
            elif open_number(node) is not None:
                floats.append(place)
            else:
                given.append(place)
        for place in given:
            _require_one_tensor(nodes[place].name, inputs[place])
        if _may_have_gradients(graph) and any(
            isinstance(value, torch.Tensor) and value.requires_grad for value in inputs
        ):
            raise ImportFailure(
                "gradients may be wanted of the result; run the module under torch.no_grad()"
            )
        _require_flat(graph)
        outputs = results_of(graph, shapes)
        places = (tuple(frozen), tuple(given), tuple(written))
        numbered = (sizes, tuple(numbers), fixed, tuple(floats))
        return cls(graph, inputs, *places, *numbered, _dtype_of_numbers(graph), outputs)

    def tensors(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """What the library is given of a call's inputs, those that it writes included."""
        tensors = [self._in_pairs(place, inputs[place].detach()) for place in self.given]
        tensors += [torch.empty(whole_number(inputs[place]), 0) for place in self.numbers]
        return tensors + [_element(inputs[place], self.dtype) for place in self.floats]

    def program(self) -> Program:
        """The graph with its weights, exported; sizes that the tracer left open stay symbolic."""
        tensors = tuple(self.tensors(self.inputs))
        if not tensors:
            raise ImportFailure("a graph without inputs, which is a constant")
        shapes = [self._in_pairs(place, self._example(place)).shape for place in self.given]
        shapes += [(self._example(place), 0) for place in self.numbers]
        shapes += [()] * len(self.floats)
        auto = torch.export.Dim.AUTO
        dynamic = [
            {axis: auto for axis, size in enumerate(shape) if isinstance(size, torch.SymInt)}
            for shape in shapes
        ]
        program = exported(_Frozen(self), tensors, (tuple(dynamic),), within_dynamo=True)
        for (name, _), shape in zip(program.inputs(), shapes, strict=True):
            (node,) = (n for n in program.exported.graph.nodes if n.name == name)
            for axis, size in enumerate(shape):
                found = node.meta["val"].shape[axis]
                if isinstance(size, torch.SymInt) and isinstance(found, int):
                    raise ImportFailure(f"axis {axis} of {name} can only be {found}")
        return program

    def key(self, *others: str) -> str:
        """A hash of all that the library is made of."""
        digest = hashlib.sha256()
        graphs = [m for m in self.graph.modules() if isinstance(m, torch.fx.GraphModule)]
        for text in (*others, *(graph.code for graph in graphs), *_modes()):
            digest.update(text.encode() + b"\0")
        for node in (n for graph in graphs for n in graph.graph.nodes):  # what modes make of it
            found = node.meta.get("example_value")
            digest.update(f"{found.dtype if isinstance(found, torch.Tensor) else ''}\0".encode())
        for place in range(len(self.inputs)):
            value = self._example(place)
            is_tensor = isinstance(value, torch.Tensor)
            told = (value.dtype, tuple(map(str, value.shape))) if is_tensor else value
            told = self.fixed.get(place, told)
            kind = (place in self.frozen, place in self.written)
            digest.update(f"{place} {kind} {told}\0".encode())
        constants = [self.inputs[place] for place in self.frozen]
        for graph in graphs:
            named = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
            found = [attrgetter(name)(graph) for name in named]
            constants += [value for value in found if isinstance(value, torch.Tensor)]
        for tensor in constants:
            dense = tensor.detach().contiguous()
            digest.update(f"{dense.dtype} {tuple(dense.shape)}\0".encode())
            digest.update(dense.reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def is_in_pairs(self, place: int) -> bool:
        """Whether the library is given an input of complex numbers as pairs of real ones."""
        return place not in self.written and self.inputs[place].is_complex()

    def _in_pairs(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(tensor.resolve_conj()) if self.is_in_pairs(place) else tensor

    def _example(self, place: int) -> Any:
        nodes = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        return nodes[place].meta.get("example_value", self.inputs[place])


def levels_of(graph: torch.fx.GraphModule) -> set[str]:
    """What of torch.func a graph does to all operators between two of its own: vmap, jvp, grad.

    A trace that fails in one of the latter would leave PyTorch in the middle of it.
    """
    called = (getattr(node.target, "__name__", "") for node in graph.graph.nodes)
    begins = [name for name in called if name.endswith(_BEGINS)]
    return {name.removesuffix(_BEGINS).strip("_") for name in begins}


def _require_one_tensor(name: str, value: torch.Tensor) -> None:
    """Raise ``ImportFailure`` for a tensor of a class that is made of others."""
    if is_traceable_wrapper_subclass(value):
        kind = type(value).__name__
        raise ImportFailure(
            f"input {name} is a {kind}, which is made of others; need a plain tensor"
        )


def _may_have_gradients(graph: torch.fx.GraphModule) -> bool:
    """Whether gradients are recorded where a graph is called, or in a part of it."""
    return torch.is_grad_enabled() or any(
        node.target is torch._C._set_grad_enabled and node.args[0] for node in graph.graph.nodes
    )


def _modes() -> tuple[str, ...]:
    """What decides on dtypes without being part of a graph's code."""
    casts = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return (f"dtype={torch.get_default_dtype()}", f"autocast={casts}")


_NARROW = torch.narrow


class _Frozen(torch.nn.Module):
    """The graph as a module of its tensors alone."""

    def __init__(self, captured: Captured) -> None:
        super().__init__()
        self._graph = _with_sources(captured.graph, captured.outputs)
        self._captured = captured
        for place in captured.frozen:
            self.register_buffer(f"weight_{place}", captured.inputs[place].detach())
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The graph's results."""
        captured = self._captured
        known = dict(zip(captured.given, tensors, strict=False))
        for place in filter(captured.is_in_pairs, captured.given):
            known[place] = torch.view_as_complex(known[place])
        carriers = tensors[len(captured.given) :]
        known |= captured.fixed
        known |= {p: t.shape[0] for p, t in zip(captured.numbers, carriers, strict=False)}
        elements = carriers[len(captured.numbers) :]
        for place, element in zip(captured.floats, elements, strict=True):
            is_tensor = isinstance(captured.inputs[place], torch.Tensor)
            known[place] = element if is_tensor else element.item()
        known |= {place: getattr(self, f"weight_{place}") for place in captured.frozen}
        known |= {place: known[at].shape[axis] for place, (at, axis) in captured.sizes.items()}
        inputs = [known.get(place) for place in range(len(captured.inputs))]
        with fx_traceback.preserve_node_meta():
            return _Interpreter(self._graph).run(*inputs)


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph for a tracer, in which what PyTorch wrote for ``torch.autocast`` only leaves a
    note and changes no dtype, and ``x.data`` becomes a constant without values."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a node gives."""
        if target is torch.amp._enter_autocast:
            mode = torch.autocast(*args)
            mode.__enter__()
            return mode
        if target is torch.amp._exit_autocast:
            return args[0].__exit__(None, None, None)
        if target is torch._C._autograd._get_data_attr:
            return args[0].detach()
        if target is _NARROW:
            target = torch.narrow  # what stands for it while a program is traced
        return super().call_function(target, args, kwargs)


def _with_sources(graph: torch.fx.GraphModule, outputs: Sequence[Result]) -> torch.fx.GraphModule:
    """The graph with a note in each node of where it stands, which tracing hands on, and tensors
    alone as results."""
    noted = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    results = noted.graph_copy(graph.graph, copies)
    tensors = (kind if kind is None else isinstance(kind, tuple) for kind in outputs)
    noted.output(tuple(r if kept else None for r, kept in zip(results, tensors, strict=True)))
    for given, node in copies.items():
        node.meta = {"custom": {NODE: given.name, MODULE: module_path(given)}}
    return torch.fx.GraphModule(graph, noted)


def _whole(value: Any, known: Any) -> int:
    """A number. Raises ``ImportFailure`` for one that cannot be an extent."""
    if not isinstance(known, torch.SymInt) or whole_number(value) < 0:
        raise ImportFailure(f"an input is the number {known}; need a tensor, or 0 and more")
    return whole_number(value)


def whole_number(value: int | torch.SymInt) -> int:
    """A whole number; of one that the tracer leaves open, what it was when it was traced."""
    return value if isinstance(value, int) else int(value.node.hint)


def _element(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number as the element of a tensor."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.tensor(
        value.node.hint if isinstance(value, torch.SymFloat) else value, dtype=dtype
    )


def _dtype_of_numbers(graph: torch.fx.GraphModule) -> torch.dtype:
    """What numbers are given as: they meet tensors of float32 as such."""
    known = (n.meta.get("example_value") for n in graph.graph.nodes if open_number(n) is None)
    dtypes = {value.dtype for value in known if isinstance(value, torch.Tensor)}
    return torch.float64 if torch.float64 in dtypes else torch.float32


def _place_of(size: Any, shapes: Sequence[Any]) -> tuple[int, int] | None:
    """Which tensor, and which of its axes, has a size; None where none has."""
    for place, value in enumerate(shapes if isinstance(size, torch.SymInt) else ()):
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt) and extent.node.expr == size.node.expr:
                    return place, axis
    return None


def _require_flat(graph: torch.fx.GraphModule) -> None:
    """Raise ``ImportFailure`` for nodes that have graphs of their own, but those of control flow
    that are converted, as ``torch.cond`` is."""
    if users := [node for node in with_graphs(graph) if not converts(node.target)]:
        raise failure("a graph inside of the graph", *users)


def with_graphs(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that have graphs of their own."""
    inner = [
        node
        for node in graph.graph.nodes
        if node.op == "get_attr" and isinstance(attrgetter(node.target)(graph), torch.nn.Module)
    ]
    return list(dict.fromkeys(user for node in inner for user in node.users))
