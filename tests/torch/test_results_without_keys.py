"""Results of classes that were registered with PyTorch without keys, as those of diffusers are."""

import numpy as np
import pytest

import byoc

torch = pytest.importorskip("torch")


class Output(dict):
    """A result by names."""


torch.utils._pytree.register_pytree_node(
    Output,
    lambda value: (list(value.values()), list(value)),
    lambda values, names: Output(zip(names, values, strict=True)),
)


class Network(torch.nn.Module):
    """A layer whose result is such an object."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> Output:
        """The result."""
        y = self.layer(x)
        return Output(sample=y.relu(), hidden=y)


def test_names_come_from_the_registered_context(tmp_path):
    torch.manual_seed(0)
    network, x = Network().eval(), torch.randn(5, 8)
    done = byoc.compile(network, tmp_path / "m.so", example_inputs=(x,), min_bytes=0)
    assert len(done.report.regions) == 1
    with byoc.load(tmp_path / "m.so") as library:
        got = library.run({"x": x.numpy()})
    assert set(got) == {"sample", "hidden"}
    for name, want in network(x).items():
        np.testing.assert_allclose(got[name], want.detach().numpy(), rtol=1e-5, atol=1e-5)
