"""Caches that are written at a step: a tensor of one number, without axes."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(4, 6)
        self.register_buffer("kept", torch.zeros(2, 3, 5, 2))

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.kept[:, :, step] = self.keys(x).view(2, 3, 2)
        return self.kept.sum(2)


class Net(nn.Module):
    def __init__(self, cache: type[nn.Module]) -> None:
        super().__init__()
        self.cache = cache()

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.cache(x, step))


class Twice(Cache):
    """Two such places, which no tracer of PyTorch follows."""

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        self.kept[step, :, step] = self.keys(x)[0].view(3, 2)
        return self.kept.sum(2)


def _nets(cache: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(3)
    one, other = Net(cache).eval(), Net(cache).eval()
    other.load_state_dict(one.state_dict())
    return one, other


def test_a_step_is_written_in_its_place(tmp_path: Path) -> None:
    module, wanted = _nets(Cache)
    x, path = torch.randn(2, 4), tmp_path / "net.so"
    compiled = byoc.compile(module, path, example_inputs=(x, torch.tensor(1)), states=True)
    assert len(compiled.report.regions) == 1 and not compiled.report.left
    with byoc.load(path) as library, torch.no_grad():
        for step in (0, 3, -1):
            x, place = torch.randn(2, 4), torch.tensor(step)
            (found,) = library.run({"x": x.numpy(), "step": place.numpy()}).values()
            torch.testing.assert_close(torch.from_numpy(found), wanted(x, place))


@pytest.mark.slow
@pytest.mark.parametrize("cache", [Cache, Twice])
def test_torch_compile_writes_there(cache: type[nn.Module]) -> None:
    """What PyTorch's tracer cannot follow inside of ``torch.compile``'s ended the process."""
    module, wanted = _nets(cache)
    torch.compiler.reset()
    compiled = torch.compile(module, backend="byoc", options={"cache": False})
    with warnings.catch_warnings(record=True) as told, torch.no_grad():
        warnings.simplefilter("always")
        for step in (0, 1, 1):
            x, place = torch.randn(2, 4), torch.tensor(step)
            torch.testing.assert_close(compiled(x, place), wanted(x, place))
    torch.testing.assert_close(module.cache.kept, wanted.cache.kept)
    left = [each for each in told if "Fallback" in each.category.__name__]
    assert bool(left) == (cache is Twice)


class Values(nn.Module):
    """Rows and blocks, with axes behind and before."""

    def forward(self, x: torch.Tensor, step: torch.Tensor, y: torch.Tensor) -> dict[str, object]:
        first, last, inner, number, dots = (x.clone() for _ in range(5))
        first[step] = y[0]
        last[..., step] = y[:, 0]
        inner[1, step, 1:] = y[0, step, 1:]
        number[:, step] = 2.0
        dots[step, ..., 0] = y[0, :, 0]
        return {"first": first, "last": last, "inner": inner, "number": number, "dots": dots}


@pytest.mark.slow
def test_values_beside_it(tmp_path: Path) -> None:
    module, path = Values().eval(), tmp_path / "net.so"
    given = (torch.randn(3, 3, 3), torch.tensor(2), torch.randn(3, 3, 3))
    compiled = byoc.compile(module, path, example_inputs=given, min_bytes=0)
    assert compiled.report.regions
    arrays = {n: t.numpy() for n, t in zip(("x", "step", "y"), given, strict=True)}
    found = byoc.load(path).run(arrays)
    for name, wanted in module(*given).items():
        torch.testing.assert_close(torch.from_numpy(found[name]), wanted, msg=name)


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 8, 3))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        self.kept[:, places] = x * 2
        return self.kept.sum(1)


def test_an_open_number_of_rows_leaves_the_module_as_it_is(tmp_path: Path) -> None:
    """Its answers for a single row are asked for while importing."""
    module, path, rows = Rows().eval(), tmp_path / "net.so", torch.export.Dim("rows")
    given = (torch.randn(2, 4, 3), torch.arange(4))
    shapes = ({1: rows}, {0: rows})
    byoc.compile(module, path, example_inputs=given, dynamic_shapes=shapes, states=True)
    assert not module.kept.any()
    x, places = torch.randn(2, 3, 3), torch.tensor([5, 1, 2])
    (found,) = byoc.load(path).run({"x": x.numpy(), "places": places.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), module(x, places))
