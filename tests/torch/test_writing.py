"""Tensors that a graph of ``torch.compile`` writes: the library stores in them, as PyTorch does."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import byoc
from byoc.errors import FallbackWarning
from byoc.torch_compile.backend import backend
from byoc.torch_compile.graphs import Graph, collected

OPTIONS = {"cache": False, "min_bytes": 0}


pytestmark = pytest.mark.usefixtures("nothing_compiled")


class Remembering(nn.Module):
    """Attention to a cache of fixed addresses, which each call writes, as static caches are."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out = nn.Linear(8, 24, dtype=dtype), nn.Linear(8, 8, dtype=dtype)
        self.keys, self.values = (torch.zeros(1, 6, 8, dtype=dtype) for _ in range(2))
        self.register_buffer("count", torch.tensor(0))
        for tensor in (self.keys, self.values, self.count):
            torch._dynamo.mark_static_address(tensor)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None, torch.Tensor]:
        query, key, value = self.into(x).split(8, 2)
        self.keys.index_copy_(1, self.count[None], key)
        self.values.index_copy_(1, self.count[None], value)
        self.count += 1
        shown = torch.arange(6)[None] < self.count
        made = nn.functional.scaled_dot_product_attention(query, self.keys, self.values, shown)
        return self.out(made), None, self.keys[:, :, 2:4]


