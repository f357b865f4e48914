"""Numbers that a module keeps as buffers, such as the stride of a layer, alone or in a row, such as
which columns of a table are categories; floats, too, where whole numbers do not tell all: the times
of a solver, a mark that a layer was calibrated.

PyTorch's tracer takes them for data, which may not decide what is computed. Where they do, they are
made anew each time that they are read: the tracer follows numbers that are made while it traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from byoc.frontends.torch.known_constants import MOST

_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


def _numbers(module: nn.Module, floats: bool) -> dict[str, torch.Tensor]:
    """Those of a module, by name: buffers, and tensors that it did not register."""
    kept = {**vars(module), **module._buffers}
    return {name: tensor for name, tensor in kept.items() if _are_numbers(tensor, floats)}


def _are_numbers(value: object, floats: bool) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() > 1 or value.numel() > MOST:
        return False
    return not value.is_complex() and (floats or not value.dtype.is_floating_point)


@contextmanager
def known_numbers(module: nn.Module, floats: bool = False) -> Iterator[Callable[[], str | None]]:
    """Make such numbers of a module known within this context; gives a function that tells the
    name of one that was written meanwhile."""
    made: list[tuple[str, torch.Tensor]] = []
    usual: list[tuple[nn.Module, type, dict[str, torch.Tensor | None]]] = []

    def reader(name: str, numbers: Any, dtype: torch.dtype) -> property:
        def read(_: nn.Module) -> torch.Tensor:
            tensor = torch.tensor(numbers, dtype=dtype)
            made.append((name, tensor))
            return tensor

        return property(read)

    try:
        for path, child in [*module.named_modules()]:
            found = _numbers(child, floats)
            if not found:
                continue
            kind, buffers = type(child), dict(child._buffers)
            readers = {n: reader(f"{path}.{n}", b.tolist(), b.dtype) for n, b in found.items()}
            own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
            child.__class__ = type(kind.__name__, (kind,), {**own, **readers})
            usual.append((child, kind, buffers))
            for name in found:
                child._buffers.pop(name, None)
        yield lambda: next((name for name, tensor in made if tensor._version), None)
    finally:
        for child, kind, buffers in usual:
            child.__class__ = kind
            child._buffers.clear()
            child._buffers.update(buffers)


def sized_by_numbers(program: torch.export.ExportedProgram) -> bool:
    """Whether numbers that a module keeps, and nothing else, decide a size: it is read of what is
    computed of such numbers, as the width of a layer's padding that its stride and kernel tell."""
    signature = program.graph_signature
    kept = {*signature.inputs_to_buffers, *signature.inputs_to_lifted_tensor_constants}
    known: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            is_known = node.name in kept and _are_numbers(node.meta.get("val"), True)
        else:
            is_known = node.op == "call_function" and known.issuperset(node.all_input_nodes)
        if is_known and node.target in _READS and node.all_input_nodes:
            return True
        if is_known:
            known.add(node)
    return False
