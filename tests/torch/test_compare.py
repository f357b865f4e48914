"""The errors of a program's nodes, of which PyTorch is the judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import byoc
from tests.layer_errors.networks import WRONG

torch = pytest.importorskip("torch")


class Perceptron(torch.nn.Module):
    """Four products; an input by name, results in a dictionary, and a number for PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32, bias=False) for _ in range(4))
        self.register_buffer("shift", torch.randn(32))

    def forward(self, x, scale, count: int):
        for layer in self.layers:
            x = layer(x).relu()
        return {"output": (x + self.shift) * scale, "sums": x.sum(-1) / count}


def given() -> dict[str, object]:
    return {"x": torch.randn(5, 32), "scale": torch.rand(1), "count": 3}


def test_a_sound_network_is_sound_everywhere() -> None:
    found = byoc.compare(Perceptron().eval(), example_inputs=given(), min_bytes=0)
    assert found.report.left == () and len(found.layers) >= 6
    assert found.outputs.keys() == {"output", "sums"} and found.error < 1e-5
    assert all(max(layer.own.share, layer.total.share) < 1e-5 for layer in found.layers)
    assert {name.partition(".relu")[0] for name in found.layers[0].names} == {"layers.0", "relu"}
    assert found.judge == f"PyTorch {torch.__version__}"


def test_a_wrong_kernel_is_the_worst_by_name_though_all_after_it_are_off() -> None:
    x = np.random.default_rng(7).normal(size=(5, 32)).astype(np.float32)
    module = Perceptron().eval()
    found = byoc.compare(
        module, {"x": x}, example_inputs=given(), libraries=["builtin", f"layers.1={WRONG}"]
    )
    worst, *others = found.worst
    assert worst.names[0] == "layers.1" and worst.kernel.library == "wrong"
    assert worst.own.share > 1e-3 and all(layer.own.share < 1e-5 for layer in others)
    (later,) = (layer for layer in others if layer.names[0] == "layers.2")
    assert later.total.share > 1e-3
    with torch.no_grad():
        before = module.layers[0](torch.from_numpy(x)).relu()
        right = module.layers[1](before)
        wrong = before[:, :16] @ module.layers[1].weight[:, :16].T
    assert worst.own.greatest == pytest.approx((wrong - right).abs().max().item(), rel=1e-4)


@pytest.mark.slow
def test_a_file_with_its_example_inputs(tmp_path: Path) -> None:
    """In bfloat16, and which nodes to keep in fp32 for less."""
    program = torch.export.export(Perceptron().eval(), (), given())
    torch.export.save(program, tmp_path / "m.pt2")
    found = byoc.compare(tmp_path / "m.pt2", precision="bf16", max_error=1e-4)
    assert [layer.computes for layer in found.layers].count("bfloat16") == 4
    assert found.kept.holds and found.kept.error < 1e-4 < found.error
    assert all(remedy.value.startswith("layers.") for remedy in found.kept.remedies)


class Several(torch.nn.Module):
    """A recurrent layer, of which three results are read, the largest numbers and parts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.lstm = torch.nn.LSTM(4, 8)

    def forward(self, x):
        every, (h, c) = self.lstm(x)
        values, places = every.topk(4)
        left, right = (every + h + c).chunk(2, -1)
        return left * right + values + places.float()


def test_each_result_of_a_node_with_several_is_judged() -> None:
    given = torch.randn(5, 2, 4)
    found = byoc.compare(Several().eval(), example_inputs=(given,), min_bytes=0)
    assert found.report.left == () and len(found.report.regions) == 1 and found.unknown == 0
    several = [layer.value for layer in found.layers if layer.is_one_of_several]
    assert {"%topk[0]", "%topk[1]", "%lstm.lstm[1]", "%lstm.lstm[2]"} <= set(several)
    assert found.error < 1e-5 and all(layer.own.share < 1e-5 for layer in found.layers)


@pytest.mark.parametrize(
    ("keywords", "error", "said"),
    [
        ({"reference": "m.onnx"}, byoc.VerifyError, "reference is for ONNX models"),
        ({"input_shapes": {"x": [1, 32]}}, byoc.ShapeError, "input_shapes are for ONNX models"),
        ({"inputs": {"z": np.zeros(3)}}, byoc.InputError, "unknown input 'z'; the model has x"),
    ],
)
def test_what_a_program_cannot_be_given(
    keywords: dict[str, object], error: type[byoc.ByocError], said: str
) -> None:
    with pytest.raises(error, match=said):
        byoc.compare(Perceptron().eval(), example_inputs=given(), **keywords)


@pytest.mark.slow
def test_open_axes_need_sizes() -> None:
    rows = {"x": {0: torch.export.Dim("n", min=2)}, "scale": None, "count": None}
    program = torch.export.export(Perceptron().eval(), (), given(), dynamic_shapes=rows)
    with pytest.raises(byoc.VerifyError, match="has axes without a size; "):
        byoc.compare(program)


@pytest.mark.slow
def test_the_precision_of_a_module_is_chosen() -> None:
    module = Perceptron().eval()
    chosen = byoc.choose_precision(module, 1e-4, example_inputs=given())
    assert chosen.error < 1e-4 and chosen.precision[-1] == "bf16" and len(chosen.precision) > 1
    assert all(text.startswith("layers.") for text in chosen.precision[:-1])
