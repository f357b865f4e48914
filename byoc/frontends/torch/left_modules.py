"""Modules that an error leaves, which the code that called them catches, as where it tries whether
a layer takes a mask (``try: layer(x, mask=m)``, ``except TypeError: layer(x)``).

PyTorch's tracer then takes what follows for a part of that module, until it finds itself in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from torch.fx import Tracer

from byoc.frontends.torch.replaced import replaced


@contextmanager
def left_modules() -> Iterator[None]:
    """The tracer leaves modules as the code does, within this context."""
    usual = Tracer.call_module

    @wraps(usual)
    def called(tracer: Tracer, module: Any, forward: Callable[..., Any], *given: Any) -> Any:
        outside = len(tracer.module_stack)
        try:
            return usual(tracer, module, forward, *given)
        except Exception:
            while len(tracer.module_stack) > outside:
                tracer.module_stack.popitem(last=True)
            raise

    with replaced({(Tracer, "call_module"): called}):
        yield
