"""Where graphs come from."""

from __future__ import annotations

from tests.fuzz import generate
from tests.fuzz.draft import Drawn

SOURCES = ("own", "nnsmith")


def draw(source: str, seed: int, special: bool = False) -> Drawn:
    """The graph of a source's seed."""
    if source == "own":
        return generate.draw(seed, special)
    from tests.fuzz import nnsmith_graphs  # needs packages that CI's other tests do not

    return nnsmith_graphs.draw(seed, special)
