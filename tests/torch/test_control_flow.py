"""torch.cond, while_loop, map and scan beside PyTorch, at several sizes and numbers of rounds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_rows

import byoc
from byoc.errors import ByocError

ROWS = {0: torch.export.Dim("rows", min=2)}


class _Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)


class Branches(_Layered):
    """One of two branches, by values and by sizes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        def much(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.layer(a) + b, a.sum(0)

        def little(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (self.layer(b) - a).relu(), torch.ones(16)

        one, other = torch.cond(x.sum() > 0, much, little, (x, y))
        long = torch.cond(x.shape[0] > 4, lambda a: a.exp(), lambda a: a * a.shape[0], (one,))
        return {"one": one, "other": other, "long": long}


class Rounds(_Layered):
    """Rounds until a number is reached, in which another one branches."""

    def forward(self, count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = torch.cond(x.mean() > 0, lambda a: a - 0.3, lambda a: a + 0.5, (x,))
            return i + 1, self.layer(made).tanh()

        start = torch.zeros((), dtype=torch.int64)
        return torch.while_loop(lambda i, x: (i < count) & (x.sum() < 100), body, (start, x))


class Scans(_Layered):
    def forward(self, state: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def body(state: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = (self.layer(state) + x).tanh()
            return made, made * 2

        return scan(body, state, xs, reverse=True)


class Maps(_Layered):
    """What is done to each row. PyTorch does not know how for all rows at once of the second; of
    the third it makes an open number of rows that of the example."""

    def forward(self, xs: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = map_rows(lambda x, y: self.layer(x) + self.layer(y[0]), xs, y)
        counted = map_rows(lambda x: (x > 0).nonzero().sum() + self.layer(x).sum(), xs)
        weight = self.layer.weight[:4, None, :3]
        return made, counted, map_rows(lambda x: nn.functional.conv1d(x[None, :1], weight)[0], xs)


def _require_equal(model: byoc.Model, module: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))
    results = model.run(dict(zip((i.name for i in model.inputs), inputs, strict=True)))
    for expected, result in zip(wanted, results.values(), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), expected, rtol=1e-5, atol=1e-5)


def _compiled(
    module: nn.Module,
    path: str,
    inputs: tuple[torch.Tensor, ...],
    shapes: object = None,
    regions: int | None = None,
) -> byoc.Model:
    made = byoc.compile(
        module.eval(), path, example_inputs=inputs, dynamic_shapes=shapes, min_bytes=0
    )
    assert regions in (None, len(made.report.regions))
    left = {entry.op.partition("(")[0] for entry in made.report.left}
    assert made.report.regions and not left & {"relax.matmul", "relax.tanh", "relax.add"}
    return byoc.load(path)


@pytest.mark.slow
def test_branches(tmp_path: Path) -> None:
    path = str(tmp_path / "branches.so")
    module = Branches()
    model = _compiled(module, path, (torch.randn(5, 16), torch.randn(5, 16)), (ROWS, ROWS))
    for rows, moved in ((3, -5), (3, 5), (7, -5), (7, 5)):
        _require_equal(model, module, torch.randn(rows, 16) + moved, torch.randn(rows, 16))


@pytest.mark.slow
def test_rounds(tmp_path: Path) -> None:
    module, path = Rounds(), str(tmp_path / "rounds.so")
    model = _compiled(module, path, (torch.tensor(5), torch.randn(3, 16)), (None, ROWS))
    for count, rows in ((0, 3), (1, 2), (7, 5), (1500, 3)):
        _require_equal(model, module, torch.tensor(count), torch.randn(rows, 16))


@pytest.mark.slow
@pytest.mark.parametrize("open_", [False, True])
def test_scans(tmp_path: Path, open_: bool) -> None:
    """Few rounds are written out in one region."""
    module, path = Scans(), str(tmp_path / "scans.so")
    example, regions = (torch.randn(3, 16), torch.randn(6, 3, 16)), None if open_ else 1
    model = _compiled(module, path, example, (None, ROWS if open_ else None), regions)
    for rows in (2, 6, 41) if open_ else (6,):
        _require_equal(model, module, torch.randn(3, 16), torch.randn(rows, 3, 16))


@pytest.mark.slow
@pytest.mark.parametrize("open_", [False, True])
def test_maps(tmp_path: Path, open_: bool) -> None:
    module, path = Maps(), str(tmp_path / "maps.so")
    example = (torch.randn(6, 3, 16), torch.randn(3, 16))
    model = _compiled(module, path, example, (ROWS if open_ else None, None))
    for rows in (2, 6, 11) if open_ else (6,):
        _require_equal(model, module, torch.randn(rows, 3, 16), torch.randn(3, 16))


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        start = torch.zeros((), dtype=torch.int64)
        round_ = lambda i, x: (i + 1, x + torch.rand_like(x))  # noqa: E731
        return torch.while_loop(lambda i, x: i < 5, round_, (start, x))


def test_a_loop_that_draws_is_refused() -> None:
    with pytest.raises(ByocError, match="random numbers of a loop"):
        byoc.compile(Draws().eval(), example_inputs=(torch.randn(3, 4),))
