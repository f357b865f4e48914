"""What surrounds a module where it is called or traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from byoc.frontends.torch.replaced import replaced


@contextmanager
def attention_of_any_length() -> Iterator[None]:
    """Attention does not ask whether it is of 0 rows, as PyTorch does to choose a kernel: of a size
    that data decide, no tracer knows."""
    with sdpa_kernel([SDPBackend.MATH]):
        yield


@contextmanager
def exported_layers() -> Iterator[None]:
    """Layers are those that PyTorch exports, and not those of eager calls alone."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def unwritten(module: torch.nn.Module) -> Iterator[None]:
    """Buffers that are written inside are afterwards as they were."""
    kept = [(buffer, buffer._version, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, version, copy in kept:
            if buffer._version != version:
                buffer.data.copy_(copy)


@contextmanager
def unchecked_distributions() -> Iterator[None]:
    """Without the checks of values that distributions make, which no tracer can follow."""
    distribution = torch.distributions.Distribution
    before = distribution._validate_args
    distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        distribution.set_default_validate_args(before)


@contextmanager
def places_of_one_number() -> Iterator[None]:
    """``x[..., step] = y`` of a tensor without axes is written at a vector of one place, and
    ``x.narrow(1, step, 2)`` read at a vector of two: PyTorch's tracer would have to know the
    number."""
    usual, narrow = torch.Tensor.__setitem__, torch.Tensor.narrow

    @wraps(usual)
    def written(x: torch.Tensor, key: Any, value: Any) -> None:
        usual(x, *_at_a_vector(x, key, value))

    def read(input: torch.Tensor, dim: int, start: Any, length: int) -> torch.Tensor:
        if not isinstance(start, torch.Tensor):
            return narrow(input, dim, start, length)
        first = torch.where(start < 0, start + input.shape[dim], start)
        places = first + torch.arange(length, device=input.device)
        return input.index_select(dim, places)

    replacements = {(torch.Tensor, "__setitem__"): written, (torch, "narrow"): read}
    with replaced({**replacements, (torch.Tensor, "narrow"): read}):
        yield


def _at_a_vector(x: torch.Tensor, key: Any, value: Any) -> tuple[Any, Any]:
    """A key whose one tensor has no axes with a vector for it, and the value with that axis."""
    parts = list(key) if isinstance(key, tuple) else [key]
    tensors = [n for n, part in enumerate(parts) if isinstance(part, torch.Tensor | list | range)]
    if len(tensors) != 1 or not _is_one_place(parts[tensors[0]]):
        return key, value
    (at,) = tensors
    parts[at] = parts[at].reshape(1)
    rest = x.dim() - sum(part is not None and part is not ... for part in parts)
    behind = sum(isinstance(part, slice) or part is None for part in parts[at + 1 :])
    # What no part names stands where the dots are, or at the end.
    dots = [n for n, part in enumerate(parts) if part is ...]
    behind += rest if not dots or dots[0] > at else 0
    if isinstance(value, torch.Tensor) and value.dim() > behind:
        value = value.unsqueeze(value.dim() - behind)
    return tuple(parts), value


def _is_one_place(part: Any) -> bool:
    wholes = (torch.int64, torch.int32, torch.int16, torch.int8)
    return isinstance(part, torch.Tensor) and part.dim() == 0 and part.dtype in wholes


@contextmanager
def plain_scalars() -> Iterator[None]:
    """Scalars of NumPy (``np.power(64, 0.5)``) are plain numbers for the tracer of
    ``torch.compile``: it makes inputs of them, whose values an exported program has not."""
    from torch._dynamo.variables.builder import VariableBuilder

    wrap = VariableBuilder._wrap

    @wraps(wrap)
    def plain(builder: VariableBuilder, value: Any) -> Any:
        return wrap(builder, value.item() if isinstance(value, np.generic) else value)

    with replaced({(VariableBuilder, "_wrap"): plain}):
        yield
