"""Which operators PyTorch takes apart: all that it can, but for those that have a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from byoc.frontends.torch.converters.table import converter_of


def decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """The table for ``ExportedProgram.run_decompositions``."""
    table = torch.export.default_decompositions()
    for target in list(table):
        if converter_of(target) is not None:
            table.pop(target)
    return table
