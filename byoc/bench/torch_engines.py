"""PyTorch as an engine: a program as it comes, and as ``torch.compile`` makes it.

Both run a .pt2 file on the inputs that it was traced on, in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from byoc.errors import BenchmarkError

if TYPE_CHECKING:
    import numpy as np
    import torch

    Run = Callable[[], object]
    Fetch = Callable[[], list[np.ndarray]]


def load_pytorch(
    path: Path, inputs: dict[str, np.ndarray], threads: int, precision: str = "fp32"
) -> tuple[Run, Fetch]:
    """PyTorch itself, operator by operator."""
    del inputs  # the file's
    return _loaded(path, threads, precision, lambda module: module)


def load_inductor(
    path: Path, inputs: dict[str, np.ndarray], threads: int, precision: str = "fp32"
) -> tuple[Run, Fetch]:
    """``torch.compile`` as it comes, Inductor."""
    import torch

    del inputs  # the file's
    return _loaded(path, threads, precision, torch.compile)


def _loaded(
    path: Path, threads: int, precision: str, made: Callable[[torch.nn.Module], Any]
) -> tuple[Run, Fetch]:
    """What runs a program once; bfloat16 as PyTorch's users have it, by ``torch.autocast``."""
    import torch

    torch.set_num_threads(threads)
    program = torch.export.load(path)
    if program.example_inputs is None:
        raise BenchmarkError("the program has no example inputs")
    arguments, named = program.example_inputs
    module = made(program.module())

    def run() -> Any:
        half = precision == "bf16"
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            return module(*arguments, **named)

    return run, lambda: _arrays(run())


def _arrays(result: Any) -> list[np.ndarray]:
    """The tensors of a result, in order; bfloat16, which NumPy lacks, as float32."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    wide = (t.float() if t.dtype is torch.bfloat16 else t for t in tensors)
    return [tensor.detach().numpy() for tensor in wide]
