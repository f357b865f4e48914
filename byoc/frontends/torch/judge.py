"""PyTorch as the judge of every value of a program, and not of its outputs alone.

It computes, one after another, the operators that the program is taken apart into before they are
imported, and gives the result of each by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from byoc.deploy.exchange import numpy_dtype, tensor_of
from byoc.errors import VerifyError
from byoc.frontends.reference import Arrays
from byoc.frontends.torch.names import node_names
from byoc.frontends.torch.program import Program, array_of_tensor
from byoc.frontends.torch.taken_apart import taken_apart
from codegen_cc.errors import foreign_errors_as

#: Before the names of nodes in those of values, which outputs have names among as well.
_VALUE = "%"


class ProgramJudge:
    """A program that tells its values.

    ``results`` names the value of each of its nodes that gives one real tensor, by the node's name
    in reports; ``inputs`` and ``outputs`` are the program's.
    """

    def __init__(self, program: Program) -> None:
        self._program = taken_apart(program.exported)
        self.name = f"PyTorch {torch.__version__}"
        self.inputs = [name for name, _ in program.inputs()]
        self.outputs = [name for name, _ in program.outputs()]
        names = node_names(self._program.graph.nodes)
        self.results = {
            name: _VALUE + node.name for node, name in names.items() if _is_real(node.meta["val"])
        }
        self._nodes = {_VALUE + node.name: node for node in names}
        self._nodes |= {name: self._output(place) for name, place in program.outputs()}

    def has(self, value: str) -> bool:
        """Whether the program has a value of this name that a node gives."""
        return value in self._nodes

    def values(self, names: Collection[str], inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Values by name, for inputs by name. Raises ``VerifyError``."""
        wanted = {name: self._nodes[name] for name in names}
        telling = _Telling(self._program.graph_module, wanted.values())
        with (
            foreign_errors_as(VerifyError, "PyTorch, which judges the nodes,"),
            torch.inference_mode(),
        ):
            telling.run(*self._arguments(inputs))
        return {name: telling.found[node] for name, node in wanted.items()}

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

    def __init__(self, module: torch.fx.GraphModule, wanted: Collection[torch.fx.Node]) -> None:
        super().__init__(module)
        self._wanted = set(wanted)
        self.found: dict[torch.fx.Node, np.ndarray] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n in self._wanted:
            self.found[n] = array_of_tensor(result)
        return result


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_complex()
