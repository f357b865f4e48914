"""Modules of PyTorch, exported programs and .pt2 files to libraries that agree with PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import tvm
from click.testing import CliRunner
from torch import nn
from tvm.relax.frontend.torch import from_exported_program

import byoc
from byoc.bench.profile import profile
from byoc.bench.subjects import Subject
from byoc.cli import cli
from byoc.errors import (
    CompileError,
    ImportFailure,
    InputError,
    ModelError,
    ShapeError,
    UnsupportedForm,
    VerifyError,
)
from byoc.frontends.torch.program import Program

ROOT = Path(__file__).parents[2]


@dataclass
class Found:
    """A result with names."""

    logits: torch.Tensor
    features: tuple[torch.Tensor, ...]


torch.export.register_dataclass(Found, serialized_type_name="tests.torch.Found")


class Block(nn.Module):
    """A residual block whose activation runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm(self.conv1(x)))
        return self.act(x + self.conv2(y))


class Network(nn.Module):
    """An image or several to classes, with the features on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(Block(), Block())
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, image: torch.Tensor, scale: torch.Tensor | None = None) -> Found:
        x = self.blocks(self.stem(image))
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        logits = self.head(tokens.mean(1))
        return Found(logits if scale is None else logits * scale, (x, tokens))


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    module = Network().eval()
    module.blocks[0].norm.running_mean.uniform_(-1, 1)
    return module


def expected(module: nn.Module, *inputs: torch.Tensor) -> list[np.ndarray]:
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(module(*inputs))
    return [leaf.numpy() for leaf in leaves]


@pytest.mark.slow
def test_a_module_with_symbolic_axes(network: Network, tmp_path: Path) -> None:
    library = tmp_path / "network.so"
    batch = torch.export.Dim("batch", max=64)
    done = byoc.compile(
        network,
        library,
        example_inputs={"image": torch.randn(2, 3, 16, 16), "scale": torch.randn(10)},
        dynamic_shapes={"image": {0: batch}, "scale": None},
    )
    assert done.report.left == () and len(done.report.regions) == 1
    assert "verify" not in done.seconds and done.seconds["link"] > 0
    names = json.dumps(done.report.to_json()["nodes"])
    for name in ("stem", "blocks.0.conv1", "blocks.1.conv2", "head", "blocks.0.act"):
        assert name in names
    with byoc.load(library) as model:
        assert [str(info) for info in model.inputs] == [
            "image: float32[batch, 3, 16, 16]",
            "scale: float32[10]",
        ]
        assert [info.name for info in model.outputs] == ["logits", "features.0", "features.1"]
        for count in (1, 3):
            inputs = torch.randn(count, 3, 16, 16), torch.randn(10)
            for found, wanted in zip(model(*inputs), expected(network, *inputs), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


class Tokens(nn.Module):
    """Token numbers and a mask to vectors, with positions out of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.project, self.head = nn.Linear(16, 48), nn.Linear(16, 5)
        self.register_buffer("numbers", torch.arange(64)[None], persistent=False)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(self.numbers[:, :length])
        heads = self.project(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        rows = torch.arange(batch)[:, None, None, None]
        seen = mask.bool()[rows, torch.arange(length)[None, None, None]]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        made = nn.functional.scaled_dot_product_attention(*heads, attn_mask=seen & causal)
        return self.head(made.transpose(1, 2).reshape(batch, length, 16))


@pytest.mark.slow
def test_sequences_of_any_length(tmp_path: Path) -> None:
    """Rows of padding see no key of their own, and sizes beyond the positions are refused."""
    torch.manual_seed(0)
    module = Tokens().eval()
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=64)}

    def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, :2] = 0
        return torch.randint(0, 50, (batch, length)), mask

    library = tmp_path / "tokens.so"
    done = byoc.compile(
        module, library, example_inputs=inputs(2, 9), dynamic_shapes=(dims, dims), min_bytes=0
    )
    assert {entry.op for entry in done.report.left} <= {"relax.full"}  # of the mask
    with byoc.load(library) as model:
        for sizes in ((1, 4), (3, 33), (2, 64)):
            given = inputs(*sizes)
            (wanted,) = expected(module, *given)
            np.testing.assert_allclose(model(*given), wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(InputError, match="length is 65 and must be 64 or less"):
            model(*inputs(2, 65))


def test_a_file_on_the_command_line(network: Network, tmp_path: Path) -> None:
    source, library = tmp_path / "network.pt2", tmp_path / "network.so"
    torch.export.save(torch.export.export(network.blocks, (torch.randn(1, 8, 16, 16),)), source)
    command = ["compile", str(source), "-o", str(library), "--json", "--verify"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verified"]["holds"] and told["verified"]["reference"].startswith("PyTorch")
    assert told["inputs"] == [["input", [1, 8, 16, 16], "float32"]]
    with byoc.load(library) as model:
        assert model.metadata.source[0].name == "network.pt2"


@pytest.mark.slow
def test_a_module_that_tvm_imported(network: Network, tmp_path: Path) -> None:
    """Names are those of the parameters; both forms, report and profile as for others."""
    image = torch.randn(2, 8, 8, 8)
    module = from_exported_program(torch.export.export(network.blocks, (image,)))
    (parameter,) = module["main"].params
    done = byoc.compile(module, tmp_path / "module.so", verify=True)
    assert done.report.left == () and len(done.report.regions) == 1
    with byoc.load(tmp_path / "module.so") as model:
        assert [str(info) for info in model.inputs] == [f"{parameter.name}: float32[2, 8, 8, 8]"]
        assert [info.name for info in model.outputs] == ["output"]
        np.testing.assert_allclose(model(image), *expected(network.blocks, image), 1e-4, 1e-5)
    made = byoc.compile_standalone(module, tmp_path / "c", name="blocks")
    assert "include/blocks.h" in made.files
    subject = Subject("blocks", "blocks", module, {parameter.name: image.numpy()})
    assert any(call.function == "ext_conv2d" for call in profile(subject, 1, 1).calls)

    for given, why in (
        (byoc.partition_for_ext(module), "is partitioned already"),
        (tvm.IRModule(), "no Relax function main"),
    ):
        with pytest.raises(ModelError, match=why):
            byoc.compile(given)
    with pytest.raises(ShapeError, match="the module has its own"):
        byoc.compile(module, None, {parameter.name: [1, 8, 8, 8]})


def test_a_wrong_library_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "wrong.so"
    monkeypatch.setattr("byoc.frontends.torch.converters.table.CONVERTERS", _with_wrong_relu())
    with pytest.raises(VerifyError, match=r"does not agree with PyTorch.*output 'output': it is"):
        byoc.compile(nn.ReLU().eval(), library, example_inputs=(torch.randn(64, 8),))
    assert not library.exists()


def _with_wrong_relu() -> dict[str, object]:
    from byoc.frontends.torch.converters import table

    silu = table.CONVERTERS["silu"]
    return {**table.CONVERTERS, "relu": silu}


class _Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class _Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


class _Projected(nn.Module):
    """States of an LSTM that are given, and a projection whose two rows are the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 8, proj_size=2)
        self.layer.weight_hr_l0.data[1] = self.layer.weight_hr_l0.data[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, (x[:1, :2], x.reshape(2, 8)[:1]))[0]


class _Holder(nn.Module):
    def __init__(self, inner: object) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class _Decomposes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).abs()


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (nn.Dropout(), ModelError, "Dropout is in training mode; call .eval"),
        (_Branches().eval(), ModelError, r"control flow depends on the data .*test_compile.py"),
        (_Counts().eval(), ModelError, "the module changes 'calls' when it runs"),
        (
            _Holder(_Decomposes()).eval(),
            ImportFailure,
            r"^no converter for aten.linalg_eig.default \(in inner\)$",
        ),
        (
            _Projected().eval(),
            UnsupportedForm,
            r"operator aten.lstm.input \(module layer.*\): .*a projection .*condition",
        ),
    ],
)
def test_what_is_refused(module: nn.Module, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        byoc.compile(module, example_inputs=(torch.randn(4, 4),))
    assert "\n" not in str(raised.value)


def test_arguments_that_do_not_fit(
    network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = torch.randn(1, 3, 16, 16)
    with pytest.raises(ModelError, match="Network needs example_inputs"):
        byoc.compile(network)
    with pytest.raises(ModelError, match="example_inputs is of type Tensor; need a tuple"):
        byoc.compile(network, example_inputs=image)
    with pytest.raises(ModelError, match="are for modules of PyTorch"):
        byoc.compile(tmp_path / "model.onnx", example_inputs=(image,))
    with pytest.raises(ShapeError, match="are for ONNX models"):
        byoc.compile(network, None, {"image": [1, 3, 16, 16]}, example_inputs=(image,))
    with pytest.raises(ModelError, match=r"missing.pt2 does not exist"):
        byoc.compile(tmp_path / "missing.pt2")
    (tmp_path / "broken.pt2").write_bytes(b"no archive")
    with pytest.raises(ModelError, match=r"broken.pt2 is no exported program"):
        byoc.compile(tmp_path / "broken.pt2")
    # PyTorch's traceback
    assert not [record for record in caplog.records if record.name == "torch.export"]
    with pytest.raises(CompileError, match="verify runs the library here"):
        byoc.compile(network, example_inputs=(image,), target="aarch64-linux-gnu", verify=True)


@pytest.mark.slow
def test_pytorch_is_imported_for_its_models_alone() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import byoc.compiler.compile, byoc.verification, byoc.frontends.torch as front\n"
        "assert not front.is_of_torch('model.onnx') and not front.is_of_torch(object())\n"
        "assert front.is_of_torch('model.pt2')\n"
        "assert not any(name.startswith('torch.') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


class _OtherWhenTraced(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() * (2 if torch.compiler.is_exporting() else 3)


def test_a_program_that_differs_from_its_module(tmp_path: Path) -> None:
    """The library is what was traced; the line says whose difference it is."""
    given = (torch.randn(8, 8),)
    line = r"output 'output': it is what the exported program computes, .* \(off by 3.3e-01 of its"
    with pytest.raises(VerifyError, match=line):
        byoc.compile(_OtherWhenTraced().eval(), tmp_path / "other.so", example_inputs=given)
    compiled = byoc.compile(
        torch.export.export(_OtherWhenTraced().eval(), given), tmp_path / "traced.so", min_bytes=0
    )
    assert len(compiled.report.regions) == 1


class _Keeps(nn.Module):
    """What came first, as schedulers of diffusion have."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = SimpleNamespace(first=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scheduler.first is None:
            self.scheduler.first = x * 2
        return x + self.scheduler.first


def test_a_module_that_keeps_tensors_of_the_trace(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match=r"the module keeps tensors from call to call"):
        byoc.compile(_Keeps().eval(), tmp_path / "k.so", example_inputs=(torch.randn(8, 8),))


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu().view(x.shape[0] // 2, -1) * 2


@pytest.mark.slow
def test_a_second_size_is_compared(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of open axes: what is right of the example inputs may be wrong of others."""
    answer, asked = Program.answer, []

    def right_of_five(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked.append(len(arrays["image"]))
        return {k: v + (asked[-1] != 5) for k, v in answer(program, arrays).items()}

    monkeypatch.setattr(Program, "answer", right_of_five)
    with pytest.raises(VerifyError, match="the library does not agree with PyTorch"):
        byoc.compile(
            network,
            tmp_path / "network.so",
            example_inputs=(torch.randn(5, 3, 16, 16),),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    assert asked == [5, 3] and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_sizes_that_are_divided_by_none(tmp_path: Path) -> None:
    """Half of a row is none: a shape that is divided by it must not end the process."""
    path = tmp_path / "halved.so"
    shapes = ({0: torch.export.Dim.AUTO},)
    byoc.compile(
        Halved().eval(),
        path,
        example_inputs=(torch.randn(6, 4),),
        dynamic_shapes=shapes,
        min_bytes=0,
    )
    with byoc.load(path) as model:
        assert model.metadata.report["regions"]
        for rows in (6, 2, 0):
            given = torch.randn(rows, 4)
            found = model.run({"x": given})["output"]
            if rows:
                np.testing.assert_array_equal(found, Halved()(given))
            else:
                assert found.size == 0


class Cast(nn.Module):
    """A layer under autocast, whose result leaves in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x).float() * 2


def test_results_that_pytorch_rounds_on_the_way() -> None:
    """Ours are not rounded, which is no error of theirs."""
    torch.manual_seed(0)
    done = byoc.compile(Cast().eval(), example_inputs=(torch.randn(8, 64),), min_bytes=0)
    assert done.report.left == () and done.metadata.outputs[0].dtype == "float32"


def test_example_inputs_that_are_views() -> None:
    """PyTorch notes the whole of them, and cannot check it when it takes the program apart."""
    whole = torch.randn(8, 16)
    done = byoc.compile(
        nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)).eval(),
        example_inputs=(whole[:3, ::4],),
        min_bytes=0,
    )
    assert done.report.left == () and done.metadata.inputs[0].shape == (3, 4)
