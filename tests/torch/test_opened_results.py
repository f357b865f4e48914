"""Results of classes that PyTorch does not know: their tensors are the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ModelError


class Layer:
    """Keys and values of a layer, and what is no tensor."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, owner: object) -> None:
        self.keys, self.values, self.rows, self.owner = keys, values, 5, owner


class Cache:
    """Layers, the first of which is empty, that know their cache."""

    def __init__(self) -> None:
        self.layers: list[Layer | None] = [None]
        self.seen = {"sum": 3}


@dataclass
class Answer:
    """A result that is not told to PyTorch."""

    logits: torch.Tensor
    cache: Cache
    loss: torch.Tensor | None = None


class Decoder(nn.Module):
    """A layer that gives its cache beside what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.head = nn.Linear(8, 16), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[Answer, torch.Tensor]:
        keys, values = self.both(x).chunk(2, -1)
        cache = Cache()
        cache.layers.append(Layer(keys, values.tanh(), cache))
        return Answer(self.head(keys * values), cache), keys.mean(-1)


@torch.no_grad()
def test_tensors_of_objects_are_outputs(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, path = Decoder().eval(), tmp_path / "decoder.so"
    axes = ({0: torch.export.Dim("rows")},)
    report = byoc.compile(
        module, path, example_inputs=(torch.randn(3, 8),), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    assert "forward" not in vars(module)
    x = torch.randn(5, 8)
    answer, mean = module(x)
    layer = answer.cache.layers[1]
    wanted = {
        "output.0.logits": answer.logits,
        "output.0.cache.layers.1.keys": layer.keys,
        "output.0.cache.layers.1.values": layer.values,
        "output.1": mean,
    }
    with byoc.load(path) as model:
        found = model.run({"x": x.numpy()})
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(torch.from_numpy(found[name]), tensor, rtol=1e-5, atol=1e-6)


class Policy(nn.Module):
    """A normal distribution, which checks what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
        mean, spread = self.layer(x).chunk(2, -1)
        return torch.distributions.Normal(mean, spread.exp())


@torch.no_grad()
def test_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it checks, no tracer can follow. ``torch.compile`` leaves checks off in its process."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    torch.manual_seed(3)
    module, x, path = Policy().eval(), torch.randn(3, 8), tmp_path / "policy.so"
    report = byoc.compile(module, path, example_inputs=(x,), min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    with pytest.raises(ValueError, match="satisfy the constraint"):
        torch.distributions.Normal(0.0, -1.0)
    with byoc.load(path) as model:
        found = model.run({"x": x.numpy()})
    assert list(found) == ["loc", "scale"]
    for name, made in found.items():
        torch.testing.assert_close(torch.from_numpy(made), getattr(module(x), name))


class Dotted(nn.Module):
    """Results of which two keys, with what is nested in them, are one name."""

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        return {"a": [x.tanh(), x.exp()], "a.0": x.sin(), "a.0_1": x.cos()}


@torch.no_grad()
def test_names_alike(tmp_path: Path) -> None:
    x, path = torch.randn(3, 8), tmp_path / "dotted.so"
    report = byoc.compile(Dotted().eval(), path, example_inputs=(x,), min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    with byoc.load(path) as model:
        found = model.run({"x": x.numpy()})
    wanted = {"a.0": x.tanh(), "a.1": x.exp(), "a.0_2": x.sin(), "a.0_1": x.cos()}
    assert list(found) == list(wanted)
    for name, made in found.items():
        torch.testing.assert_close(torch.from_numpy(made), wanted[name], rtol=1e-5, atol=1e-6)


class Sized(nn.Module):
    """Rows and how long they are, as a number of Python's."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, str]:
        return x.tanh(), x.shape[1], "rows"


@pytest.mark.parametrize("axes, told", [(None, "8"), (({1: torch.export.Dim("n")},), "a size")])
def test_numbers_beside_tensors(axes: object, told: str) -> None:
    match = f"output 'output.1' is {told}; need tensors, which torch.tensor makes of a number"
    with pytest.raises(ModelError, match=match):
        byoc.compile(
            Sized().eval(), "sized.so", example_inputs=(torch.randn(3, 8),), dynamic_shapes=axes
        )
