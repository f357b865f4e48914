"""Operators that PyTorch takes apart by itself, of which it keeps a list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import byoc


@pytest.fixture
def registered() -> Iterator[None]:
    """``acme::squared_and`` is registered, after the process has compiled another module."""
    byoc.compile(torch.nn.ReLU().eval(), example_inputs=(torch.randn(2, 3),), min_bytes=0)
    library = torch.library.Library("acme", "FRAGMENT")
    library.define("squared_and(Tensor x, float added) -> Tensor")
    made = lambda x, added: torch.relu(x * x + added)  # noqa: E731
    library.impl("squared_and", made, "CompositeImplicitAutograd")
    yield
    library._destroy()


class Squared(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.acme.squared_and(x, -0.5)


@pytest.mark.usefixtures("registered")
def test_one_that_is_registered_late() -> None:
    compiled = byoc.compile(Squared().eval(), example_inputs=(torch.randn(4, 5),), min_bytes=0)
    assert compiled.report.left == () and len(compiled.report.regions) == 1


def test_pytorch_is_as_it_was() -> None:
    """Outside of compilations its own checks hold again."""
    byoc.compile(torch.nn.ReLU().eval(), example_inputs=(torch.randn(2, 3),), min_bytes=0)
    operator, key = torch.ops.aten.relu.default, torch._C.DispatchKey.PrivateUse3
    kernels = dict(operator.py_kernels)
    operator.py_impl(key)(abs)
    try:
        with pytest.raises(RuntimeError, match="Trying to override"):
            operator.py_impl(key)(abs)
    finally:
        operator.py_kernels.pop(key)
        operator._dispatch_cache.clear()
    assert operator.py_kernels == kernels
