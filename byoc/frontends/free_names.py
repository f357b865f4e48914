"""Names that nothing else has."""

from __future__ import annotations


def take_name(wanted: str, taken: set[str]) -> str:
    """``wanted``, or with a number behind it if it is ``taken``, which the name is from now on."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
