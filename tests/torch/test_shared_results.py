"""Results of graphs of ``torch.compile`` that share memory with inputs, and with one another."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import byoc
from byoc.errors import FallbackWarning
from byoc.torch_compile.backend import backend
from byoc.torch_compile.graphs import collected

OPTIONS = {"cache": False, "min_bytes": 0}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def _with_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    whole = x * 2
    return whole.T, whole, whole[1:, ::2], x.sum()


def _same_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    made = x.exp()
    return made, made, made.view(-1)


_CASES: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "row_of_an_input": lambda x: (x + 1, x[1]),
    "input_itself": lambda x: (x.to("cpu"), x.exp()),
    "input_turned_and_cut": lambda x: (x.T[1:, ::2], x.exp(), x.unsqueeze(0).expand(3, -1, -1)),
    "views_of_a_result": _with_a_view,
    "same_result_twice": _same_twice,
}


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("case", sorted(_CASES))
@pytest.mark.parametrize("dynamic", [False, True])
def test_views_are_made_of_what_they_are_of(case: str, dynamic: bool) -> None:
    """They have its memory, and a library computes the rest as one graph."""
    function = _CASES[case]
    compiled = torch.compile(function, backend=backend, options=OPTIONS, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for shape in ((4, 6), (5, 8)):
            given = torch.randn(8, 9)[1 : shape[0] + 1, : shape[1]]
            found, wanted = compiled(given), function(given)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
                assert one.stride() == other.stride()
            assert _shared(given, found) == _shared(given, wanted)
    told = byoc.explain(function, (given,), OPTIONS)
    assert [len(part.metadata.report["regions"]) for part in told.graphs[0].parts] == [1]


def _shared(given: torch.Tensor, results: tuple[torch.Tensor, ...]) -> list[int]:
    """The first of the input and the results that has a result's memory, for each."""
    memory = [tensor.untyped_storage().data_ptr() for tensor in (given, *results)]
    return [memory.index(place) for place in memory[1:]]


@pytest.mark.slow
@torch.no_grad()
def test_numbers_beside_them() -> None:
    """Several results are no tensors."""

    def counted(x: torch.Tensor, count: int) -> tuple[object, ...]:
        y = x.exp()
        torch._dynamo.graph_break()
        return y + count, x.shape[0] + count, x.shape[1] * count, y

    compiled = torch.compile(counted, backend=backend, options=OPTIONS, dynamic=True)
    for count in (2, 5):
        given = torch.randn(3 + count, 4)
        found, wanted = compiled(given, count), counted(given, count)
        assert found[1:3] == wanted[1:3]
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_parts_of_what_is_no_result_are_pytorchs() -> None:
    """Each would need memory of which the library gives the other."""

    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = x.exp()
        return made[:2], made[1:]

    compiled = torch.compile(halves, backend=backend, options=OPTIONS)
    with pytest.warns(FallbackWarning, match="shares memory with an input or another result"):
        first, second = compiled(torch.randn(4, 4))
    first.zero_()
    assert not second[0].any()


class Turned(torch.nn.Module):
    """Rotates by complex factors, which it keeps where the data are, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = torch.polar(torch.ones(2, 6), torch.randn(2, 6)).T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.factors = self.factors.to(x.device)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.factors[: x.shape[1]].conj()).flatten(2)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_complex_inputs_are_pairs(dynamic: bool) -> None:
    """And results as they are."""
    module = Turned().eval()
    with collected() as graphs:
        compiled = torch.compile(module, backend=backend, options=OPTIONS, dynamic=dynamic)
        for length in (3, 5, 6) if dynamic else (3,):
            x, factors = torch.randn(2, length, 4), module.factors
            torch.testing.assert_close(compiled(x), module(x))
            assert module.factors.data_ptr() == factors.data_ptr()
    assert graphs and all("byoc: 1 region" in str(part) for g in graphs for part in g.parts)
