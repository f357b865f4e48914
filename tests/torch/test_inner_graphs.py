"""Graphs inside of graphs of ``torch.compile``: checkpoints, and control flow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan
from torch.utils.checkpoint import checkpoint

import byoc
from byoc.torch_compile.backend import backend

OPTIONS = {"cache": False, "min_bytes": 0}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


class Layers(nn.Module):
    """Two layers, and what is done with them."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.one, self.other, self.call = nn.Linear(8, 8), nn.Linear(8, 8), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x)


def _inner(module: Layers, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(module.one, x, use_reentrant=False).relu() * 2


def _checkpointed(module: Layers, x: torch.Tensor) -> torch.Tensor:
    once = checkpoint(_inner, module, x, use_reentrant=False)
    twice = checkpoint(_inner, module, once, use_reentrant=False)
    return module.other(twice) + once


def _branched(module: Layers, x: torch.Tensor) -> torch.Tensor:
    return module.other(torch.cond(x.sum() > 0, module.one, lambda t: module.one(t).tanh(), (x,)))


def _looped(module: Layers, x: torch.Tensor) -> torch.Tensor:
    first = torch.zeros((), dtype=torch.int64)
    count = x.abs().amax().ceil().to(torch.int64)
    _, y = torch.while_loop(
        lambda i, y: i < count, lambda i, y: (i + 1, module.one(y).tanh()), (first, x)
    )
    return y * 2


def _scanned(module: Layers, x: torch.Tensor) -> torch.Tensor:
    last, every = scan(lambda c, t: (module.one(c) + t, c * 2), torch.zeros(8), x, dim=0)
    return last + every


@pytest.mark.slow
@torch.no_grad()
def test_checkpoints_are_what_they_compute() -> None:
    module, x = Layers(_checkpointed).eval(), torch.randn(3, 8)
    (graph,) = byoc.explain(module, (x,), OPTIONS).graphs
    (part,) = graph.parts
    assert len(part.metadata.report["regions"]) == 1
    assert part.metadata.report["left"] == []
    compiled = torch.compile(module, backend=backend, options=OPTIONS, dynamic=True)
    for rows in (3, 5):
        given = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(given), module(given), rtol=1e-4, atol=1e-5)


def test_gradients_of_checkpoints_are_pytorchs() -> None:
    module, x = Layers(_checkpointed).eval(), torch.randn(3, 8)
    with pytest.warns(byoc.FallbackWarning, match="gradients may be wanted"):
        made = torch.compile(module, backend=backend, options=OPTIONS)(x)
    made.sum().backward()
    assert module.one.weight.grad is not None


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("call", [_branched, _looped, _scanned])
def test_control_flow_is_taken(call: Callable[..., torch.Tensor]) -> None:
    module, x = Layers(call).eval(), torch.randn(3, 8)
    (graph,) = byoc.explain(module, (x,), OPTIONS).graphs
    (part,) = graph.parts
    assert part.metadata.report["left"] == []
    compiled = torch.compile(module, backend=backend, options=OPTIONS)
    for factor in (1, -1, 5):
        torch.testing.assert_close(compiled(factor * x), module(factor * x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_bodies_decide_on_the_library(tmp_path: Path) -> None:
    """Two graphs that are alike but for what a branch computes."""
    first = Layers(lambda m, x: torch.cond(x.sum() > 0, torch.exp, torch.neg, (x,)) + 1).eval()
    other = Layers(lambda m, x: torch.cond(x.sum() > 0, torch.cos, torch.neg, (x,)) + 1).eval()
    x = torch.rand(2, 8)
    for module in (first, other):
        torch.compiler.reset()
        compiled = torch.compile(
            module, backend=backend, options={"min_bytes": 0, "cache": tmp_path}
        )
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
def test_control_flow_of_open_sizes_is_pytorchs() -> None:
    """What is around it is not."""
    module = Layers(_branched).eval()
    compiled = torch.compile(module, backend=backend, options=OPTIONS, dynamic=True)
    with pytest.warns(byoc.FallbackWarning, match="PyTorch runs operators of a graph"):
        for rows in (3, 5):
            given = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(given), module(given), rtol=1e-4, atol=1e-5)
