"""Examples run as users run them, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: What each example must print.
SAID = {
    "01_register_ext_op.py": ["2 of 4 operators", "image of 4x4; need 64 pixels", "100 % of the"],
    "02_mark.py": [
        "operators                      2 of 5",
        "pattern                        4 of 5",
    ],
    "generate/generate.py": ["1 region(s), 8 states", "A compiler is", "tokens per second"],
    "generate/whisper.py": [
        "decoder: 1 region(s), 4 states",
        "30 s of sound, features [1, 80, 3000]",
        "tokens per second",
    ],
    "03_skip.py": ["skip_nodes   3 of 6", "2 of 6 operators stay with TVM", "kept for a test"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in SAID[name]:
        assert text in done.stdout
