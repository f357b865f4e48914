"""What a converter is tested on."""

from __future__ import annotations

from collections.abc import Callable

import torch

#: A function of tensors, and the shapes, or the tensors, that it is called with.
Case = tuple[Callable[..., torch.Tensor], tuple[object, ...]]
