"""Numbers that ``torch.compile`` leaves open, and numbers beside tensors as results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import byoc
from byoc.torch_compile.backend import backend
from byoc.torch_compile.graphs import Graph, collected

OPTIONS = {"cache": False, "min_bytes": 0}


pytestmark = pytest.mark.usefixtures("nothing_compiled")


@torch.no_grad()
def graphs_of(model: Callable[..., Any], *calls: tuple[Any, ...], **keywords: Any) -> list[Graph]:
    """The graphs of a model, whose results are PyTorch's in each call."""
    compiled = torch.compile(model, backend=backend, options=OPTIONS, **keywords)
    with collected() as graphs, warnings.catch_warnings():
        warnings.simplefilter("error", byoc.errors.FallbackWarning)
        for inputs in calls:
            found, wanted = compiled(*inputs), model(*inputs)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    return graphs


def require_one_region(graphs: list[Graph], count: int) -> None:
    assert len(graphs) == count
    for graph in graphs:
        (part,) = graph.parts
        assert part.metadata is not None
        report = part.metadata.report
        assert len(report["regions"]) == 1 and not report["left"]


def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
    x = torch.exp(x) * s + torch.clamp(x, -s, s * 2 + 1) + torch.full_like(x, s)
    return torch.where(x > s, x, s) / (s - 0.55) + torch.lerp(x, x * 2, s) + x.abs() ** s


@pytest.mark.slow
def test_floats_that_change_are_inputs() -> None:
    """One library for the first number, and one for all others."""
    x = torch.randn(8, 16)
    require_one_region(graphs_of(scaled, *[(x, s) for s in (0.1, -0.3, 0.0, 7.0)]), 2)


@pytest.mark.slow
def test_floats_beside_float64() -> None:
    """They keep all of their digits."""

    def both(x: torch.Tensor, s: float) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.exp(x) * s, x.double() * s

    x = torch.ones(8, 16)
    (_, graph) = graphs_of(both, *[(x, s) for s in (0.1, 0.3, 1 / 3)])
    assert graph.parts[0].metadata is not None
    compiled = torch.compile(both, backend=backend, options=OPTIONS)
    assert compiled(x, 1 / 7)[1][0, 0] == 1 / 7


def test_floats_that_operators_need_to_know() -> None:
    """PyTorch's tracer is asked for a graph with these, of which one each is made."""

    def normalised(x: torch.Tensor, eps: float) -> torch.Tensor:
        return nn.functional.layer_norm(x, (16,), eps=eps) * 2

    x = torch.randn(8, 16)
    require_one_region(graphs_of(normalised, (x, 0.1), (x, 0.2)), 2)


@pytest.mark.slow
def test_all_sizes_open() -> None:
    """With ``dynamic=True`` PyTorch leaves the numbers of layers open as well."""
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(0.2), nn.Conv2d(8, 4, 1))
    calls = [(torch.randn(n, 3, 8, 9),) for n in (2, 3, 5)]
    require_one_region(graphs_of(nn.Sequential(*layers).eval(), *calls, dynamic=True), 1)


@pytest.mark.slow
def test_sizes_are_results() -> None:
    """A break of the graph hands on what the code behind it reads."""

    def broken(x: torch.Tensor, s: float) -> tuple[Any, ...]:
        rows, half = x.shape[0], x.shape[0] // 2 + x.shape[1]
        y = torch.softmax(x, -1) * s
        torch._dynamo.graph_break()
        return torch.exp(y) + rows, half, rows * 2, s + 1

    calls = [(torch.randn(n, 16), s) for n, s in ((4, 0.5), (6, 0.25))]
    graphs = graphs_of(broken, *calls)
    assert all(part.metadata is not None for graph in graphs for part in graph.parts)


class Read(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * x.sum().item() + x.exp() / (x.abs().max().item() + 1)


def test_floats_that_tensors_hold(tmp_path: Path) -> None:
    module, x, library = Read().eval(), torch.randn(8, 16), tmp_path / "model.so"
    done = byoc.compile(module, library, example_inputs=(x,), min_bytes=0)
    assert done.report.left == () and len(done.report.regions) == 1
    other = -2 * x
    with byoc.load(library) as model:
        (found,) = model.run({"x": other.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), module(other), rtol=1e-4, atol=1e-5)


class Mixed(nn.Module):
    """Layers of which some run in half precision."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
        self.inside = inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.inside:
            return self.last(self.norm(self.conv(x)).mean((2, 3)))
        with torch.autocast("cpu", torch.bfloat16):
            x = self.norm(self.conv(x)).mean((2, 3))
        return self.last(x.float())


@pytest.mark.parametrize("inside", [False, True])
@torch.no_grad()
def test_autocast(inside: bool) -> None:
    """Statistics in float32 beside halves; and a part of the module alone."""
    module, x = Mixed(inside).eval(), torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
        compiled = torch.compile(module, backend=backend, options=OPTIONS)
        with collected() as graphs:
            found, wanted = compiled(x), module(x)
    require_one_region(graphs, 1)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
