"""Every network gives ONNX Runtime's answer with the kernels of every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import abi
from models.carried import light, trained
from models.zoo import ZOO
from tests.conftest import CompiledCase
from tests.models.in_process import cpu_has, run_in_process
from tests.models.test_one_region import LARGE, LIGHT, OCR
from tests.reference import SIGMOID_ERROR, assert_agrees

Cases = Callable[..., CompiledCase]
MODELS = {
    **dict.fromkeys(ZOO),
    **{name: lambda name=name: light(name) for name in LIGHT},
    **{name: lambda name=name: trained(name, OCR[name]) for name in OCR},
}


#: Small networks have every kind of layer: of the large ones the one level in the middle is enough,
#: beside the CPU's own in test_one_region.
CASES = [
    pytest.param(name, isa, marks=[pytest.mark.slow] if name in LARGE else [])
    for name in MODELS
    for isa in (abi.LEVELS[1:2] if name in LARGE else abi.LEVELS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "isa"), CASES)
def test_the_answer_is_the_same(compiled_case: Cases, tmp_path: Path, name: str, isa: str) -> None:
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    if name in OCR and find_spec("rapidocr") is None:
        pytest.skip("the package rapidocr is not installed")
    build = MODELS[name]
    case = compiled_case(name) if build is None else compiled_case(name, build())
    assert len(case.report.regions) == 1
    result = run_in_process(case, tmp_path, {"BYOC_ISA": isa})
    rounding = SIGMOID_ERROR if name in OCR else 0.0
    assert_agrees(result["outputs"], case.expected, rounding=rounding)
