"""Modules of TorchScript, whole ones and those within others, as PyTorch's tracer takes them.

It refuses a whole one. Of one within another it loses what the parameters are, or calls the code
that was scripted in a way that fails. A frozen one, with its weights as constants, it follows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import Parameter, Signature
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.jit import ScriptModule


def as_module(model: torch.nn.Module) -> torch.nn.Module:
    """A module that calls the whole one of TorchScript; any other is itself."""
    return _Whole.of(model) if isinstance(model, ScriptModule) else model


class _Whole(torch.nn.Module):
    """A module with the arguments of the one of TorchScript that it calls."""

    def __init__(self, model: ScriptModule) -> None:
        super().__init__()
        self.model = model
        self.train(any(getattr(part, "training", False) for part in model.modules()))

    @staticmethod
    def of(model: ScriptModule) -> _Whole:
        def forward(self: _Whole, *args: Any, **kwargs: Any) -> Any:
            return self.model(*args, **kwargs)

        names = ["self", *(argument.name for argument in model.forward.schema.arguments[1:])]
        given = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        forward.__signature__ = Signature(given)  # type: ignore[attr-defined]
        return type(model.original_name, (_Whole,), {"forward": forward})(model)


def with_scripts(model: torch.nn.Module, trace: Callable[[], ExportedProgram]) -> ExportedProgram:
    """What ``trace`` makes of a module; of one with parts of TorchScript where it fails, what it
    makes of that with the outermost of these frozen."""
    places = [
        (parent, name, child)
        for parent in model.modules()
        if not isinstance(parent, ScriptModule)
        for name, child in parent.named_children()
        if isinstance(child, ScriptModule)
    ]
    try:
        return trace()
    except Exception:
        if not places:
            raise
    try:
        for parent, name, child in places:
            with suppress(RuntimeError):  # nothing to freeze, or frozen
                parent._modules[name] = torch.jit.freeze(child)
        return trace()
    finally:
        for parent, name, child in places:
            parent._modules[name] = child
