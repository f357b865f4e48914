"""PyTorch as the judge of every value of a program, and not of its outputs alone.

It computes, one after another, the operators that the program is taken apart into before they are
imported, and gives the result of each by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from byoc.deploy.exchange import numpy_dtype, tensor_of
from byoc.errors import VerifyError
from byoc.frontends.reference import Arrays
from byoc.frontends.torch.names import node_names, value_name
from byoc.frontends.torch.program import Program, array_of_tensor
from byoc.frontends.torch.taken_apart import taken_apart
from codegen_cc.errors import foreign_errors_as


@dataclass(frozen=True)
class _Value:
    """What a node gives: one of several at a place."""

    node: torch.fx.Node
    place: int | None = None


class ProgramJudge:
    """A program that tells its values.

    Values are the real tensors that its nodes give, and its outputs; ``inputs`` and ``outputs`` are
    the program's.
    """

    def __init__(self, program: Program) -> None:
        self._program = taken_apart(program.exported)
        self.name = f"PyTorch {torch.__version__}"
        self.inputs = [name for name, _ in program.inputs()]
        self.outputs = [name for name, _ in program.outputs()]
        self._values = dict(_results(node_names(self._program.graph.nodes)))
        outputs = program.outputs()
        self._values |= {name: _Value(self._output(place)) for name, place in outputs}

    def has(self, value: str) -> bool:
        """Whether the program has a value of this name that a node gives."""
        return value in self._values

    def values(self, names: Collection[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Values by name, for inputs by name. Raises ``VerifyError``."""
        wanted = {name: self._values[name] for name in names}
        telling = _Telling(self._program.graph_module, wanted.values())
        with (
            foreign_errors_as(VerifyError, "PyTorch, which judges the nodes,"),
            torch.inference_mode(),
        ):
            telling.run(*self._arguments(inputs))
        return {name: telling.found[value] for name, value in wanted.items()}

    def told(self, value: str, array: np.ndarray) -> np.ndarray:
        """What a library's array of a value is compared as."""
        return array

    def given(self, value: str, array: np.ndarray, dtype: str) -> np.ndarray:
        """What a library is given that is to compute on an array of the judge's."""
        return array.astype(numpy_dtype(dtype))

    def _arguments(self, inputs: Mapping[str, np.ndarray]) -> Iterator[Any]:
        """What the graph is called with: its weights and constants, and the inputs."""
        stored = {**self._program.state_dict, **self._program.constants}
        kinds = torch.export.graph_signature.InputKind
        for spec in self._program.graph_signature.input_specs:
            if spec.kind is not kinds.USER_INPUT:
                yield stored[spec.target]
            elif spec.arg.name in self.inputs:
                yield torch.from_dlpack(tensor_of(np.array(inputs[spec.arg.name]))).clone()
            else:
                yield spec.arg.value

    def _output(self, place: int) -> torch.fx.Node:
        """The node of an output, by its place among those of the user."""
        kinds = torch.export.graph_signature.OutputKind
        (node,) = (n for n in self._program.graph.nodes if n.op == "output")
        pairs = zip(self._program.graph_signature.output_specs, node.args[0], strict=True)
        return [made for spec, made in pairs if spec.kind is kinds.USER_OUTPUT][place]


class _Telling(torch.fx.Interpreter):
    """Runs a graph, and keeps some of its results as arrays in ``found``."""

    def __init__(self, module: torch.fx.GraphModule, wanted: Iterable[_Value]) -> None:
        super().__init__(module)
        self._wanted: dict[torch.fx.Node, set[_Value]] = {}
        for value in wanted:
            self._wanted.setdefault(value.node, set()).add(value)
        self.found: dict[_Value, np.ndarray] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        for value in self._wanted.get(n, ()):
            tensor = result if value.place is None else result[value.place]
            self.found[value] = array_of_tensor(tensor)
        return result


def _results(names: Mapping[torch.fx.Node, str]) -> Iterator[tuple[str, _Value]]:
    """The values that nodes give, by what the importer calls them."""
    for node, name in names.items():
        given = node.meta.get("val")  # checks give none
        if isinstance(given, list | tuple):
            places = [place for place, value in enumerate(given) if _is_real(value)]
            yield from ((value_name(name, place), _Value(node, place)) for place in places)
        elif _is_real(given):
            yield value_name(name), _Value(node)


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_complex()
