"""Numbers between two others, as many as an open size says (``torch.linspace(0, 1, n)``).

PyTorch takes a plain number alone for how many, and makes an open size the one of the example.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from byoc.frontends.torch.replaced import replaced

_OPEN = (torch.SymInt, torch.SymFloat)


@contextmanager
def grids_of_any_size() -> Iterator[None]:
    """``torch.linspace`` takes open sizes within this context."""
    usual = torch.linspace

    def linspace(start: Any, end: Any, steps: Any, **named: Any) -> torch.Tensor:
        dtype = named.get("dtype") or torch.get_default_dtype()
        is_open = any(isinstance(value, _OPEN) for value in (start, end, steps))
        if not is_open or named.get("out") is not None or not dtype.is_floating_point:
            return usual(start, end, steps, **named)
        return _grid(start, end, steps, dtype)

    with replaced({(torch, "linspace"): linspace}):
        yield


def _grid(start: Any, end: Any, steps: Any, dtype: torch.dtype) -> torch.Tensor:
    """Counted from the beginning up to the middle, and from the end behind it, as by PyTorch; a
    single one is the beginning."""
    exact = dtype if dtype == torch.float64 else torch.float32
    places = torch.arange(steps, dtype=exact)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    from_start, from_end = start + places * step, end - (steps - 1 - places) * step
    return torch.where(places < (steps + 1) // 2, from_start, from_end).to(dtype)
