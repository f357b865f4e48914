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
from torch.export.dynamic_shapes import _DerivedDim
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
    for tensor, axis, dim in _declared_axes(module, inputs, shapes):
        if isinstance(dim, Dim):
            yield dim, tensor.shape[axis]


def with_two_rows(module: torch.nn.Module, inputs: tuple[Any, Any], shapes: Any) -> tuple[Any, Any]:
    """Example inputs of which axes that are to stay open are 2 long where they were 1: PyTorch's
    tracer fixes those of 1. What is traced is the same of both."""
    try:
        found = list(_declared_axes(module, inputs, shapes))
    except TypeError:  # other inputs than the module has, which the tracer says
        return inputs
    open_axes = [(x, axis, dim) for x, axis, dim in found if _may_be_two(dim)]
    if any(isinstance(dim, _DerivedDim) for _, _, dim in open_axes):
        return inputs
    longer: dict[int, torch.Tensor] = {}
    for tensor, axis, _ in open_axes:
        if tensor.shape[axis] == 1:
            known = longer.get(id(tensor), tensor)
            longer[id(tensor)] = known.repeat_interleave(2, axis)
    return pytree.tree_map_only(torch.Tensor, lambda x: longer.get(id(x), x), inputs)


def _may_be_two(dim: Any) -> bool:
    """Whether an axis is declared to stay open, for 2 too."""
    if isinstance(dim, Dim):
        return dim.max >= 2
    return getattr(dim, "type", None) == Dim.DYNAMIC.type and (dim.max is None or dim.max >= 2)


def _declared_axes(
    module: torch.nn.Module, inputs: tuple[Any, Any], shapes: Any
) -> Iterator[tuple[torch.Tensor, int, Any]]:
    args, kwargs = inputs
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return _axes(given if isinstance(shapes, Mapping) else tuple(given.values()), shapes)


def _axes(given: Any, shapes: Any) -> Iterator[tuple[torch.Tensor, int, Any]]:
    if isinstance(given, torch.Tensor):
        axes = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
        yield from ((given, axis, dim) for axis, dim in axes)
    elif isinstance(given, Mapping) and isinstance(shapes, Mapping):
        for key, part in given.items():
            yield from _axes(part, shapes.get(key))
    elif isinstance(given, list | tuple) and isinstance(shapes, list | tuple):
        for part, axes in zip(given, shapes, strict=False):
            yield from _axes(part, axes)
