"""Modules that compute derivatives of their own, with an open batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc
from byoc.errors import ModelError


class Energy(nn.Module):
    """A network, and what is computed of it and of the input."""

    def __init__(self, network: nn.Module, computed: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.computed = network, computed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.computed(self.network, x)


def forces(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_(True)
    energy = network(x).sum()
    return -torch.autograd.grad(energy, x, create_graph=True)[0]


def saliency(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(network(x).sum(), x)[0]


def steps(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            network(x).pow(2).sum().backward()
        x = (x - 0.1 * x.grad).detach()
    return x


def slopes(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(torch.func.jacrev(network))(x)


def curvature(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(torch.func.jacfwd(torch.func.grad(lambda row: network(row).sum())))(x)


def learned(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    weight = network[0].weight
    slope = torch.func.grad(lambda w: F.linear(x, w).sigmoid().pow(2).mean())(weight)
    return F.linear(x, weight - slope)


class Attention(nn.Module):
    """Attention of rows to each other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x)


def _layers(*behind: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.SiLU(), *behind, nn.Linear(16, 3))


def _image() -> nn.Module:
    first = (nn.Conv2d(3, 8, 3, stride=2), nn.MaxPool2d(2), nn.Tanh())
    return nn.Sequential(*first, nn.ConvTranspose2d(8, 4, 3), nn.BatchNorm2d(4), nn.Flatten())


CASES = {
    "forces": (_layers(nn.LayerNorm(16)), forces, (6,)),
    "image": (_image(), saliency, (3, 12, 10)),
    "attention": (Attention(), forces, (5, 8)),
    "steps": (_layers(nn.GroupNorm(2, 16)), steps, (6,)),
    "slopes": (_layers(), slopes, (6,)),
    "curvature": (_layers(), curvature, (6,)),
    "learned": (_layers(), learned, (6,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives(tmp_path: Path, name: str) -> None:
    torch.manual_seed(3)
    network, computed, shape = CASES[name]
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.uniform_(0.1, 0.5)
    module, path = Energy(network, computed).eval(), tmp_path / "energy.so"
    axes = ({0: torch.export.Dim("rows")},)
    given = torch.randn(2, *shape)
    report = byoc.compile(
        module, path, example_inputs=(given,), dynamic_shapes=axes, min_bytes=0
    ).report
    assert report.left == () and len(report.regions) == 1
    assert "forward" not in vars(module)
    for rows in (2, 5):
        x = torch.randn(rows, *shape)
        with byoc.load(path) as model:
            (made,) = model.run({"x": x.numpy()}).values()
        wanted = module(x).detach()
        torch.testing.assert_close(torch.from_numpy(made), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sizes_that_the_tracer_fixes() -> None:
    twice = torch.func.hessian(lambda x: x.sin().sum())
    module = Energy(nn.Identity(), lambda _, x: torch.vmap(twice)(x)).eval()
    with pytest.raises(ModelError, match=r"fix them, or write hessian\(f\) as jacrev"):
        byoc.compile(
            module,
            "energy.so",
            example_inputs=(torch.randn(2, 3),),
            dynamic_shapes=({0: torch.export.Dim("rows")},),
        )


def test_failures_that_no_derivative_is_part_of() -> None:
    def computed(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            return x + torch.ones(2, 3)
        raise ValueError("no such cell")

    with pytest.raises(ModelError, match="cannot export Energy: ValueError: no such cell"):
        byoc.compile(
            Energy(nn.Identity(), computed).eval(),
            "energy.so",
            example_inputs=(torch.randn(2, 3),),
            dynamic_shapes=({0: torch.export.Dim("rows")},),
        )
