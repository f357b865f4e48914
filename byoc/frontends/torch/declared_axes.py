"""Axes of several inputs that were declared by one name.

PyTorch's tracer has a symbol for each, and looks at the end whether they are equal. Until then
``torch.cat([a, b]).chunk(2)`` of two images is parts of ``(n + m + 1) // 2`` rows, and what is
noted of these is not proved of ``n`` alone. One look at both, before all else, makes them one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from byoc.frontends.torch.nodes import inputs_of


@contextmanager
def joined_axes(module: torch.nn.Module, inputs: tuple[Any, Any], shapes: Any) -> Iterator[None]:
    """Sizes that ``shapes`` calls by one name are one symbol when the module is traced within, on
    inputs by their places and by their names."""
    names = [dim.__name__ for dim, _ in declared_sizes(module, inputs, shapes)]
    if len(names) == len(set(names)):
        yield
        return

    def join(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        known: dict[str, Any] = {}
        for dim, size in declared_sizes(module, (args, kwargs), shapes):
            # The tracer notes the answer, and that is all that it is asked for.
            bool(known.setdefault(dim.__name__, size) == size)

    handle = module.register_forward_pre_hook(join, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def traced_sizes(
    module: torch.nn.Module, program: torch.export.ExportedProgram, shapes: Any
) -> list[tuple[Dim, Any]]:
    """The named axes of a program, and their sizes for the tracer."""
    values = [node.meta.get("val") for node in inputs_of(program)]
    spec = program.call_spec.in_spec
    if spec.num_leaves != len(values):
        return []
    return list(declared_sizes(module, pytree.tree_unflatten(values, spec), shapes))


def declared_sizes(
    module: torch.nn.Module, inputs: tuple[Any, Any], shapes: Any
) -> Iterator[tuple[Dim, Any]]:
    """Each axis that has a name, and its size, of inputs by their places and by their names."""
    args, kwargs = inputs
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return _declared(given if isinstance(shapes, Mapping) else tuple(given.values()), shapes)


def _declared(given: Any, shapes: Any) -> Iterator[tuple[Dim, Any]]:
    if isinstance(given, torch.Tensor):
        axes = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
        yield from ((dim, given.shape[axis]) for axis, dim in axes if isinstance(dim, Dim))
    elif isinstance(given, Mapping) and isinstance(shapes, Mapping):
        for key, part in given.items():
            yield from _declared(part, shapes.get(key))
    elif isinstance(given, list | tuple) and isinstance(shapes, list | tuple):
        for part, axes in zip(given, shapes, strict=False):
            yield from _declared(part, axes)
