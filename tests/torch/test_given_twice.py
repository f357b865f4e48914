"""Example inputs of which one tensor is given in several places."""

from __future__ import annotations

from pathlib import Path

import torch

import byoc


@torch.no_grad()
def test_others_may_be_given_in_its_places(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.rand(2, 5, 16)
    done = byoc.compile(module, tmp_path / "m.so", example_inputs=(x, x, x))
    assert done.report.left == () and len(done.report.regions) == 1
    given = [torch.rand(2, 5, 16) for _ in range(3)]
    with byoc.load(tmp_path / "m.so") as compiled:
        result = compiled(*(part.numpy() for part in given))[0]
    torch.testing.assert_close(torch.from_numpy(result), module(*given)[0])


@torch.no_grad()
def test_within_a_list(tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
            return (parts[0] - 2 * parts[1]).exp()

    x = torch.rand(3, 4)
    byoc.compile(Module().eval(), tmp_path / "m.so", example_inputs=([x, x],))
    given = [torch.rand(3, 4) for _ in range(2)]
    with byoc.load(tmp_path / "m.so") as compiled:
        result = compiled(*(part.numpy() for part in given))
    torch.testing.assert_close(torch.from_numpy(result), Module()(given))
