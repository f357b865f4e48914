"""Programs of the thread pools and of what threads share, compiled with ThreadSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parents[1] / "runtime"

#: Program, and what of the runtime it runs; a stand-in tells how many threads TVM would use.
POOLS = {
    "standalone_pool": (
        *sorted((RUNTIME / "standalone").glob("*.c")),
        *(RUNTIME / f"{name}.c" for name in ("dispatch", "workers")),
    ),
    "tvm_threads": tuple(
        RUNTIME / f"{name}.c" for name in ("threads", "tvm_threads", "workers", "workspace")
    ),
    "turns": (),
}
FLAGS = (
    *("-std=c11", "-O1", "-g", "-fsanitize=thread"),
    *("-DEXT_FIRST", "-DEXT_ROW=baseline", "-DEXT_HAS_baseline"),
)
#: Seconds; a run takes two.
LIMIT = 300


def build_pool(name: str, folder: Path, source: Path | None = None) -> Path:
    """Compile a program of ``POOLS``, or ``source`` in its place."""
    program = folder / name
    sources = [source or HERE / f"{name}.c", *POOLS[name], RUNTIME / "status.c"]
    folders = (f"-I{folder}" for folder in (RUNTIME / "include", HERE.parent))
    command = ["gcc", *FLAGS, *folders, *map(str, sources), "-o", str(program)]
    subprocess.run([*command, "-lm", "-pthread"], check=True)
    return program


def run_pool(program: Path) -> subprocess.CompletedProcess[str]:
    """Run it; ThreadSanitizer makes the exit code 66 where it has found a race."""
    return subprocess.run([program], capture_output=True, text=True, check=False, timeout=LIMIT)
