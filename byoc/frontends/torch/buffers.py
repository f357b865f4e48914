"""Buffers and inputs that a program changes when it runs: values kept for its next call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor

from byoc.errors import ModelError
from byoc.frontends.torch.names import source_node


@dataclass(frozen=True)
class Changed:
    """Names of the buffers and inputs that a program changes, each in order."""

    buffers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Those of the outputs behind the others, which are what becomes of each."""
        return self.buffers + self.inputs


def changed(program: torch.export.ExportedProgram) -> Changed:
    """What a program without operators in place changes. Raises ``ModelError``."""
    written = program.graph_signature.user_inputs_to_mutate.items()
    inputs = dict.fromkeys(target for name, target in written if name != target)
    return Changed(tuple(changed_buffers(program)), tuple(inputs))


def changed_buffers(program: torch.export.ExportedProgram) -> list[str]:
    """The buffers that a program without operators in place reads and changes, by name.

    One that it writes anew before it reads it is none of these. Raises ``ModelError`` for one that
    does not begin with zeros, as states do, and for one that is called as an input is.
    """
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    buffers = {target: nodes[name] for name, target in signature.inputs_to_buffers.items()}
    written = signature.buffers_to_mutate.items()
    found = [
        target
        for name, target in written
        if name != buffers[target].name and not _is_overwritten(buffers[target])
    ]
    stored = {**program.state_dict, **program.constants}
    for target in found:
        if stored[target].count_nonzero():
            raise ModelError(
                f"buffer {target!r} is not zero at first, as states are; set it to zeros before the"
                " export"
            )
        if target in signature.user_inputs:
            raise ModelError(f"an input and a buffer are called {target!r}; rename one")
    return found


def require_values(program: torch.export.ExportedProgram) -> None:
    """Raise ``ModelError`` for a constant that stands for something of the trace."""
    if (name := lost_constant(program)) is not None:
        raise ModelError(
            f"constant {name!r} has no values, as PyTorch's tracer loses what torch.func.grad, "
            "jacrev and hessian are of; write the derivative out (torch.func.jvp is taken)"
        )


def lost_constant(program: torch.export.ExportedProgram) -> str | None:
    """The name of a constant that stands for something of the trace, where there is one."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    for name, value in program.constants.items():
        if isinstance(value, FakeTensor) or (isinstance(value, torch.Tensor) and wrapped(value)):
            return str(name)
    return None


def tensor_of_two_names(program: torch.export.ExportedProgram) -> tuple[str, str] | None:
    """A buffer and a constant that are one tensor, as PyTorch's tracer finds attributes twice."""
    places: dict[int, str] = {}
    stored = {**program.state_dict, **program.constants}
    for name in program.graph_signature.inputs_to_buffers.values():
        if stored[name].layout is torch.strided:  # others have no place of their own
            places[stored[name].data_ptr()] = name
    for name in program.graph_signature.inputs_to_lifted_tensor_constants.values():
        if stored[name].layout is not torch.strided or not stored[name].numel():
            continue
        if stored[name].data_ptr() in places:
            return places[stored[name].data_ptr()], name
    return None


def _is_overwritten(buffer: torch.fx.Node) -> bool:
    """Whether nothing reads what a buffer was: all that is done with it is to copy over it."""
    return all(
        user.target is torch.ops.aten.copy.default and buffer not in user.args[1:]
        for user in buffer.users
    )


def is_as_before(program: torch.export.ExportedProgram, spec: Any, result: torch.fx.Node) -> bool:
    """Whether what a buffer or an input becomes is what it was, as an attribute that is set to
    itself (``self.table = self.table.to(device)``)."""
    signature = program.graph_signature
    names = {**signature.inputs_to_buffers, **{name: name for name in signature.user_inputs}}
    return names.get(result.name) == spec.target


def changes_refused(written: Sequence[tuple[Any, torch.fx.Node]]) -> ModelError:
    """The error for what a module may not change, which tells the nodes that do so last."""
    spec, _ = written[0]
    kinds = torch.export.graph_signature.OutputKind
    if spec.kind in (kinds.BUFFER_MUTATION, kinds.USER_INPUT_MUTATION):
        what = "" if spec.kind is kinds.BUFFER_MUTATION else "input "
        failure = ModelError(
            f"the module changes {what}{spec.target!r} when it runs; byoc.compile keeps "
            "it with states=True (--states)"
        )
    else:
        what = spec.kind.name.split("_MUTATION")[0].lower().replace("_", " ")
        failure = ModelError(
            f"the module changes {what} {spec.target!r}; need one that changes no other than "
            "buffers and inputs"
        )
    sources = filter(None, (source_node(node) for _, node in written))
    failure.sources = dict.fromkeys(sources, "it writes an input")
    return failure
