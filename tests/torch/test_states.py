"""Modules that change buffers, such as a cache of fixed length, step by step beside PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import byoc
from byoc.compiler.standalone import compile_standalone
from byoc.errors import ByocError, ControlError, ModelError, RunError
from codegen_cc.emit.source import emit_source
from codegen_cc.plan.builder import Plan
from tests.deploy.standalone_api import Instance

LENGTH, WIDTH, HEADS = 24, 32, 4
LIMIT = 2e-6


class Attention(nn.Module):
    """Attention over a cache of fixed length, two heads of queries for each of keys."""

    def __init__(self, by_slice: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.k, self.v = nn.Linear(WIDTH, WIDTH // 2), nn.Linear(WIDTH, WIDTH // 2)
        shape = (1, HEADS // 2, LENGTH, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape))
        self.by_slice = by_slice

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.by_slice:
            self.keys[:, :, position] = k
            self.values[:, :, position] = v
        else:
            self.keys.index_copy_(2, position, k)
            self.values.index_copy_(2, position, v)
        mask = torch.arange(LENGTH)[None] <= position[:, None]
        found = nn.functional.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        return self.out(found.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of Llama, which stores keys and values as transformers' ``StaticCache`` does."""

    def __init__(self, inner: int = 48) -> None:
        super().__init__()
        depth = WIDTH // HEADS
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, WIDTH, bias=False)
        for name in ("keys", "values"):
            cache = torch.zeros(1, HEADS // 2, LENGTH, depth)
            self.register_buffer(name, cache, persistent=False)

    def forward(
        self, x: torch.Tensor, angles: torch.Tensor, mask: torch.Tensor, place: torch.Tensor
    ) -> torch.Tensor:
        y = self.first(x)
        q, k, v = (
            layer(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = turned(q, angles), turned(k, angles)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        repeated = [
            cache[:, :, None].expand(-1, -1, 2, -1, -1).reshape(1, HEADS, LENGTH, -1)
            for cache in (self.keys, self.values)
        ]
        found = nn.functional.scaled_dot_product_attention(q, *repeated, attn_mask=mask)
        x = x + self.o(found.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Places, as rotary embeddings tell them."""
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-right, left), -1) * angles.sin()


class Llama(nn.Module):
    """A small decoder: tokens and their places in, logits out."""

    def __init__(self, vocabulary: int = 40) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        depth = WIDTH // HEADS
        self.register_buffer("rates", 100.0 ** (-torch.arange(0, depth, 2) / depth))

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        angles = (cache_position[:, None] * self.rates).repeat(1, 2)
        mask = torch.arange(LENGTH)[None] <= cache_position[:, None]
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, angles, mask[None, None], cache_position)
        return self.head(self.norm(x))


class Running(nn.Module):
    """A mean of all rows so far: one state is a number of rows, another one is written anew."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(1, 64))
        self.register_buffer("last", torch.ones(1, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.total.add_(x)
        self.last.copy_(x)
        return self.total / self.count + torch.relu(self.last)


def exported(module: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), inputs, strict=False)


def steps(rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a cache is filled by, some rows at a time."""
    torch.manual_seed(1)
    places = torch.arange(LENGTH).split(rows)
    return [(torch.randn(1, rows, WIDTH), position) for position in places]


def answer(module: nn.Module, *inputs: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return module(*inputs).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("by_slice", [False, True])
def test_a_cache_of_fixed_length(rows: int, by_slice: bool, tmp_path: Path) -> None:
    module, calls = Attention(by_slice).eval(), steps(rows)
    made = byoc.compile(exported(module, *calls[0]), tmp_path / "m.so", states=True)
    assert made.report.left == () and len(made.report.regions) == 1
    assert [info.name for info in made.metadata.inputs] == ["x", "position"]
    assert [state.input.name for state in made.metadata.states] == ["keys", "values"]
    assert {state.kind for state in made.metadata.states} == {"is written in place"}
    assert not module.keys.any()  # nothing has run the module
    with byoc.load(tmp_path / "m.so") as model:
        for x, position in calls:
            want = answer(module, x, position)
            np.testing.assert_allclose(model(x.numpy(), position.numpy()), want, rtol=0, atol=LIMIT)
        for name, state in model.states.items():
            np.testing.assert_allclose(state, getattr(module, name).numpy(), rtol=0, atol=LIMIT)
        other = model.clone()
        model.reset()
        for buffer in module.buffers():
            buffer.zero_()
        x, position = calls[-1]
        want = answer(module, x, position)
        np.testing.assert_allclose(model(x.numpy(), position.numpy()), want, rtol=0, atol=LIMIT)
        assert np.abs(other.states["keys"]).min(axis=(0, 1, 3)).all()  # all rows are filled still


def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of what is compiled from here on."""
    plans: list[Plan] = []

    def emit(made: list[Plan], *more: object) -> str:
        plans.extend(made)
        return emit_source(made, *more)

    monkeypatch.setattr("codegen_cc.module.emit_source", emit)
    return plans


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("kind", [Attention, Llama])
def test_a_step_moves_no_cache(
    kind: type[nn.Module], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token beside PyTorch; but for the rows, nothing of a cache's size is written."""
    module, plans = kind().eval(), planned(monkeypatch)
    calls = steps(rows)
    if kind is Llama:
        calls = [(torch.randint(0, 40, (1, rows)), places) for _, places in calls]
    made = byoc.compile(exported(module, *calls[0]), tmp_path / "m.so", states=True)
    assert made.report.left == () and len(made.report.regions) == 1
    states = made.metadata.states
    assert len(states) == (4 if kind is Llama else 2)
    assert {state.kind for state in states} == {"is written in place"}
    (plan,) = plans
    scatters = [rows.scatter for rows in plan.in_place]
    assert len(scatters) == len(states)
    others = [call for call in plan.calls if not any(call is scatter for scatter in scatters)]
    cache = HEADS // 2 * LENGTH * WIDTH // HEADS
    assert max(tensor.size for call in others for tensor in call.writes) < cache
    places = []
    with byoc.load(tmp_path / "m.so") as model:
        for call in calls:
            want = answer(module, *call)
            found = model(*(tensor.numpy() for tensor in call))
            np.testing.assert_allclose(found, want, rtol=0, atol=LIMIT)
            places.append([state.ctypes.data for state in model.states.values()])
        before = {name: state.copy() for name, state in model.states.items()}
        with pytest.raises(RunError, match="an index lies outside of the axis"):
            model(calls[0][0].numpy(), LENGTH + 1 - rows + np.arange(rows))
        for name, state in model.states.items():
            np.testing.assert_array_equal(state, before[name])
    assert all(place == places[0] for place in places)


def test_a_module_is_exported_with_its_states(tmp_path: Path) -> None:
    module, x = Running().eval(), torch.randn(1, 64)
    made = byoc.compile(module, tmp_path / "m.so", example_inputs=(x,), states=True, min_bytes=0)
    assert made.report.regions and made.report.offloaded
    kept = {state.input.name: state.input.dtype for state in made.metadata.states}
    assert kept == {"count": "int64", "total": "float32"}  # "last" is written before it is read
    module.count.zero_(), module.total.zero_()
    with byoc.load(tmp_path / "m.so") as model:
        for seed in range(4):
            x = torch.randn(1, 64, generator=torch.Generator().manual_seed(seed))
            np.testing.assert_allclose(model(x.numpy()), answer(module, x), rtol=0, atol=LIMIT)
        assert model.states["count"] == 4


@pytest.mark.slow
def test_the_standalone_form_keeps_them(tmp_path: Path) -> None:
    module, calls = Attention().eval(), steps(1)
    program = exported(module, *calls[0])
    done = compile_standalone(program, tmp_path / "c", name="attention", states=True)
    assert {state.kind for state in done.metadata.states} == {"is written in place"}
    assert done.report.left == () and len(done.report.regions) == 1
    with Instance(tmp_path / "c" / "lib" / "libattention.so", threads=1) as model:
        for x, position in calls:
            found = model.answers({"x": x.numpy(), "position": position.numpy()})
            want = answer(module, x, position)
            np.testing.assert_allclose(next(iter(found.values())), want, rtol=0, atol=LIMIT)


@pytest.mark.parametrize("kind", [Attention, Running])
def test_torch_compile_changes_buffers_as_pytorch_does(kind: type[nn.Module]) -> None:
    torch._dynamo.reset()
    eager, compiled = kind().eval(), kind().eval()
    run = torch.compile(compiled, backend="byoc", options={"cache": False})
    calls = steps(1)[:3] if kind is Attention else [(torch.randn(1, 64),) for _ in range(3)]
    with torch.no_grad():
        for call in calls:
            torch.testing.assert_close(run(*call), eager(*call), rtol=0, atol=LIMIT)
            for found, want in zip(compiled.buffers(), eager.buffers(), strict=True):
                torch.testing.assert_close(found, want, rtol=0, atol=LIMIT)


# ---------------------------------------------------------------- refusals


class Changes(nn.Module):
    """A module that changes its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.relu(x @ x)


class SetAgain(nn.Module):
    """A table that is set to itself, as models of transformers move theirs to a device."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table.to(x.device, x.dtype)
        return x @ self.table


class TwoNames(nn.Module):
    """A buffer that is reached by another attribute as well, as in a cache of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = [torch.zeros(4, 4)]
        self.register_buffer("kept", self.cache[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache[0].add_(x)
        return self.cache[0] @ x


def refused(module: nn.Module, *inputs: torch.Tensor, **options: object) -> str:
    with pytest.raises(ByocError) as caught:
        byoc.compile(exported(module, *inputs), **options)
    assert isinstance(caught.value, ModelError) and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_buffer_that_is_set_to_itself_is_no_state(tmp_path: Path) -> None:
    module, x = SetAgain(), torch.randn(3, 32)
    report = byoc.compile(exported(module, x), tmp_path / "m.so", min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    with byoc.load(tmp_path / "m.so") as model, torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(model(x.numpy())), module(x))
    with pytest.raises(ControlError, match="no input has a state's name"):
        byoc.compile(exported(module, x), states=True)


@pytest.mark.slow
def test_what_is_refused() -> None:
    first = steps(1)[0]
    said = refused(Attention(), *first)
    assert (
        said.split("True")[0]
        == "the module changes 'keys' when it runs; byoc.compile keeps it with states="
    )
    module = Attention()
    module.values.fill_(0.5)
    said = refused(module, *first, states=True)
    assert said.startswith("buffer 'values' is not zero at first, as states are; set it to zeros")
    x = torch.randn(4, 4)
    said = refused(Changes(), x)
    assert said.startswith("the module changes input 'x' when it runs; byoc.compile keeps it with")
    with pytest.raises(ControlError, match="the model changes 'x' itself"):
        byoc.compile(exported(Changes(), x), states={"x": "output"})
    backend = {"backend": "byoc", "options": {"states": True, "cache": False}}
    with torch.no_grad(), pytest.raises(Exception, match="option 'states'; the backend byoc has"):
        torch.compile(Running().eval(), **backend)(torch.randn(1, 64))
    said = refused(TwoNames(), x, states=True)
    assert said.startswith("'kept' and ") and said.endswith("export it with strict=True")
