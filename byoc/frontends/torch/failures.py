"""Why PyTorch's tracer gave up a module, and where in the code of users."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from byoc.frontends.torch.derivatives import VIOLATED
from codegen_cc.errors import one_line


def decided_by_data(error: Exception) -> bool:
    """Whether the tracer would have had to know what a tensor holds."""
    return "data-dependent" in str(error).lower() or "GuardOnDataDependent" in type(error).__name__


def reason_of(error: Exception) -> str:
    """What failed, in one line, and where in the user's code."""
    if decided_by_data(error):
        return f"control flow depends on the data of a tensor{_where(error)}"
    if VIOLATED in str(error):
        reasons = [line.strip(" -") for line in str(error).splitlines() if line.startswith("  - ")]
        return "; ".join(reasons) or one_line(error)
    return f"{one_line(error)}{_where(error)}"


def tells_where(error: Exception) -> bool:
    """Whether a failure is worth more than that of an attempt before: what open sizes must meet, or
    the line that asks for data. The tracer of ``torch.compile`` knows no such line."""
    return VIOLATED in str(error) or (decided_by_data(error) and bool(_where(error)))


def _where(error: Exception) -> str:
    """The last line of users' code that the error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def is_users(file: str) -> bool:
    """Whether a file is none of PyTorch's, ours or Python's."""
    others = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), "<")
    of_python = file.startswith(str(Path(traceback.__file__).parent)) and "-packages" not in file
    return not file.startswith(others) and not of_python
