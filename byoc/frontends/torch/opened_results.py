"""Results that PyTorch cannot take apart: objects of classes that it does not know.

A cache of keys and values, a distribution or a dataclass holds tensors in its attributes. Its place
in the result takes a dictionary of these, nested as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.utils import _pytree as pytree

from byoc.frontends.torch.replaced import replaced

#: What PyTorch's tracer says of such a result.
_UNKNOWN = "in output, which is not a known type"

#: What cannot be taken apart, and holds no results.
_WHOLE = (torch.Tensor, torch.nn.Module, type, str, bytes)


def is_unknown(error: Exception) -> bool:
    """Whether PyTorch's tracer met a result of a class that it does not know."""
    return _UNKNOWN in str(error)


def opened(result: Any) -> Any:
    """The result with a dictionary in place of each object that holds tensors, and is no tree."""
    return pytree.tree_map(_opened_leaf, result)


@contextmanager
def opened_results(module: torch.nn.Module) -> Iterator[None]:
    """Let a module give results that are ``opened``."""
    with other_forward(module, lambda forward: lambda *a, **named: opened(forward(*a, **named))):
        yield


@contextmanager
def other_forward(
    module: torch.nn.Module, made_of: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Let a module compute what is ``made_of`` its own ``forward``, with its arguments."""
    forward = module.forward
    with replaced({(module, "forward"): wraps(forward)(made_of(forward))}):
        yield


def _opened_leaf(leaf: Any) -> Any:
    found = _tensors(leaf, ())
    return leaf if found is None else found


def _tensors(value: Any, within: tuple[int, ...]) -> Any:
    """The tensors in a value, by what leads to them; None where there is none.

    ``within`` are the objects that hold it: what leads back to these is left out.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, _WHOLE) or id(value) in within:
        return None
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items()}
    elif isinstance(value, (list, tuple)):
        parts = {str(place): part for place, part in enumerate(value)}
    else:
        parts = dict(getattr(value, "__dict__", {}))
    inner = {name: _tensors(part, (*within, id(value))) for name, part in parts.items()}
    return {name: part for name, part in inner.items() if part is not None} or None
