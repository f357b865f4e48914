"""Objects and the kernels inside them as a shared library."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from codegen_cc.errors import ToolchainError
from codegen_cc.target import HOST, Target


def link_shared(
    objects: Sequence[Path], output: Path, target: Target = HOST, options: Sequence[str] = ()
) -> Path:
    """Link objects of ``build_object`` into ``output``. Raises ``ToolchainError``."""
    command = [*target.compiler(), "-shared", "-fPIC", *options, "-o", str(output)]
    command += [*map(str, objects), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise ToolchainError(f"cannot link {output.name}: {lines[0]}")
    return output
