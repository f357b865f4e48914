"""What functions remember of their calls (``functools.lru_cache``), as those that make a mask for a
size do, while PyTorch's tracer follows a module.

The tracer's tensors are none: a function that remembers one gives it to the next trace, and to the
module itself when it runs. And an open size is no key for what is remembered.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dis import opname
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from byoc.frontends.torch.failures import is_users
from byoc.frontends.torch.replaced import replaced

_OF_A_TRACE = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)

#: The class of functions that remember.
_Remembering: type = type(lru_cache(lambda: None))


@contextmanager
def nothing_remembered() -> Iterator[None]:
    """Within this context open sizes are keys for what functions remember; after it, functions that
    remember something of the trace have forgotten all."""
    usual = torch.SymInt.__hash__

    def number(size: torch.SymInt) -> int:
        return _key(size) if _is_called_with(sys._getframe(1)) else usual(size)

    try:
        with replaced({(torch.SymInt, "__hash__"): number}):
            yield
    finally:
        for function in gc.get_objects():
            if type(function) is _Remembering and any(map(_is_of_a_trace, _held(function))):
                function.cache_clear()


def _key(size: torch.SymInt) -> int:
    """The same for sizes that are equal whatever the axes are."""
    return hash((id(size.node.shape_env), size.node.expr))


def _is_called_with(frame: Any) -> bool:
    """Whether code of users' hands the size to a function that remembers. A dictionary of theirs
    would keep it."""
    code = frame.f_code
    return is_users(code.co_filename) and "CALL" in opname[code.co_code[frame.f_lasti]]


def _held(function: Any) -> list[Any]:
    """What a function remembers: its calls and what it gave."""
    return gc.get_referents(function) if function.cache_info().currsize else []


def _is_of_a_trace(value: Any, depth: int = 4) -> bool:
    if not depth or not isinstance(value, dict | list | tuple):
        return isinstance(value, _OF_A_TRACE)
    within = (*value, *value.values()) if isinstance(value, dict) else value
    return any(_is_of_a_trace(part, depth - 1) for part in within)
