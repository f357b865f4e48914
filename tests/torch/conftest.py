"""Makes PyTorch importable for the tests in this folder alone.

Where PyTorch is installed beside TVM, every process that imports TVM imports PyTorch as well, which
takes seconds; so ``make test`` installs it into a folder of its own.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

APART = Path(sys.prefix, "torch")

if find_spec("torch") is None and APART.is_dir():
    sys.path.append(str(APART))
    importlib.invalidate_caches()

collect_ignore_glob = [] if find_spec("torch") else ["*"]
