"""Tensors that are given other data, ``y.data = 2 * x``, as older code writes it.

PyTorch's tracer notes neither this nor ``y.data`` where it is read: the one it drops, so that the
tensor keeps what it had, and of the other it makes a constant without values. It does note the
operators that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensor

from byoc.errors import ModelError
from byoc.frontends.torch.names import module_path
from byoc.frontends.torch.nodes import graphs_inside
from byoc.frontends.torch.replaced import replaced

_aten = torch.ops.aten

#: What the tracer leaves of an assignment that it drops.
_DROPPED = _aten._has_compatible_shallow_copy_type.default


@contextmanager
def noted_data() -> Iterator[None]:
    """While a module is traced within this context, data that are read or set are noted."""
    usual = torch.Tensor.data

    def read(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() if isinstance(tensor, FakeTensor) else usual.__get__(tensor)

    def write(tensor: torch.Tensor, other: torch.Tensor) -> None:
        if isinstance(tensor, FakeTensor) and isinstance(other, FakeTensor):
            _set(tensor, other)
        else:
            usual.__set__(tensor, other)

    with replaced({(torch.Tensor, "data"): property(read, write)}):
        yield


def _set(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Nothing is set where a tensor has these data, as after ``y.data *= 2``."""
    if not _same_memory(tensor, other):
        with torch.no_grad():
            _aten.set_.source_Tensor(tensor, other)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.untyped_storage()._cdata == b.untyped_storage()._cdata
        and a.dtype == b.dtype
        and (a.shape, a.stride()) == (b.shape, b.stride())
        and a.storage_offset() == b.storage_offset()
    )


def require_noted_data(program: torch.export.ExportedProgram) -> None:
    """Raise ``ModelError`` where a program lost data that its code sets, or where these are of a
    weight, a buffer or an input, which no traced program can exchange."""
    known = program.graph_signature
    held = {**known.inputs_to_parameters, **known.inputs_to_buffers}
    for graph in graphs_inside(program.graph_module):
        for node in graph.nodes:
            if node.target not in (_DROPPED, _aten.set_.source_Tensor):
                continue
            tensor = node.args[0]
            if node.target is _DROPPED and not _read_after(tensor, node):
                continue
            if node.target is _DROPPED or tensor.op == "placeholder":
                name = held.get(tensor.name, tensor.name)
                where = module_path(node) or "the model itself"
                raise ModelError(
                    f"the code sets {name!r}.data (in {where}), which torch.export does not"
                    " follow; give the new tensor a name of its own"
                )


def _read_after(tensor: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether something reads a tensor, or has its name, after data were set."""
    return any(user > node for user in tensor.users)
