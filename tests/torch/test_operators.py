"""Every converter beside PyTorch: a family of functions is one network, compiled once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import byoc
from byoc.frontends.torch.converters.table import CONVERTERS
from tests.torch.operators import FAMILIES, Case

#: What TVM computes, of each family.
LEFT = {
    "elementwise": {
        *("relax.atan2", "relax.cosh", "relax.sinh", "relax.tan", "relax.trunc"),
        "relax.divide",
    },
    "contraction": set(),
    "normalisation": set(),
    "movement": {"relax.scatter_elements"},  # greatest and least scattered ones
    "image": {
        *("relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d"),
    },
    "odd": {  # of float64 and bytes, of which there are no kernels
        *("relax.mod", "relax.divide", "relax.atan2", "relax.multiply"),
        *("relax.add", "relax.subtract", "relax.mean", "relax.rsqrt", "relax.reshape"),
        *("relax.greater", "relax.less", "relax.astype", "relax.argsort", "relax.gather_elements"),
    },
    "order": {  # loops read bits, and go along an axis
        *("relax.topk", "relax.argsort", "relax.call_tir"),
    },
    "special": {"relax.call_tir", "relax.astype"},  # in loops of TVM's
    "linear": set(),
    "taken_apart": set(),
    "rotations": set(),
    "complex": set(),
    "counted": set(),
    "bags": {"relax.scatter_nd"},  # greatest scattered rows
}


class Family(torch.nn.Module):
    """All functions of a family; the inputs of one follow those of the one before."""

    def __init__(self, cases: dict[str, Case]) -> None:
        super().__init__()
        self.cases = cases
        for name, (function, _) in cases.items():
            if isinstance(function, torch.nn.Module):
                self.add_module(name, function)

    def forward(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        results, place = {}, 0
        for name, (function, given) in self.cases.items():
            results[name] = function(*inputs[place : place + len(given)])
            place += len(given)
        return results


def tensors(cases: dict[str, Case]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(7)
    given = (item for _, inputs in cases.values() for item in inputs)
    return tuple(torch.randn(item) if isinstance(item, tuple) else item for item in given)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    """``verify`` compares the library with PyTorch, and raises where they differ."""
    cases = FAMILIES[family]
    compiled = byoc.compile(Family(cases).eval(), example_inputs=tensors(cases), min_bytes=0)
    assert [info.name for info in compiled.metadata.outputs] == list(cases)
    report = compiled.report
    assert {entry.op.partition("(")[0] for entry in report.left} <= LEFT[family]
    assert report.regions
    assert not {"relax.matmul", "relax.nn.conv2d", "relax.nn.softmax"} & LEFT[family]


def test_converters_take_every_argument() -> None:
    """An argument of an operator's schema that a converter does not take would be a TypeError."""
    checked = 0
    for name, convert in CONVERTERS.items():
        packet, _, overload = name.partition(".")
        operator = getattr(torch.ops.aten, packet, None)
        if operator is None:
            continue
        parameters = inspect.signature(convert).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            continue
        for form in [overload] if overload else operator.overloads():
            if "out" in form or "generator" in form or "Dimname" in form:
                continue
            schema = getattr(operator, form)._schema
            wanted = {"x" if a.name == "self" else a.name for a in schema.arguments}
            known = {parameter.name for parameter in parameters}
            checked += wanted <= known
    assert checked > 150


def test_what_is_computed_from_constants_is_computed_by_pytorch() -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.arange(6)
            mask = (places[:, None] >= places).logical_and(places % 2 == 0)
            return x.masked_fill(mask, 0.0) * torch.special.entr(places + 0.5)

    compiled = byoc.compile(Masked().eval(), example_inputs=(torch.randn(6, 6),), min_bytes=0)
    assert compiled.report.left == ()


def test_halves() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU()).eval().bfloat16()
    compiled = byoc.compile(module, example_inputs=(torch.randn(4, 16).bfloat16(),))
    assert compiled.metadata.outputs[0].dtype == "bfloat16"
    assert compiled.report.left == ()


