"""The example of PyTorch, as users run it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_pytorch.py"


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, which has imported PyTorch and TVM already."""
    runpy.run_path(str(EXAMPLE))
    said = capsys.readouterr().out
    assert "100.0 % of MACs, 1 region" in said
    assert "(input: float32[batch, 3, 32, 32]) -> (output: float32[batch, 10])" in said
    assert "equal to PyTorch for a batch of 1 and of 5" in said
