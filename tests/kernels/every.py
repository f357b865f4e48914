"""``every``: many cases in one test, which says which of them failed.

pytest takes some milliseconds for each test that it collects, sets up and reports, which is more
than most cases of a kernel take.  What comes as a fixture, such as the level of instructions, stays
a test of its own; sizes, dtypes and epilogues are cases of one.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

#: What ``--case`` asked for: a part of the names of the cases that are run; None for all.
only: str | None = None

Ids = Iterable[Any] | Callable[[Any], Any] | None


@dataclass(frozen=True)
class _Axis:
    """Values of some arguments, and the name of each row of them."""

    arguments: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...]


def every(arguments: str | Sequence[str], values: Iterable[Any], ids: Ids = None) -> Callable:
    """Run a test with each of ``values``, as ``pytest.mark.parametrize`` does, but as one test.

    Several of these decorators on a test make the product of their values.  All cases are run;
    when some fail, the test fails with their names and how the first one did.  A skip is one of
    the whole test, and must come from its first case: one case that is skipped later is a failure.
    """
    names = (arguments,) if isinstance(arguments, str) else tuple(arguments)
    rows = tuple((row,) if isinstance(arguments, str) else tuple(row) for row in values)
    assert rows and all(len(row) == len(names) for row in rows)
    axis = _Axis(names, rows, _names(rows, ids))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner, axes = getattr(test, "_every", (test, ()))
        return _looped(inner, (*axes, axis))

    return decorate


def _names(rows: tuple[tuple[Any, ...], ...], ids: Ids) -> tuple[str, ...]:
    if ids is None or callable(ids):
        name = ids or str
        return tuple("-".join(str(name(value)) for value in row) for row in rows)
    names = tuple(map(str, ids))
    assert len(names) == len(rows)
    return names


def _looped(test: Callable[..., None], axes: tuple[_Axis, ...]) -> Callable[..., None]:
    @functools.wraps(test)
    def loop(**fixtures: Any) -> None:
        failed: list[str] = []
        first: BaseException | None = None
        count = 0
        for name, values in _cases(axes):
            count += 1
            try:
                test(**fixtures, **values)
            except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                if isinstance(error, pytest.skip.Exception) and count == 1:
                    raise
                failed.append(name)
                first = first or error
        if failed:
            raise AssertionError(
                f"{len(failed)} of {count} cases failed: {', '.join(failed)}"
            ) from first
        if not count:
            pytest.skip(f"no case is called {only}")

    given = {argument for axis in axes for argument in axis.arguments}
    kept = inspect.signature(test)
    rest = [value for name, value in kept.parameters.items() if name not in given]
    assert len(kept.parameters) == len(rest) + len(given), "an argument that the test has not"
    loop.__signature__ = kept.replace(parameters=rest)  # type: ignore[attr-defined]
    loop._every = (test, axes)  # type: ignore[attr-defined]
    return loop


def _cases(axes: tuple[_Axis, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and arguments, as ``only`` wants them, the decorator next to the test slowest."""
    for numbers in itertools.product(*(range(len(axis.rows)) for axis in axes)):
        chosen = list(zip(axes, numbers, strict=True))
        name = "-".join(axis.names[number] for axis, number in chosen)
        if only is not None:
            if only not in name:
                continue
            print(name, file=sys.stderr, flush=True)  # a kernel that crashes leaves it behind
        values: dict[str, Any] = {}
        for axis, number in chosen:
            values.update(zip(axis.arguments, axis.rows[number], strict=True))
        yield name, values
