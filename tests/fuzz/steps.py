"""What the operators' files have in common: a step adds a node or a few to a draft.

A step takes the draft and a value to go on from, and returns the value to go on with. It is listed
with ``@step`` and a weight. Steps raise ``Unusable`` where the value does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.fuzz.draft import Draft, Unusable

Step = Callable[[Draft, str], str]


@dataclass(frozen=True)
class Listed:
    """A step; ``weight`` says how often it is drawn, ``since`` is the first opset that has it."""

    run: Step
    weight: float
    since: int


STEPS: list[Listed] = []


def step(weight: float = 1.0, since: int = 7) -> Callable[[Step], Step]:
    """List a function as a step."""

    def keep(function: Step) -> Step:
        STEPS.append(Listed(function, weight, since))
        return function

    return keep


def require(condition: bool, what: str) -> None:
    """Raise ``Unusable`` unless the condition holds."""
    if not condition:
        raise Unusable(what)


def source(draft: Draft, value: str, dtypes: Sequence[str], ranks: Sequence[int]) -> str:
    """The value if it has such a dtype and rank, else another one, else a new input."""
    if draft.dtype(value) in dtypes and draft.rank(value) in ranks and draft.chance(0.9):
        return value
    others = draft.candidates(dtypes, ranks)
    if others and draft.chance(0.7):
        return draft.pick(others)
    usual = [rank for rank in ranks if rank in (2, 3, 4)] or list(ranks)
    rank = draft.pick(usual if draft.chance(0.8) else list(ranks))
    dtype = dtypes[0] if draft.chance(0.8) else draft.pick(list(dtypes))
    return draft.input(draw_shape(draft, rank), dtype)


def draw_shape(draft: Draft, rank: int) -> list[int | str]:
    """Extents of an input; some are symbols, few are 0 or 1."""
    sizes = (1, 2, 3, 4, 5, 7, 8, 12, 17) if rank < 4 else (1, 2, 3, 4, 5, 6, 8)
    shape: list[int | str] = [int(draft.pick(sizes)) for _ in range(rank)]
    if rank and draft.chance(0.03):
        shape[draft.between(0, rank - 1)] = 0
    for axis in range(rank):
        symbols = list(draft.worlds[0])
        if symbols and draft.chance(0.75 if axis == 0 else 0.3):
            shape[axis] = str(draft.pick(symbols))
    return shape


def axis_of(draft: Draft, value: str) -> int:
    """One of the axes, perhaps counted from the end."""
    rank = draft.rank(value)
    require(rank > 0, "a scalar has no axes")
    axis = draft.between(0, rank - 1)
    return axis - rank if draft.chance(0.4) else axis


def partner(draft: Draft, value: str) -> str:
    """Another operand that broadcasts with the value: one that is there, a constant, an input."""
    shape, dtype = draft.shape(value), draft.dtype(value)
    same = [name for name in draft.candidates((dtype,)) if draft.shape(name) == shape]
    if same and draft.chance(0.5):
        return draft.pick(same)  # perhaps the value itself
    part = [
        1 if draft.chance(0.4) or not draft.is_fixed(value, axis) else extent
        for axis, extent in enumerate(shape)
    ]
    part = part[draft.between(0, len(part)) :]
    if draft.chance(0.1) and len(part) < 4:
        part = [draft.between(1, 3), *([1] * (len(shape) - len(part))), *part]
    if draft.chance(0.6):
        return draft.constant(draft.array(part, dtype), fixed=False)
    return draft.input(part, dtype)


def axes_form(draft: Draft, axes: Sequence[int] | None, since: int) -> tuple[list[str], dict]:
    """Axes as the opset has them: further inputs from opset ``since`` on, else an attribute."""
    if axes is None:
        return [], {}
    if draft.opset >= since:
        return [draft.constant(np.array(axes, "int64"))], {}
    return [], {"axes": list(axes)}
