"""Modules and example inputs that no tracer of PyTorch takes, and inputs as it takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils import _pytree as pytree

from byoc.arguments import as_mapping
from byoc.errors import ModelError


def require_traceable(model: torch.nn.Module) -> None:
    """Raise ``ModelError`` for a module in training mode, or whose tensors are quantised or have
    no values."""
    name = type(model).__name__
    if training := next((n for n, m in model.named_modules() if m.training), None):
        raise ModelError(f"module {training!r} of {name} is in training mode; call .eval() first")
    if model.training:
        raise ModelError(f"{name} is in training mode; call .eval() first")
    for path, module in model.named_modules():
        if type(module).__module__.startswith("torch.ao.nn.quantized"):
            raise ModelError(
                f"module {path!r} ({type(module).__name__}) has quantised tensors, which "
                "torch.export does not take; quantise the module by torchao's prepare_pt2e and "
                "convert_pt2e"
            )
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
            raise ModelError(
                f"{path!r} of {name} has no shape yet; call the module once before it is compiled"
            )
        if tensor.is_meta:
            raise ModelError(
                f"{path!r} of {name} is on the meta device, without values; make the module on the"
                " CPU, or load its weights with assign=True"
            )


def given_inputs(given: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs of a module: positional ones, and those by name. Raises ``ModelError``."""
    need = "a tuple of positional inputs, or a dictionary of inputs by name"
    if isinstance(given, tuple | list):
        return tuple(given), {}
    return (), dict(as_mapping(given, name, ModelError, need))


def taken_inputs(examples: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same of example inputs, of which views have memory of their own. Raises ``ModelError``
    for tensors without plain memory as well."""
    given = given_inputs(examples, "example_inputs")
    for path, leaf in pytree.tree_flatten_with_path(given[0] or given[1])[0]:
        if reason := _not_plain(leaf):
            raise ModelError(f"example input {pytree.keystr(path)} {reason}")
    return _of_their_own(given)


def _not_plain(leaf: Any) -> str:
    """Why an example input cannot be traced; empty where it can."""
    if type(leaf).__module__ == "numpy":
        return f"is of {type(leaf).__name__} of NumPy; give it through torch.as_tensor"
    if not isinstance(leaf, torch.Tensor):
        return ""
    if leaf.is_nested:
        return "is a nested tensor; need one that is padded, and a mask or the lengths"
    if leaf.layout != torch.strided:
        return f"is a sparse tensor ({leaf.layout}); give it through to_dense()"
    if leaf.is_meta:
        return "is on the meta device, without values; need one on the CPU"
    return ""


def _of_their_own(inputs: Any) -> Any:
    """Inputs with memory of their own: what PyTorch notes of the tensor that one is a view of, it
    cannot check afterwards. One that is given twice is two, as others may be given in its places:
    the tracer would read the one for both."""
    known: set[int] = set()

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor._base is None and id(tensor) not in known:
            known.add(id(tensor))
            return tensor
        return tensor.detach().clone()

    return pytree.tree_map_only(torch.Tensor, copy, inputs)
