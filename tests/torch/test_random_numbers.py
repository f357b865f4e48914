"""Random operators: numbers of the library's own, as they are spread in PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import byoc
from byoc.errors import FallbackWarning

COUNT = 20000


class Drawn(nn.Module):
    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "uniform": torch.rand_like(x),
            "uniform_between": torch.empty(COUNT).uniform_(-3, 5),
            "normal": torch.randn_like(x) * 2 + 1,
            "normal_of": torch.normal(x, 0.5),
            "normal_in_place": torch.empty(COUNT).normal_(3.0, 0.1),
            "halves": torch.rand(COUNT).half(),
            "doubles": torch.randn(COUNT, dtype=torch.float64),
            "integers": torch.randint(3, 9, (COUNT,)),
            "integers_like": torch.randint_like(x, 7),
            "permutation": torch.randperm(COUNT),
            "truths": torch.bernoulli(torch.full((COUNT,), 0.3)),
            "certain": torch.bernoulli(torch.ones(COUNT)),
            "exponential": torch.empty(COUNT).exponential_(2.0),
            "chosen": torch.multinomial(weights.expand(COUNT, 4), 1),
            "chosen_again": torch.multinomial(weights, COUNT, replacement=True),
            "gumbel": F.gumbel_softmax(x[:, None] * torch.ones(4), hard=True),
        }


@pytest.mark.slow
def test_numbers_are_spread_as_pytorch_spreads_them(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, library = Drawn().eval(), tmp_path / "drawn.so"
    example = torch.zeros(COUNT), torch.tensor([[0.1, 0.2, 0.0, 0.7]])
    compiled = byoc.compile(module, library, example_inputs=example, min_bytes=0)
    assert compiled.report.regions
    with byoc.load(library) as model:
        feed = {"x": example[0].numpy(), "weights": example[1].numpy()}
        found, again = model.run(feed), model.run(feed)
    for name, wanted in module(*example).items():
        numbers = found[name]
        assert numbers.dtype == wanted.numpy().dtype and numbers.shape == wanted.shape
        np.testing.assert_array_equal(numbers, again[name])
        numbers, wanted = numbers.astype(float), wanted.double().numpy()
        spread = wanted.std()
        assert abs(numbers.mean() - wanted.mean()) <= 0.05 * spread, name
        assert abs(numbers.std() - spread) <= 0.05 * spread, name
        if spread and len(np.unique(wanted)) < 10:
            np.testing.assert_array_equal(np.unique(numbers), np.unique(wanted))
    assert sorted(found["permutation"].tolist()) == list(range(COUNT))
    assert not np.array_equal(found["uniform"], found["halves"].astype(np.float32))


@pytest.mark.parametrize("draw", ["normal_", "uniform_", "bernoulli_", "exponential_"])
def test_what_is_drawn_in_place_alone_is_not_compared(draw: str, tmp_path: Path) -> None:
    """As the noise of StyleGAN's layers is."""

    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.tanh() + getattr(x.new_empty(x.shape), draw)()

    given = torch.zeros(64, 64)
    done = byoc.compile(Noisy().eval(), tmp_path / "net.so", example_inputs=(given,), min_bytes=0)
    assert len(done.report.regions) == 1 and done.report.offloaded >= 2
    with byoc.load(tmp_path / "net.so") as model:
        found = model(given)
    wanted = getattr(torch.empty(64, 64), draw)().numpy()
    assert abs(found.mean() - wanted.mean()) <= 0.1 * wanted.std()


def test_several_are_chosen_without_repeats(tmp_path: Path) -> None:
    class Several(nn.Module):
        def forward(self, weights: torch.Tensor) -> torch.Tensor:
            return torch.multinomial(weights, 3)

    weights = torch.tensor([[0.1, 0.2, 0.0, 0.7]]).expand(500, 4).contiguous()
    byoc.compile(Several().eval(), tmp_path / "several.so", example_inputs=(weights,))
    with byoc.load(tmp_path / "several.so") as model:
        places = model.run({"weights": weights.numpy()})["output"]
    assert all(set(row) == {0, 1, 3} for row in places.tolist())


@pytest.mark.slow
def test_torch_compile_leaves_them_to_pytorch() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + torch.rand_like(x)

    torch.manual_seed(2)
    module = Noisy().eval()
    compiled = torch.compile(module, backend="byoc", options={"cache": False, "min_bytes": 0})
    x = torch.randn(4, 8)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="rand_like"):
        torch.manual_seed(5)
        found = compiled(x)
        torch.manual_seed(5)
        torch.testing.assert_close(found, module(x))
