"""What tests of kernel libraries share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from byoc.patterns import registry as builders
from codegen_cc import operator
from codegen_cc.libraries import registry


@pytest.fixture
def forget_operators() -> Iterator[None]:
    """Libraries of one test, their operators and builders are unknown to the next."""
    operator.known_operators()
    stores = (registry._loaded, operator._known, operator._owners, builders._ENTRIES)
    copies = [dict(store) for store in stores]
    yield
    for store, copy in zip(stores, copies, strict=True):
        store.clear()
        store.update(copy)
