"""What values of a traced program are: dense tensors, constants, complex numbers."""

from __future__ import annotations

from typing import Any

import torch

from byoc.errors import ModelError


def is_complex(value: Any) -> bool:
    """Whether a value is a tensor of complex numbers."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def as_real(result: Any) -> Any:
    """A result, one of complex numbers as pairs of real ones."""
    return torch.view_as_real(result.resolve_conj()) if is_complex(result) else result


def is_constant(value: Any) -> bool:
    """Whether a value is known while importing."""
    if isinstance(value, list):
        return all(is_constant(item) for item in value)
    return isinstance(value, torch.Tensor | int | float | bool)


def computed(node: torch.fx.Node, value: Any) -> Any:
    """The result of a node of constants, by PyTorch."""
    args = tuple(value(argument) for argument in node.args)
    kwargs = {name: value(argument) for name, argument in node.kwargs.items()}
    with torch.no_grad():
        made = node.target(*args, **kwargs)
    return list(made) if isinstance(made, list | tuple) else made


def require_plain(value: Any, what: str) -> None:
    """Raise ``ModelError`` for what is no dense tensor of a dtype that NumPy or kernels know."""
    require_dense(value, what)
    if value.is_complex():
        raise ModelError(f"{what} is {value.dtype}; need real numbers")


def require_dense(value: Any, what: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"{what} is a {type(value).__name__}; need a tensor")
    if value.layout is not torch.strided or value.is_quantized:
        raise ModelError(f"{what} is {value.dtype}, {value.layout}; need dense real numbers")
