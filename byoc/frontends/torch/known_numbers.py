"""Whole numbers that a module keeps as buffers, such as the stride of a layer.

PyTorch's tracer takes them for data, which may not decide what is computed. Where they do, they are
made anew each time that they are read: the tracer follows numbers that are made while it traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn


def _is_number(buffer: torch.Tensor | None) -> bool:
    if buffer is None or buffer.dim() or buffer.is_complex():
        return False
    return not buffer.dtype.is_floating_point


@contextmanager
def known_numbers(module: nn.Module) -> Iterator[Callable[[], str | None]]:
    """Make such numbers of a module known within this context; gives a function that tells the
    name of one that was written meanwhile."""
    made: list[tuple[str, torch.Tensor]] = []
    usual: list[tuple[nn.Module, type, dict[str, torch.Tensor | None]]] = []

    def reader(name: str, number: int | bool, dtype: torch.dtype) -> property:
        def read(_: nn.Module) -> torch.Tensor:
            tensor = torch.tensor(number, dtype=dtype)
            made.append((name, tensor))
            return tensor

        return property(read)

    try:
        for path, child in [*module.named_modules()]:
            found = {name: b for name, b in child._buffers.items() if _is_number(b)}
            if not found:
                continue
            kind, buffers = type(child), dict(child._buffers)
            readers = {n: reader(f"{path}.{n}", b.item(), b.dtype) for n, b in found.items()}
            own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
            child.__class__ = type(kind.__name__, (kind,), {**own, **readers})
            usual.append((child, kind, buffers))
            for name in found:
                del child._buffers[name]
        yield lambda: next((name for name, tensor in made if tensor._version), None)
    finally:
        for child, kind, buffers in usual:
            child.__class__ = kind
            child._buffers.clear()
            child._buffers.update(buffers)
