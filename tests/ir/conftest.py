"""What tests of the partitioner's passes share."""

from __future__ import annotations

import pytest

import byoc.partition.epilogues


@pytest.fixture
def everything_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pattern table alone decides, whatever kernels there are."""
    monkeypatch.setattr(byoc.partition.epilogues, "supports", lambda node: None)