def compiled_alone(model: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    """A model compiled; whoever calls it gets an error where PyTorch runs a part."""
    made = torch.compile(model, backend=backend, options=OPTIONS, **keywords)

    def call(*inputs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            return made(*inputs)

    return call


def states_of(graphs: list[Graph]) -> list[bool]:
    """Of each state of the only graph's only region, whether it is written where it lies."""
    (graph,) = graphs
    (part,) = graph.parts
    assert part.metadata is not None
    assert len(part.metadata.report["regions"]) == 1 and not part.metadata.report["left"]
    return [state.in_place for state in part.metadata.states]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rows_of_a_static_cache_are_stored_where_it_lies(dtype: torch.dtype) -> None:
    module, other = Remembering(dtype).eval(), Remembering(dtype).eval()
    compiled = compiled_alone(module)
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 0.02, "atol": 0.02}
    with collected() as graphs:
        for _ in range(3):
            x = torch.randn(1, 1, 8, dtype=dtype)
            found, wanted = compiled(x), other(x)
            torch.testing.assert_close(found[0], wanted[0], **near)
            torch.testing.assert_close(found[2], wanted[2], **near)
            assert found[2].data_ptr() == module.keys.data_ptr() + 2 * dtype.itemsize  # a view
    assert sorted(states_of(graphs)) == [False, True, True]  # the count is written anew
    for name in ("keys", "values", "count"):
        torch.testing.assert_close(getattr(module, name), getattr(other, name), **near)
    with pytest.raises(Exception, match=r"out of bounds|outside"):
        for _ in range(4):
            compiled(torch.randn(1, 1, 8, dtype=dtype))


class Total(nn.Module):
    """A sum that grows, in a buffer, and another graph's constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total[1:3].add_(x[1:3])
        return torch.relu(x) * 2


@torch.no_grad()
def test_another_library_notices_what_was_written() -> None:
    module, x = Total().eval(), torch.randn(4, 8)
    write = compiled_alone(module)
    read = torch.compile(lambda x: torch.exp(x) + module.total, backend=backend, options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close(read(x), torch.exp(x) + module.total)
    total = module.total.clone()
    write(x)
    total[1:3] += x[1:3]
    torch.testing.assert_close(module.total, total)
    torch.testing.assert_close(read(x), torch.exp(x) + total)


def stored(cache: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A cache that is an input."""
    cache.index_copy_(0, place, rows * 2)
    return torch.tanh(cache) + 1


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("dynamic", [None, True])
def test_inputs_of_any_layout_and_size_are_written(dynamic: bool | None) -> None:
    compiled = compiled_alone(stored, dynamic=dynamic)
    place = torch.tensor([2, 0])
    with collected() as graphs:
        for rows, columns in ((5, 8), (5, 8), (7, 6)):
            for dense in (True, False):
                cache, values = torch.randn(columns, rows).T, torch.randn(2, columns)
                cache = cache.contiguous() if dense else cache
                other = cache.clone()
                found, wanted = compiled(cache, values, place), stored(other, values, place)
                torch.testing.assert_close(found, wanted)
                torch.testing.assert_close(cache, other)
    assert all(states_of([graph]) == [True] for graph in graphs)


@torch.no_grad()
def test_tensors_that_share_memory_are_pytorchs() -> None:
    """Of views that overlap, what the one is written the other reads."""

    def first_rows(cache: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        cache.add_(1)
        return torch.tanh(other) * 2

    compiled = torch.compile(first_rows, backend=backend, options=OPTIONS)
    for _ in range(2):
        whole, x = torch.zeros(6, 8), torch.randn(4, 8)
        torch.testing.assert_close(compiled(whole[:4], x), torch.tanh(x) * 2)
        assert whole.sum() == 32
    whole = torch.zeros(6, 8)
    with pytest.warns(FallbackWarning, match="a tensor that it writes shares memory"):
        found = compiled(whole[:4], whole[2:])
    torch.testing.assert_close(found, torch.tanh(whole[2:]) * 2)
    assert found.sum() > 0


@pytest.mark.slow
@torch.no_grad()
def test_each_small_number_has_its_library() -> None:
    """PyTorch's tracer supposes that open numbers are 2 or more."""
    x = torch.randn(8, 4)
    compiled = compiled_alone(lambda x, count: torch.exp(x) * count + count, dynamic=True)
    for count in (5, 1, 0, 7, 1, 0):
        torch.testing.assert_close(compiled(x, count), torch.exp(x) * count + count)


def test_a_module_that_writes_an_input_keeps_it(tmp_path: Path) -> None:
    class Storing(nn.Module):
        def forward(self, cache: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> Any:
            return stored(cache, rows, place)

    inputs = (torch.zeros(5, 8), torch.randn(2, 8), torch.tensor([1, 3]))
    with pytest.raises(byoc.ByocError, match=r"changes input 'cache' .* states=True"):
        byoc.compile(Storing().eval(), example_inputs=inputs)
    done = byoc.compile(
        Storing().eval(), tmp_path / "m.so", example_inputs=inputs, states=True, verify=True,
        min_bytes=0,
    )  # fmt: skip
    assert [state.in_place for state in done.metadata.states] == [True] and not inputs[0].any()
    cache = torch.zeros(5, 8)
    with byoc.load(tmp_path / "m.so") as model:
        for _ in range(2):
            rows, place = torch.randn(2, 8), torch.randperm(5)[:2]
            (found,) = model.run({"rows": rows, "place": place}).values()
            wanted = stored(cache, rows, place)
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


class Unsqueezed(nn.Module):
    """A view of the input gets another axis in place, as in WeSpeaker's ResNet."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = x.permute(0, 2, 1)
        return turned.unsqueeze_(1).sin() * 2


@torch.no_grad()
def test_views_that_get_another_axis_write_nothing(tmp_path: Path) -> None:
    module, path = Unsqueezed().eval(), tmp_path / "m.so"
    report = byoc.compile(module, path, example_inputs=(torch.randn(2, 5, 8),), min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    x = torch.randn(2, 5, 8)
    with byoc.load(path) as model:
        torch.testing.assert_close(torch.from_numpy(model(x)), module(x))


@torch.no_grad()
def test_torch_compile_takes_views_that_get_another_axis() -> None:
    module = Unsqueezed().eval()
    compiled = compiled_alone(module)
    for length in (5, 6, 7):  # with an open axis, too
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(compiled(x), module(x))
        assert x.shape == (2, length, 8)


@torch.no_grad()
def test_graphs_that_give_tensors_other_axes_are_not_split() -> None:
    def with_more(x: torch.Tensor) -> torch.Tensor:
        turned = x.permute(0, 2, 1)
        more = torch.igamma(turned.abs(), turned.abs()).sin() * 2
        return turned.unsqueeze_(1).sin() * 2 + more

    x = torch.randn(2, 5, 8)
    compiled = torch.compile(with_more, backend=backend, options=OPTIONS)
    with pytest.warns(FallbackWarning, match=r"a graph: no converter for aten\.igamma"):
        found = compiled(x)
    torch.testing.assert_close(found, with_more(x))


class Data(nn.Module):
    """``.data`` as older code has it: of an input, of a result, and for a new tensor."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.data[:, 0] = 5
        y = torch.relu(x)
        y.data.add_(1)
        return y + x.data.new(x.shape[0], 1).fill_(2), x.data


@torch.no_grad()
def test_data_of_tensors() -> None:
    """It is no constant; where PyTorch writes through it, so does a library."""
    module = Data().eval()
    with collected() as graphs:
        compiled = torch.compile(module, backend="byoc", options={"cache": False})
        given = torch.randn(3, 4), torch.randn(3, 4)
        for x in given:
            wanted = x.clone()
            expected, _ = module(wanted)
            found, itself = compiled(x)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(x, wanted)
            assert itself.data_ptr() == x.data_ptr()
    ((part,),) = (graph.parts for graph in graphs)
    assert "byoc: 1 region" in str(part)
