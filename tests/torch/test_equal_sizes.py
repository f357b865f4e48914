"""Sizes of inputs that must be equal, though nobody said so, have one name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import byoc
from byoc.errors import InputError
from byoc.frontends.torch.equal_sizes import joined_names

AUTO = torch.export.Dim.AUTO


class Masked(torch.nn.Module):
    """A mask of each row for all heads, as diffusers repeat it, and a row of conditions."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        heads = x.reshape(rows, length, 2, -1).transpose(1, 2)
        hidden = mask.repeat_interleave(2, 0).view(rows, 2, -1, length)
        scores = heads @ heads.transpose(2, 3) + hidden
        more = ids.flatten().reshape(rows, -1) @ torch.ones(3, 8)
        return (scores.softmax(-1) @ heads).sum((1, 2)) + more


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("batch", [AUTO, torch.export.Dim("batch")])
def test_a_mask_is_as_long_as_its_batch(batch: object, tmp_path: Path) -> None:
    def given(rows: int, length: int) -> tuple[torch.Tensor, ...]:
        x = torch.randn(rows, length, 16)
        return x, torch.randn(rows, 1, length), torch.randn(rows, 3)

    module, library = Masked().eval(), tmp_path / "masked.so"
    compiled = byoc.compile(
        module,
        library,
        example_inputs=given(3, 5),
        dynamic_shapes=({0: AUTO, 1: AUTO}, {0: AUTO, 2: AUTO}, {0: batch}),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    assert len({info.shape[0] for info in compiled.metadata.inputs}) == 1
    with byoc.load(library) as model:
        for rows, length in ((3, 5), (1, 5), (7, 2)):
            inputs = given(rows, length)
            found = torch.from_numpy(model(*(tensor.numpy() for tensor in inputs)))
            torch.testing.assert_close(found, module(*inputs))
        with pytest.raises(InputError, match="mask"):
            model(*(tensor.numpy() for tensor in (*given(3, 5)[:1], *given(2, 5)[1:])))


class Halved(torch.nn.Module):
    """The second axis is told by a quotient, the first is not."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pairs = y.reshape(y.shape[0] // 2, 2, 4).sum(1)
        rows = x.flatten().repeat(2).reshape(y.shape[0], -1) @ torch.ones(8, 1)
        return rows.flatten() * pairs.repeat(2, 1).sum(1)


@pytest.mark.slow
@torch.no_grad()
def test_both_count_the_same_multiples(tmp_path: Path) -> None:
    module, library = Halved().eval(), tmp_path / "halved.so"
    given = torch.randn(6, 4), torch.randn(6, 4)
    compiled = byoc.compile(
        module,
        library,
        example_inputs=given,
        dynamic_shapes=({0: AUTO}, {0: AUTO}),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 1
    with byoc.load(library) as model:
        for rows in (6, 2, 10):
            inputs = torch.randn(rows, 4), torch.randn(rows, 4)
            found = torch.from_numpy(model(*(tensor.numpy() for tensor in inputs)))
            torch.testing.assert_close(found, module(*inputs))


def test_joined_names() -> None:
    even = ("2 * n % m == 0", "2 * n // m == 2")
    assert joined_names(even, ("n", "m"), {}) == {"n": "m"}
    assert joined_names(even, ("n", "m"), {"s1": "n"}) == {"m": "n"}
    assert joined_names(even, ("n", "m"), {"s1": "n", "s2": "m"}) == {}
    assert joined_names(("2 * n // m == 2",), ("n", "m"), {}) == {}
    assert joined_names((*even, "n == 7"), ("n", "m"), {}) == {}
    assert joined_names(("n == k", "m == k"), ("n", "m", "k"), {"s1": "n"}) == {"k": "n", "m": "n"}
