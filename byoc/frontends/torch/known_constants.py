"""Tensors that a module makes of nothing but numbers, such as the times of an integration.

What such ones decide (``(t[1:] > t[:-1]).all()``) is the same at every call. PyTorch's tracer
computes with the values of tensors of one element that are made of numbers as it traces; here it
does with those of more, and of functions like ``torch.linspace``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from byoc.errors import ModelError
from byoc.frontends.torch.replaced import replaced

#: Elements up to which the values of a tensor are known.
MOST = 1024

_MADE_OF_NUMBERS = (torch.arange, torch.eye, torch.full, torch.linspace, torch.ones, torch.zeros)
_PLACES = (fake_tensor, proxy_tensor)


#: Names of functions that write a tensor into another one, or into a copy of it: of what is
#: written the tracer may still know the values that were there before.
_WRITES = re.compile(r"[a-z]_$|__setitem__|^__i[a-z]+__|scatter|put|copy|index_(add|fill|reduce)")


class _AsNumbers(TorchFunctionMode):
    """What such a function makes of plain numbers is made of its elements; raises ``ModelError``
    where a tensor is written into another one, whose values may be known."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = (args, kwargs or {})
        name = getattr(func, "__name__", "")
        into = "out" in given[1] or _WRITES.search(name)
        of_tensors = into and pytree.tree_any(_is_traced, (args[1:], given[1]))
        if of_tensors and not ("out" not in given[1] and args and _has_no_known_values(args[0])):
            raise ModelError(f"{name} writes a tensor, which then may decide what is computed")
        if func in _MADE_OF_NUMBERS and not pytree.tree_any(_is_traced, given):
            with _disable_current_modes():
                made = func(*args, **given[1])
                numbers = made.tolist() if made.numel() <= MOST else None
            if numbers is not None:
                return torch.tensor(numbers, dtype=made.dtype).reshape(made.shape)
        return func(*args, **given[1])


def _has_no_known_values(value: Any) -> bool:
    """Whether the tracer computed a tensor, and of something else than numbers."""
    mode = proxy_tensor.get_proxy_mode()
    if mode is None or not isinstance(value, fake_tensor.FakeTensor):
        return False
    found = proxy_tensor.get_proxy_slot(value, mode.tracer, None)
    return found is not None and found.constant is None and value.constant is None


def _is_traced(value: Any) -> bool:
    return isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)


@contextmanager
def known_constants() -> Iterator[None]:
    """The tracer knows the values of such tensors, within this context."""
    limits = {(place, "CONSTANT_NUMEL_LIMIT"): MOST for place in _PLACES}
    with replaced(limits), _AsNumbers():
        yield
