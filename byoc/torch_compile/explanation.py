"""What ``torch.compile(backend="byoc")`` does with a module, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc.torch_compile.graphs import Graph, collected


@dataclass(frozen=True)
class Explanation:
    """The graphs of a module, in the order in which they run, and where its code breaks them.

    Each graph has ``parts``: what a library computes, and what PyTorch runs and why.
    """

    graphs: tuple[Graph, ...]
    breaks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A line for each graph and each break."""
        lines = [f"graph {number}: {graph}" for number, graph in enumerate(self.graphs, 1)]
        lines += [f"break: {reason}" for reason in self.breaks]
        return "\n".join(lines)


def explain(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> Explanation:
    """Compile a module with ``torch.compile(backend="byoc")``, run it, and tell what was done.

    ``inputs`` are positional, or by name where they are a mapping; ``options`` are the backend's.
    Raises ``ModelError`` for what is neither.
    """
    import torch

    from byoc.frontends.torch.examples import given_inputs
    from byoc.torch_compile.backend import backend

    args, kwargs = given_inputs(inputs, "inputs")
    with torch.no_grad():
        torch.compiler.reset()
        told = torch._dynamo.explain(model)(*args, **kwargs)
        torch.compiler.reset()
        with collected() as graphs:
            torch.compile(model, backend=backend, options=dict(options or {}))(*args, **kwargs)
        torch.compiler.reset()
    breaks = tuple(str(reason.reason).partition("\n")[0] for reason in told.break_reasons)
    return Explanation(tuple(graphs), breaks)
