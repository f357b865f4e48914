"""Sizes of inputs that a program's conditions let be equal alone.

A mask of another batch than what it hides is not refused by the tracer but where a reshape joins
them, as ``2 * n % m == 0`` and ``2 * n // m == 2``. Where both have one name, no call has to look
at what they give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from byoc.deploy.conditions import condition

#: Sizes that are tried of each axis, and how many of them must do.
_TRIED, _ENOUGH = range(2, 41), 8


def joined_names(
    noted: Iterable[str], names: Iterable[str], given: Mapping[str, str]
) -> dict[str, str]:
    """By names of sizes, what those of others are that they must equal; of two that users have
    ``given`` neither is replaced.

    It is found by trying, with the conditions on the two alone. What these would allow of greater
    sizes is refused then.
    """
    known = [needed for needed in map(condition, noted) if len(needed.names) <= 2]
    found: dict[str, str] = {}
    for first, second in combinations(sorted(set(names)), 2):
        both = [needed for needed in known if needed.names == {first, second}]
        users = {first, second} & set(given.values())
        if not both or first in found or second in found or len(users) == 2:
            continue
        own = [needed for needed in known if needed.names <= {first, second}]
        met = [
            (n, m)
            for n in _TRIED
            for m in _TRIED
            if all(needed.tells({first: n, second: m}) for needed in own)
        ]
        if len(met) >= _ENOUGH and all(n == m for n, m in met):
            kept, other = (second, first) if second in users else (first, second)
            found = {name: kept if to == other else to for name, to in found.items()}
            found[other] = kept
    return found
