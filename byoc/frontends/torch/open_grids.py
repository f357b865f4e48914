"""Rows of numbers, as many as an open size says: ``torch.linspace(0, 1, n)``, windows of a signal.

PyTorch takes a plain number alone for how many, and makes an open size the one of the example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _dtype(dtype: torch.dtype | None) -> torch.dtype:
    return dtype or torch.get_default_dtype()


def _exact(dtype: torch.dtype) -> torch.dtype:
    """What numbers of a dtype are computed in."""
    return dtype if dtype == torch.float64 else torch.float32


def evenly_spaced(
    start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **named: Any
) -> torch.Tensor:
    """From the beginning up to the end, both of them included."""
    if named.get("out") is not None:
        return NotImplemented
    if (dtype := _dtype(dtype)).is_floating_point:
        return _grid(start, end, steps, _exact(dtype)).to(dtype)
    made = _whole(start, end, steps)
    return made if made is NotImplemented else made.to(dtype)


def powers(
    start: Any,
    end: Any,
    steps: Any,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    **named: Any,
) -> torch.Tensor:
    """Those of a base, whose exponents are evenly spaced."""
    if named.get("out") is not None:
        return NotImplemented
    if (dtype := _dtype(dtype)).is_floating_point:
        return torch.pow(base, _grid(start, end, steps, _exact(dtype))).to(dtype)
    made = _whole(start, end, steps)
    return made if made is NotImplemented else torch.pow(base, made).to(dtype)


def _grid(start: Any, end: Any, steps: Any, dtype: torch.dtype) -> torch.Tensor:
    """Counted from the beginning up to the middle, and from the end behind it, as by PyTorch; a
    single one is the beginning."""
    places = torch.arange(steps, dtype=dtype)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    from_start, from_end = start + places * step, end - (steps - 1 - places) * step
    return torch.where(places < (steps + 1) // 2, from_start, from_end)


def _whole(start: Any, end: Any, steps: Any) -> Any:
    """Numbers between two whole ones, which PyTorch computes in float64 before it cuts them off.

    Where they go down, or begin below 0, what is cut off is the machine's: products that are added
    are rounded once or twice.
    """
    start, end = (int(given) if isinstance(given, float) else given for given in (start, end))
    if not 0 <= start <= end:
        return NotImplemented
    places = torch.arange(steps, dtype=torch.float64)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    from_start, from_end = start + places * step, end - (steps - 1 - places) * step
    return torch.where(places < torch.sym_max(steps // 2, 1), from_start, from_end)


def frequencies(
    n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **named: Any
) -> torch.Tensor:
    """Of a Fourier transform: from 0 on, and those below 0 behind."""
    if named.get("out") is not None:
        return NotImplemented
    places = torch.arange(n, dtype=_exact(_dtype(dtype)))
    places = torch.where(places < (n + 1) // 2, places, places - n)
    return (places * (1.0 / (n * d))).to(_dtype(dtype))


def frequencies_of_real(
    n: Any, d: float = 1.0, *, dtype: torch.dtype | None = None, **named: Any
) -> torch.Tensor:
    """Of a Fourier transform of real numbers."""
    if named.get("out") is not None:
        return NotImplemented
    places = torch.arange(n // 2 + 1, dtype=_exact(_dtype(dtype)))
    return (places * (1.0 / (n * d))).to(_dtype(dtype))


def _window(
    curve: Callable[..., torch.Tensor], factors: Sequence[float] = ()
) -> Callable[..., torch.Tensor]:
    """A window whose ``curve`` is one of shares from 0 to 1, and of ``factors``."""

    def window(
        window_length: Any,
        periodic: bool = True,
        *given: float,
        dtype: torch.dtype | None = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        requires_grad: bool = False,
        **named: float,
    ) -> torch.Tensor:
        last = window_length if periodic else window_length - 1
        places = torch.arange(window_length, dtype=_exact(_dtype(dtype)))
        chosen = [*given, *factors[len(given) :]]
        for place, name in enumerate(("alpha", "beta") if len(factors) > 1 else ("beta",)):
            if name in named:
                chosen[place] = named[name]
        made = curve(places * (1.0 / torch.sym_max(last, 1)), *chosen)
        # A single element is 1, whatever the curve is.
        is_one = torch.full((1,), window_length, dtype=torch.int64) == 1
        return torch.where(is_one, 1.0, made).to(_dtype(dtype))

    return window


def _wave(share: torch.Tensor, alpha: float, beta: float) -> torch.Tensor:
    return alpha - beta * torch.cos(share * (2 * math.pi))


def _blackman(share: torch.Tensor) -> torch.Tensor:
    return _wave(share, 0.42, 0.5) + 0.08 * torch.cos(share * (4 * math.pi))


def _triangle(share: torch.Tensor) -> torch.Tensor:
    return 1 - torch.abs(2 * share - 1)


def _kaiser(share: torch.Tensor, beta: float) -> torch.Tensor:
    inner = (1 - (2 * share - 1).square()).clamp(min=0)
    return torch.special.i0(beta * inner.sqrt()) / torch.special.i0(torch.tensor(beta))


#: What stands for functions of PyTorch where one of their arguments is open.
GRIDS = {
    (torch, "linspace"): evenly_spaced,
    (torch, "logspace"): powers,
    (torch.fft, "fftfreq"): frequencies,
    (torch.fft, "rfftfreq"): frequencies_of_real,
    (torch, "hann_window"): _window(_wave, (0.5, 0.5)),
    (torch, "hamming_window"): _window(_wave, (0.54, 0.46)),
    (torch, "blackman_window"): _window(_blackman),
    (torch, "bartlett_window"): _window(_triangle),
    (torch, "kaiser_window"): _window(_kaiser, (12.0,)),
}
