"""Every converter beside PyTorch: a family of functions is one network, compiled once."""

from __future__ import annotations

import inspect

import pytest
import torch

import byoc
from byoc.frontends.torch.converters.table import CONVERTERS
from tests.torch.operators import FAMILIES, Case

#: What TVM computes, of each family.
LEFT = {
    "elementwise": {
        *("relax.atan2", "relax.cosh", "relax.sinh", "relax.tan", "relax.trunc", "relax.mod"),
        *("relax.floor_mod", "relax.floor_divide", "relax.bitwise_and", "relax.bitwise_or"),
        *("relax.bitwise_xor", "relax.bitwise_not", "relax.divide", "relax.nn.softplus"),
    },
    "contraction": set(),
    "normalisation": set(),
    "movement": {"relax.scatter_elements", "relax.argsort"},  # greatest and least scattered ones
    "image": {
        *("relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d"),
        "relax.image.grid_sample",
    },
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


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    """``verify`` compares the library with PyTorch, and raises where they differ."""
    cases = FAMILIES[family]
    compiled = byoc.compile(Family(cases).eval(), example_inputs=tensors(cases), min_bytes=0)
    assert [info.name for info in compiled.metadata.outputs] == list(cases)
    report = compiled.report
    assert {entry.op for entry in report.left} <= LEFT[family]
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
