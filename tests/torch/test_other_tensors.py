"""Graphs of torch.func, and of tensors that are made of others, under ``torch.compile``."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from byoc.errors import FallbackWarning
from byoc.torch_compile.backend import backend

OPTIONS = {"cache": False}


class Pair(torch.Tensor):
    """Two tensors that are computed alike."""

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, dtype=first.dtype)

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.first, self.second = first, second

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict, *_: object) -> Pair:
        return Pair(inner["first"], inner["second"])

    @classmethod
    def __torch_dispatch__(
        cls, function: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Pair:
        def of(name: str) -> torch.Tensor:
            taken = pytree.tree_map_only(Pair, lambda pair: getattr(pair, name), (args, kwargs))
            return function(*taken[0], **(taken[1] or {}))

        return Pair(of("first"), of("second"))


pytestmark = pytest.mark.usefixtures("nothing_compiled")


def _compiled(function: Callable[..., object]) -> Callable[..., object]:
    return torch.compile(function, backend=backend, options=OPTIONS)


@torch.no_grad()
def test_tensors_of_others_are_pytorchs() -> None:
    def compute(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).relu()

    pair = Pair(torch.randn(4, 8), torch.randn(4, 8))
    with pytest.warns(FallbackWarning, match="is a Pair, which is made of others; need a"):
        found = _compiled(compute)(pair)
    torch.testing.assert_close(found.first, compute(pair.first))
    torch.testing.assert_close(found.second, compute(pair.second))


@torch.no_grad()
def test_nested_tensors_are_pytorchs() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)], layout=torch.jagged)
    with pytest.warns(FallbackWarning, match="is a NestedTensor"):
        found = _compiled(module)(nested)
    torch.testing.assert_close(found.values(), module(nested).values())


@pytest.mark.slow
@torch.no_grad()
def test_derivatives_are_pytorchs() -> None:
    """A trace that failed within them left PyTorch in forward mode for good."""
    layer = nn.Linear(8, 8).eval()

    def derived(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = torch.func.jvp(lambda y: layer(y).tanh(), (x,), (x * 2,))
        twice = torch.func.hessian(lambda y: layer(y).tanh().sum())(x)
        return (*moved, torch.func.jacfwd(lambda y: layer(y).tanh())(x), twice)

    x = torch.randn(8)
    for _ in range(2):
        with pytest.warns(FallbackWarning, match="derivatives by torch.func"):
            found = _compiled(derived)(x)
        torch.testing.assert_close(found, derived(x))
        torch.compiler.reset()


@torch.no_grad()
@pytest.mark.parametrize("writes_input", [False, True])
def test_batched_tensors_are_written(writes_input: bool) -> None:
    layer = nn.Linear(8, 8).eval()

    def write(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda y: (y.mul_(2) if writes_input else layer(y)).relu_() + 1)(x)

    mine = torch.randn(3, 8)
    theirs = mine.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = _compiled(write)(mine)
    torch.testing.assert_close(found, write(theirs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine, theirs)


@torch.no_grad()
def test_a_graph_is_not_split_where_it_batches() -> None:
    layer = nn.Linear(8, 8).eval()

    def batched(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda y: torch.igamma(y.abs() + 1, y.abs()) + layer(y))(x)

    x = torch.randn(3, 8)
    with pytest.warns(FallbackWarning, match="PyTorch runs a graph: no converter for aten.igamma"):
        found = _compiled(batched)(x)
    torch.testing.assert_close(found, batched(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        found = _compiled(lambda x: torch.vmap(lambda y: layer(y).softmax(-1))(x))(x)
    torch.testing.assert_close(found, layer(x).softmax(-1), rtol=1e-4, atol=1e-5)