def _grouped(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """What transformers computes of its experts, as its operator says."""
    made, start = torch.zeros(x.shape[0], weight.shape[2]), 0
    for matrix, end in zip(weight, offs.tolist(), strict=True):
        made[start:end] = x[start:end] @ matrix
        start = end
    return made


@pytest.fixture
def grouped_mm() -> Iterator[torch._ops.OpOverload]:
    """The operator as transformers declares it, which is not installed here."""
    name = "transformers::grouped_mm_fallback"
    library = torch.library.Library("transformers", "FRAGMENT")
    library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    library.impl("grouped_mm_fallback", _grouped, "CPU")
    fake = lambda x, weight, offs: x.new_empty(x.shape[0], weight.shape[2])  # noqa: E731
    torch.library.register_fake(name, fake, lib=library)
    yield torch.ops.transformers.grouped_mm_fallback.default
    library._destroy()


class Experts(torch.nn.Module):
    """Rows by the matrix of their expert, in the order that they came in."""

    def __init__(self, operator: torch._ops.OpOverload, count: int) -> None:
        super().__init__()
        self.operator = operator
        self.weight = torch.nn.Parameter(torch.randn(count, 6, 5))

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        numbers, order = torch.sort(expert)
        count = self.weight.shape[0]
        offs = torch.histc(numbers.float(), count, 0, count - 1).cumsum(0, dtype=torch.int32)
        made = self.operator(x[order], self.weight, offs)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return made[back]


@pytest.mark.parametrize("experts", [4, 16])
@pytest.mark.parametrize("rows", ["fixed", "open"])
def test_experts(
    experts: int, rows: str, grouped_mm: torch._ops.OpOverload, tmp_path: Path
) -> None:
    """Each row is multiplied by the matrix of its expert; some experts have no row."""
    torch.manual_seed(5)
    module = Experts(grouped_mm, experts).eval()
    expert = torch.tensor([3, 0, 3, 2, 0, 3])
    axis = torch.export.Dim("rows")
    compiled = byoc.compile(
        module,
        tmp_path / "experts.so",
        example_inputs=(torch.randn(6, 6), expert),
        dynamic_shapes=({0: axis}, {0: axis}) if rows == "open" else None,
        min_bytes=0,
    )
    assert compiled.report.left == ()
    assert "ext.grouped_matmul" in [node.operator for node in compiled.report.graph.nodes]
    with byoc.load(tmp_path / "experts.so") as library:
        for count in (6, 1, 3) if rows == "open" else (6,):
            inputs = torch.randn(count, 6), expert[:count].flip(0)
            found = library.run(dict(zip(("x", "expert"), inputs, strict=True)))["output"]
            torch.testing.assert_close(torch.tensor(found), module(*inputs).detach())


class HalfExperts(Experts):
    """Rows that PyTorch's own operator takes: of bfloat16, in multiples of 16 bytes."""

    def __init__(self) -> None:
        super().__init__(torch._grouped_mm, 4)
        self.weight = torch.nn.Parameter(torch.randn(4, 24, 16))

    def forward(self, x: torch.Tensor, expert: torch.Tensor) -> torch.Tensor:
        return super().forward(x, expert).float()


def test_experts_of_bfloat16(tmp_path: Path) -> None:
    """Networks as they are stored, of which transformers takes another operator than of float32."""
    torch.manual_seed(5)
    module, path = HalfExperts().bfloat16().eval(), tmp_path / "experts.so"
    given = torch.randn(6, 24).bfloat16(), torch.tensor([3, 0, 3, 2, 0, 3])
    report = byoc.compile(module, path, example_inputs=given, min_bytes=0).report
    assert report.left == () and len(report.regions) == 1
    assert "ext.grouped_matmul" in [node.operator for node in report.graph.nodes]
    with byoc.load(path) as library:
        found = library.run(dict(zip(("x", "expert"), given, strict=True)))["output"]
    torch.testing.assert_close(torch.tensor(found), module(*given).detach(), rtol=2e-2, atol=2e-2)
