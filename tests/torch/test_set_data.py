"""Data that tensors are given, which PyTorch's tracer drops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ModelError

Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Module(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.asked = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.asked(self, x)


def _twice(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = module.layer(x)
    first = y[:1]  # of what it was
    y.data = torch.relu(y) * 2
    return y + first


def _fewer(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = module.layer(x)
    y.data = y[:2].data * 3
    return y + 1


def _of_its_own(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = module.layer(x)
    y.data *= 3
    return y + 1


@pytest.mark.parametrize("forward", [_twice, _fewer, _of_its_own])
@torch.no_grad()
def test_data_of_values(forward: Forward, tmp_path: Path) -> None:
    module, given, library = Module(forward).eval(), torch.randn(4, 8), tmp_path / "set.so"
    done = byoc.compile(module, library, example_inputs=(given,), verify=False)
    assert len(done.report.regions) == 1 and done.report.left == ()
    with byoc.load(library) as model:
        torch.testing.assert_close(torch.from_numpy(model(given)), module(given))


def _of_a_weight(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    module.layer.weight.data = module.layer.weight * 2
    return module.layer(x)


def _of_an_input(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x.data = x * 2
    return module.layer(x)


@pytest.mark.parametrize(("forward", "name"), [(_of_a_weight, "layer.weight"), (_of_an_input, "x")])
@torch.no_grad()
def test_data_of_weights_and_inputs_are_refused(
    forward: Forward, name: str, tmp_path: Path
) -> None:
    module = Module(forward).eval()
    with pytest.raises(ModelError, match=f"the code sets '{name}'.data"):
        byoc.compile(module, tmp_path / "set.so", example_inputs=(torch.randn(4, 8),), verify=False)


@torch.no_grad()
def test_a_program_that_lost_data_is_refused(tmp_path: Path) -> None:
    program = torch.export.export(Module(_twice).eval(), (torch.randn(4, 8),))
    with pytest.raises(ModelError, match="the code sets 'linear'"):
        byoc.compile(program, tmp_path / "set.so", verify=False)
