"""Sounds as long as an open size says, of their short-time transforms (``torch.istft(length=n)``).

PyTorch takes a number alone for ``length``, and makes an open size the one of the example.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def sound(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """Frames, [.., frequencies, frames], added where they overlap, over the sum of their windows'
    squares: [.., length]."""
    frames = input.movedim(-1, -2)
    frames = frames.unsqueeze(0) if input.dim() == 2 else frames
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = torch.fft.ifft(frames, n=n_fft, norm=norm)
    else:
        frames = torch.fft.irfft(frames[..., : n_fft // 2 + 1], n=n_fft, norm=norm)
    step, size = hop_length or n_fft // 4, win_length or n_fft
    window = torch.ones(size) if window is None else window
    before = (n_fft - size) // 2
    window = functional.pad(window, (before, n_fft - size - before))
    batch, count, _ = frames.shape
    whole, first = n_fft + step * (count - 1), n_fft // 2 if center else 0
    weights = window.square().expand(1, count, n_fft)
    made, share = (
        torch.ops.aten.unfold_backward(part, [rows, whole], 1, n_fft, step)
        for part, rows in ((frames * window, batch), (weights, 1))
    )
    made = made[:, first:] / share[:, first:]
    # Zeros for all that might be missing: PyTorch's tracer need not know which is longer.
    made = functional.pad(made, (0, length))[:, :length]
    return made.squeeze(0) if input.dim() == 2 else made


#: What stands for functions of PyTorch where one of their arguments is open.
SOUNDS = {(torch, "istft"): sound, (torch.Tensor, "istft"): sound}
