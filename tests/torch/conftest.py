"""Makes PyTorch importable for the tests in this folder alone.

Where PyTorch is installed beside TVM, every process that imports TVM imports PyTorch as well, which
takes seconds; so ``make test`` installs it into a folder of its own. That is on the path while
tests here are collected and run, and not for the processes that others start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

APART = str(Path(sys.prefix, "torch"))

if find_spec("torch") is None and Path(APART).is_dir():
    sys.path.append(APART)

collect_ignore_glob = [] if find_spec("torch") else ["*"]


def pytest_collection_finish() -> None:
    """Take the folder off the path again."""
    if APART in sys.path:
        sys.path.remove(APART)


@pytest.fixture(autouse=True)
def _importable() -> Iterator[None]:
    """What PyTorch imports when it is first needed lies in the folder as well."""
    sys.path.append(APART)
    yield
    sys.path.remove(APART)


@pytest.fixture
def nothing_compiled() -> None:
    """Graphs of other tests are unknown to ``torch.compile``."""
    import torch

    torch.compiler.reset()
