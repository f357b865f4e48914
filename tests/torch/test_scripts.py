"""Modules of TorchScript: scripted, traced, frozen and saved ones, whole and within others."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
import torch
from torch import nn

import byoc
from byoc.errors import ModelError


class Layers(nn.Module):
    """A convolution and a layer, with sizes read and a loop between them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.layer = nn.Conv1d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, rows: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.convolution(rows).relu()
        for step in range(x.shape[0]):
            x = x + step
        return {"made": self.layer(x.mean(-1)) * scale}


def _saved(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


class Within(nn.Module):
    """A module with another one in it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.inner(rows, scale)["made"] + 1


def _given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return torch.randn(2, 3, 9), torch.randn(4)


def _script(kind: str) -> torch.jit.ScriptModule:
    module = Layers().eval()
    if kind == "traced":
        return torch.jit.trace(module, _given(), strict=False)
    script = torch.jit.script(module)
    return {"scripted": lambda x: x, "saved": _saved, "frozen": torch.jit.freeze}[kind](script)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["scripted", "saved", "frozen", "traced"])
@pytest.mark.parametrize("within", [False, True], ids=["whole", "within"])
def test_scripts(tmp_path: Path, kind: str, within: bool) -> None:
    script, given, path = _script(kind), _given(), tmp_path / "script.so"
    module = Within(script).eval() if within else script
    report = byoc.compile(module, path, example_inputs=given, min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    if within:
        assert module.inner is script
    wanted = module(*given) if within else module(*given)["made"]
    with byoc.load(path) as model:
        assert [info.name for info in model.inputs] == ["rows", "scale"]
        found = model.run(dict(zip(["rows", "scale"], (x.numpy() for x in given), strict=True)))
    assert list(found) == ["output" if within else "made"]
    made = torch.from_numpy(next(iter(found.values())))
    torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-6)


def test_one_in_training_mode() -> None:
    script = torch.jit.script(Layers().train())
    with pytest.raises(ModelError, match="Layers is in training mode"):
        byoc.compile(script, "script.so", example_inputs=_given())


def _meta() -> nn.Module:
    return nn.Linear(8, 4, device="meta").eval()


@pytest.mark.parametrize(
    "module, given, told",
    [
        (nn.Linear(8, 4), torch.randn(1, 8), "example_inputs is of type Tensor; need a tuple"),
        (nn.Linear(8, 4), (torch.randn(2, 8).numpy(),), r"input \[0\] is of ndarray of NumPy"),
        (nn.Linear(8, 4), {"input": torch.eye(8).to_sparse()}, r"input \['input'\] is a sparse"),
        (
            nn.Linear(8, 4),
            (torch.empty(2, 8, device="meta"),),
            r"input \[0\] is on the meta device",
        ),
        (_meta(), (torch.randn(2, 8),), "'weight' of Linear is on the meta device"),
        (nn.LazyLinear(4), (torch.randn(2, 8),), "'weight' of LazyLinear has no shape yet"),
    ],
    ids=["tensor", "numpy", "sparse", "meta input", "meta", "lazy"],
)
def test_what_no_tracer_takes(module: nn.Module, given: object, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        byoc.compile(module.eval(), "module.so", example_inputs=given)
