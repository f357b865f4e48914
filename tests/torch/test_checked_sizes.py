"""Sizes that the virtual machine refuses by itself, without ``byoc.load``."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax, tirx

import byoc
from byoc.compiler.check_sizes import _Question, check_sizes
from byoc.deploy.conditions import condition
from byoc.deploy.metadata import Metadata, SymbolRange
from byoc.ir.walk import bindings_of

AUTO = torch.export.Dim.AUTO


class Parity(nn.Module):
    """Two ways, of which the tracer follows one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() if x.shape[0] % 2 == 0 else x.sigmoid()


class Padded(nn.Module):
    """One block of 128, as the example is, however long a sequence is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = -x.shape[1] % 128
        blocks = nn.functional.pad(x, (0, more)).reshape(x.shape[0], -1, 128)
        return blocks.softmax(-1) if blocks.shape[1] == 1 else blocks.relu()


def _machine(library: Path) -> relax.VirtualMachine:
    return relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())


@torch.no_grad()
@pytest.mark.parametrize(
    ("module", "axis", "shapes", "refused"),
    [
        (Parity(), 0, [(4, 40), (10, 40)], [(7, 40), (1, 40)]),
        (Padded(), 1, [(2, 100), (2, 128), (2, 3)], [(2, 129), (2, 300)]),
    ],
)
def test_conditions(
    module: nn.Module,
    axis: int,
    shapes: list[tuple[int, ...]],
    refused: list[tuple[int, ...]],
    tmp_path: Path,
) -> None:
    library = tmp_path / "conditions.so"
    compiled = byoc.compile(
        module.eval(),
        library,
        example_inputs=(torch.randn(shapes[0]),),
        dynamic_shapes=({axis: AUTO},),
        min_bytes=0,
    )
    assert len(compiled.report.regions) == 1 and compiled.report.left == ()
    main = _machine(library)["main"]
    for shape in shapes:
        x = torch.randn(shape)
        found = torch.from_dlpack(main(tvm.runtime.tensor(x.numpy())))
        torch.testing.assert_close(found, module(x))
    for shape in refused:
        with pytest.raises(RuntimeError, match=r"1 vs. 0.*Select"):
            main(tvm.runtime.tensor(np.zeros(shape, "float32")))


@torch.no_grad()
def test_ranges(tmp_path: Path) -> None:
    library = tmp_path / "ranges.so"
    rows = torch.export.Dim("rows", min=3, max=9)
    given = (torch.randn(4, 40),)
    byoc.compile(nn.ReLU().eval(), library, example_inputs=given, dynamic_shapes=({0: rows},))
    main = _machine(library)["main"]
    assert main(tvm.runtime.tensor(np.ones((9, 40), "float32"))).shape == (9, 40)
    for count, need in ((2, "rows >= .*3"), (10, "rows <= .*9")):
        with pytest.raises(RuntimeError, match=need):
            main(tvm.runtime.tensor(np.ones((count, 40), "float32")))


#: All that conditions are made of.
TEXTS = (
    "n % m == 0",
    "n // m != 2 and m < 4",
    "trunc(0.7 * float(n)) == 6 * n // 10",
    "n / m >= 1.5 or not m > 2",
    "-n + 2 * m <= 3 < n",
    "max(n, m, 5) == min(n + 2, 2 * m)",
    "m ** 2 == n or m ** 0 == n",
    "sqrt(n) == m",
    "round(n * 0.5) == ceil(m / 2.0)",
    "abs(n - m) < 2 ** 2",
    "2.5 * n % 1.0 == 0",
    "float(n) // 2.0 == m",
    "True and n > k",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_condition_says_the_same(text: str) -> None:
    """As ``byoc.load`` finds; of a symbol that no input tells, and of roots, nothing is asked."""
    n, m = (tirx.Var(name, "int64") for name in "nm")
    x = relax.Var("x", relax.TensorType((n, m), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(builder.emit(relax.op.add(x, x)))
        builder.emit_func_output(made)
    unasked = "k" in text or "sqrt" in text
    metadata = Metadata((), (), conditions=(text,), ranges=(SymbolRange("m", 0),))
    checked = check_sizes(builder.get(), metadata)
    asked = [b for b in bindings_of(checked["main"]) if isinstance(b, relax.MatchCast)]
    assert len(asked) == (not unasked)
    main = relax.VirtualMachine(tvm.compile(checked, "llvm"), tvm.cpu())["main"]
    draw, answers = random.Random(1), set()
    for _ in range(60):
        sizes = {"n": draw.randrange(12), "m": draw.randrange(6)}
        try:
            main(tvm.runtime.tensor(np.zeros((sizes["n"], sizes["m"]), "float32")))
            holds = True
        except RuntimeError:
            holds = False
        assert holds == (unasked or condition(text).holds(sizes)), sizes
        answers.add(holds)
    assert len(answers) == 2 - unasked


def test_roundings_within_one_another_are_left_to_load() -> None:
    """Each is written with two copies of its number: twelve would never be done compiling."""
    text = "n"
    asked = _Question({"n": tirx.Var("n", "int64")}).asked
    for depth in range(1, 13):
        text = f"ceil({text} / 2 + 1.0)"
        assert (asked(f"{text} >= 3") is None) == (depth > 3), depth
