"""Results as large as the values say, beside PyTorch, at several sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import byoc


class Chosen(nn.Module):
    """Rows, columns, elements and places that masks pick, and distinct elements."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        rows = x[x[:, 0] > 0]
        distinct, which, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
        return {
            "rows": torch.relu(self.inner(rows)),
            "sum": x[x > 0.5].sum() + 1,
            "columns": x[:, x.sum(0) > 0] * 2,
            "selected": x.masked_select(x[:, :1] > 0) * 3,
            "nonzero": x.floor().nonzero(),
            "fixed": self.inner(x)[:, :4][:, self.mask] * 2,
            "halves": torch.unique(x.bfloat16().round()).float(),
            "along": torch.where(x > 0)[1] + 1,
            "distinct": distinct * 2,
            "alone": torch.unique(x.round()),
            "which": which,
            "counts": counts,
        }


def _left_of(module: nn.Module, library: Path) -> set[str]:
    """The operators that TVM computes of a module whose results are PyTorch's at all sizes."""
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(6, 4),),
        dynamic_shapes=({0: torch.export.Dim("rows")},),
        min_bytes=0,
    )
    with byoc.load(library) as model:
        for x in (torch.randn(6, 4), torch.randn(9, 4), -torch.rand(3, 4), torch.rand(1, 4) + 1):
            found = model.run({"x": x.numpy()})
            for name, wanted in module(x).items():
                torch.testing.assert_close(torch.from_numpy(found[name]), wanted)
    return {entry.op for entry in compiled.report.left}


class PutBack(nn.Module):
    """What was computed of rows and elements that a mask picks is put where they were."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        rows, elements, odd = x[:, 0] > 0, x > 0.5, (x[:, 1] * 7).long()
        made, each, alike = x * 1, x * 2, x * 3
        made[rows] = self.inner(x[rows])
        each[elements] = x[elements].exp()
        alike[rows] = torch.arange(4.0)
        counts = torch.bincount(odd.clamp(0, 5), minlength=3)
        shares = torch.bincount(odd.clamp(0, 5), x[:, 2], minlength=9)
        return {"made": made, "each": each, "alike": alike, "counts": counts, "shares": shares}


@pytest.mark.slow
@torch.no_grad()
def test_rows_that_are_put_back(tmp_path: Path) -> None:
    torch.manual_seed(5)
    left = _left_of(PutBack().eval(), tmp_path / "put.so")
    assert left <= {"relax.nonzero", "relax.tensor_to_shape"}


class Lengths(nn.Module):
    """Frames of lengths that are computed, as voices of networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        lengths = (x > 0).sum(1).clamp(min=1)
        at = torch.arange(lengths.max())
        mask = (at < lengths[:, None]).float()
        frames = self.inner(at[:, None] * x[:1]) * torch.zeros(lengths.sum(), 1).cos().mean()
        return {"mask": mask * 2, "frames": frames}


@pytest.mark.slow
@torch.no_grad()
def test_sizes_that_are_read(tmp_path: Path) -> None:
    torch.manual_seed(7)
    left = _left_of(Lengths().eval(), tmp_path / "lengths.so")
    assert left == {"relax.tensor_to_shape"}


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * (10 * x.sum()).long().item()


def test_a_number_that_may_be_below_0(tmp_path: Path) -> None:
    """It computes with tensors, and is no size."""

    class Rolled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp().roll(x.sum().long().item(), 0)

    module, x = Scaled().eval(), torch.randn(6, 4)
    report = byoc.compile(module, tmp_path / "m.so", example_inputs=(x,), min_bytes=0).report
    assert len(report.regions) == 1 and report.left == ()
    with byoc.load(tmp_path / "m.so") as model:
        for given in (x, -x, x * 0):
            found = torch.from_numpy(model(given.numpy()))
            torch.testing.assert_close(found, module(given), rtol=1e-4, atol=1e-5)
    with pytest.raises(byoc.ByocError):
        byoc.compile(Rolled().eval(), example_inputs=(x,))


@torch.no_grad()
class Padded(nn.Module):
    """Rows that are padded to the longest one, which is asked for as a number of Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> dict[str, torch.Tensor]:
        longest = int(lengths.max().item())
        mask = torch.arange(longest)[None] < lengths[:, None]
        return {"made": self.layer(x) * mask[..., None], "mask": mask}


@pytest.mark.slow
def test_a_size_as_a_number_of_pythons(tmp_path: Path) -> None:
    """One of PyTorch's tracers cannot follow ``int`` of a value."""
    torch.manual_seed(3)
    module, path = Padded().eval(), tmp_path / "padded.so"
    given = torch.randn(3, 7, 8), torch.tensor([7, 3, 2])
    auto = torch.export.Dim.AUTO
    axes = ({0: auto, 1: auto}, {0: auto})
    report = byoc.compile(
        module, path, example_inputs=given, dynamic_shapes=axes, min_bytes=0
    ).report
    assert {left.op for left in report.left} <= {"relax.tensor_to_shape"} and report.regions
    x, lengths = torch.randn(4, 9, 8), torch.tensor([2, 9, 1, 1])
    with byoc.load(path) as model:
        assert [info.name for info in model.inputs] == ["x", "lengths"]
        found = model.run({"x": x.numpy(), "lengths": lengths.numpy()})
    with torch.no_grad():
        for name, wanted in module(x, lengths).items():
            torch.testing.assert_close(torch.from_numpy(found[name]), wanted)


