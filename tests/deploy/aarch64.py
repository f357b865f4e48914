"""What the tests for 64-bit ARM need on this machine: a cross compiler, QEMU, TVM's libraries."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

TARGET = "aarch64-linux-gnu"
#: Where ``make aarch64-libraries`` puts those of TVM's wheel.
LIBRARIES = Path(__file__).resolve().parents[2] / "build" / "aarch64-libraries"
QEMU = ["qemu-aarch64", "-L", f"/usr/{TARGET}"]


def missing() -> str | None:
    """Why programs for it cannot be built and run here, or None."""
    if platform.machine() == "aarch64":
        return "this machine needs no cross compiler"
    for program in (f"{TARGET}-g++", f"{TARGET}-gcc", QEMU[0]):
        if shutil.which(program) is None:
            return f"no {program} on the path"
    if not (LIBRARIES / "versions.txt").is_file():
        return "no TVM runtime for aarch64: make aarch64-libraries"
    return None
