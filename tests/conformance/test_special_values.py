"""NaN, infinities, zeros of both signs, subnormal and huge numbers, operator by operator.

The answer is ONNX Runtime's, but where a case says what ours is and why (docs/reliability.md has
the table), and with the kernels of every instruction set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import abi
from byoc.compiler.compile import compile
from byoc.report import Report
from tests.conformance import joined_cases, special_values
from tests.conformance.joined_cases import Case
from tests.models.in_process import cpu_has, run_in_process
from tests.reference import onnxruntime_outputs

#: Errors of finite results. ONNX Runtime's sigmoid is 0 below -18, ours 4e-9 there, and x times it.
RELATIVE, ABSOLUTE = 5e-5, 2e-6


@dataclass(frozen=True)
class Joined:
    """The fields that ``run_in_process`` reads of a compiled model."""

    library: Path
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    report: Report


def joined(cases: list[Case], folder: Path, exact: bool = False) -> Joined:
    model = joined_cases.joined(cases)
    onnx.save(model, folder / "model.onnx")
    report = compile(model, folder / "model.so", exact=exact).report
    inputs = joined_cases.all_inputs(cases)
    return Joined(folder / "model.so", inputs, onnxruntime_outputs(model, inputs), report)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    return joined(special_values.cases(), tmp_path_factory.mktemp("swept"))


def differences(got: np.ndarray, want: np.ndarray) -> str:
    """What differs: shape, dtype, NaN, infinities, values; empty for nothing."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if got.dtype.kind != "f":
        wrong = got != want
    else:
        with np.errstate(all="ignore"):
            near = np.abs(got.astype(np.float64) - want) <= RELATIVE * np.abs(want) + ABSOLUTE
        wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)) | (near & np.isfinite(want)))
    if not wrong.any():
        return ""
    first = int(np.flatnonzero(wrong)[0])
    values = f"{got.flat[first]} instead of {want.flat[first]}"
    return f"{wrong.sum()} of {got.size}: {values} at {first}"


@pytest.mark.slow
def test_all_are_offloaded(swept: Joined) -> None:
    assert not swept.report.left
    assert len(swept.report.regions) == 1


@pytest.mark.parametrize("isa", abi.LEVELS)
def test_special_values_flow_as_in_onnx_runtime(swept: Joined, tmp_path: Path, isa: str) -> None:
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    found = run_in_process(swept, tmp_path, {"BYOC_ISA": isa})["outputs"]
    wrong = {}
    for case in special_values.cases():
        want = swept.expected[case.name] if case.expected is None else case.expected
        message = differences(found[case.name], want)
        if message:
            wrong[case.name] = message
    assert not wrong


def test_what_is_decided_differs_from_onnx_runtime(swept: Joined) -> None:
    """A decision that no longer matters is no decision."""
    decided = [case for case in special_values.cases() if case.expected is not None]
    same = [c.name for c in decided if np.array_equal(c.expected, swept.expected[c.name], True)]
    assert not same or same == ["where"]  # whose zeros differ in their sign


@pytest.mark.parametrize("isa", abi.LEVELS)
def test_exact_convolutions_and_attention(tmp_path: Path, isa: str) -> None:
    """Without it, Winograd spreads a special value over the tiles that read it."""
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    cases = [special_values.winograd(), special_values.attention_of_huge_values()]
    case = joined(cases, tmp_path, exact=True)
    assert case.report.exact and not case.report.left
    assert case.report.to_json()["exact"] is True
    assert "exact" in case.report.summary()
    assert {use.algorithm for use in case.report.kernels} >= {"implicit GEMM", "softmax"}
    found = run_in_process(case, tmp_path, {"BYOC_ISA": isa})["outputs"]
    for name, want in case.expected.items():
        assert not differences(found[name], want), name


def test_without_it_they_are_fast(tmp_path: Path) -> None:
    cases = [special_values.winograd(), special_values.attention_of_huge_values()]
    case = joined(cases, tmp_path)
    algorithms = {use.algorithm for use in case.report.kernels}
    assert "attention" in algorithms and any(name.startswith("Winograd") for name in algorithms)
    found = run_in_process(case, tmp_path, {})["outputs"]
    got, want = found["conv_3x3"], case.expected["conv_3x3"]
    ordinary = np.isfinite(want)
    spread = ~np.isfinite(got) & ordinary
    assert np.isnan(got[np.isnan(want)]).all() and spread.any()
    # No further than the tiles of 6 x 6 that read the pixel at (9, 9).
    _, _, rows, columns = np.nonzero(spread)
    assert min(rows.min(), columns.min()) >= 2 and max(rows.max(), columns.max()) <= 17
    assert not np.isfinite(found["attention_of_huge_values"]).all()
    assert np.isfinite(case.expected["attention_of_huge_values"]).all()