@pytest.mark.slow
def test_sizes_that_values_decide(tmp_path: Path) -> None:
    torch.manual_seed(3)
    module, library = Chosen().eval(), tmp_path / "chosen.so"
    rows = torch.export.Dim("rows")
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(6, 4),),
        dynamic_shapes=({0: rows},),
        min_bytes=0,
    )
    assert {entry.op for entry in compiled.report.left} == {"relax.nonzero", "relax.unique"}
    assert any("inner" in node["name"] for node in compiled.report.to_json()["nodes"])
    with byoc.load(library) as model:
        assert model.outputs[0].shape == ("count0", 5)
        for x in (torch.randn(6, 4), torch.randn(9, 4), -torch.rand(3, 4), torch.rand(1, 4) + 1):
            found, wanted = model.run({"x": x.numpy()}), module(x)
            assert list(found) == list(wanted)
            for name, tensor in wanted.items():
                torch.testing.assert_close(torch.from_numpy(found[name]), tensor)


class Repeated(nn.Module):
    """Rows as often as each says, as speech repeats its sounds, and what is left of repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor, often: torch.Tensor) -> dict[str, torch.Tensor]:
        whole = torch.repeat_interleave(x, often, dim=0)
        different, which, counts = torch.unique_consecutive(
            whole.argmax(1), return_inverse=True, return_counts=True
        )
        return {
            "whole": torch.relu(self.inner(whole)),
            "fixed": torch.repeat_interleave(x, torch.tensor([2, 0, 1, 3]), dim=1) * 2,
            "known": torch.repeat_interleave(x[0], 2 + 0 * often[:4], output_size=8) + 1,
            "different": different + 1,
            "which": which,
            "counts": counts,
        }


@pytest.mark.slow
@torch.no_grad()
def test_rows_are_repeated(tmp_path: Path) -> None:
    torch.manual_seed(4)
    module, library, rows = Repeated().eval(), tmp_path / "r.so", torch.export.Dim("rows", min=4)
    compiled = byoc.compile(
        module,
        library,
        example_inputs=(torch.randn(6, 4), torch.tensor([1, 2, 0, 3, 1, 1])),
        dynamic_shapes=({0: rows}, {0: rows}),
        min_bytes=0,
    )
    assert {e.op for e in compiled.report.left} == {"relax.nonzero", "relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for often in ([1, 2, 0, 3, 1, 1], [0, 4, 0, 1], [1] * 9, [0, 0, 0, 0, 5]):
            x, count = torch.randn(len(often), 4).round(), torch.tensor(often)
            found, wanted = model.run({"x": x.numpy(), "often": count.numpy()}), module(x, count)
            for name, tensor in wanted.items():
                torch.testing.assert_close(torch.from_numpy(found[name]), tensor)


class Lengthened(nn.Module):
    """FastSpeech's regulator of lengths, and a Transformer layer over what it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        often = x.mean(-1).exp().round().clamp(min=1).long()
        ends, last = often.cumsum(1), torch.arange(often.sum(1).max())
        path = (last[None, None] < ends[..., None]).float()
        path = path - nn.functional.pad(path, (0, 0, 1, 0))[:, :-1]
        return self.decoder(path.transpose(1, 2) @ x)


@pytest.mark.slow
@torch.no_grad()
def test_attention_over_rows_that_are_counted(tmp_path: Path) -> None:
    torch.manual_seed(5)
    module, library = Lengthened().eval(), tmp_path / "l.so"
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("rows")},)
    example = (2 * torch.randn(2, 6, 16),)
    compiled = byoc.compile(module, library, example_inputs=example, dynamic_shapes=shapes)
    assert {e.op for e in compiled.report.left} == {"relax.tensor_to_shape"}
    with byoc.load(library) as model:
        for x in (*example, torch.randn(3, 9, 16)):
            found = model.run({"x": x.numpy()})["output"]
            torch.testing.assert_close(torch.from_numpy(found), module(x), atol=1e-5, rtol=1e-4)


def test_a_mask_beside_places_is_refused() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x[:, 0] > 0, torch.tensor([1])] * 2

    with pytest.raises(byoc.ByocError, match="need the mask alone"):
        byoc.compile(Both().eval(), example_inputs=(torch.ones(4, 4),))


class SelectedBeside(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.masked_select(mask) * 2


def test_a_mask_of_open_sizes_of_its_own(tmp_path: Path) -> None:
    """The tracer leaves it to the call that the tensor and the mask are as long."""
    module, library = SelectedBeside().eval(), tmp_path / "selected.so"
    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    given = torch.randn(6, 4), torch.randn(6, 4) > 0
    compiled = byoc.compile(
        module, library, example_inputs=given, dynamic_shapes=(sizes, sizes), min_bytes=0
    )
    assert len(compiled.report.regions) == 1
    assert {entry.op for entry in compiled.report.left} == {
        "relax.nonzero",
        "relax.reshape",  # which compares the sizes
    }
    with byoc.load(library) as model:
        for shape in ((6, 4), (3, 7)):
            x, mask = torch.randn(shape), torch.randn(shape) > 0
            found = torch.from_numpy(model(x.numpy(), mask.numpy()))
            torch.testing.assert_close(found, module(x, mask))
