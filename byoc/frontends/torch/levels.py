"""Levels of ``torch.func``: a program of a module that calls ``vmap`` enters one as it runs, and
leaves it by an operator further on.

An error between the two would leave PyTorch within ``vmap``, where no numbers may be drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def left_levels() -> Iterator[None]:
    """After this context PyTorch is at the level that it was at, whatever happened within."""
    levels = torch._C._functorch
    outside = levels.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        levels.pop_dynamic_layer_stack_and_undo_to_depth(outside)
