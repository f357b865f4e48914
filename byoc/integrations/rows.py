"""Which axis of a compiled network counts rows, and how many rows one call takes.

A network can be asked for any rows together if the first axis of every input and every output is
the same symbol, and no other axis depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from byoc.deploy.conditions import condition
from byoc.deploy.metadata import Metadata, TensorInfo
from byoc.errors import InputError

_REMEDY = "compile it with a name for the first axis, as in --input-shapes 'x:[batch,3,224,224]'"


def rows_of_a_call(metadata: Metadata, name: str) -> int | None:
    """The most rows that one call of the network ``name`` can take; None where there is no limit.

    That is 1 for a network whose batch is fixed at 1. Raises ``InputError`` for one that cannot be
    asked for rows in any number, with what is in the way.
    """
    if metadata.states:
        raise InputError(f"{name} keeps states from call to call; rows would depend on each other")
    if not metadata.outputs:
        raise InputError(f"{name} does not say what its outputs are; compile it with byoc")
    tensors = (*metadata.inputs, *metadata.outputs)
    firsts = {info.shape[0] if info.shape else "" for info in tensors}
    if firsts == {1}:
        return 1
    batch = str(firsts.pop()) if len(firsts) == 1 else ""
    if not batch.isidentifier() or _is_on_another_axis(batch, tensors):
        shown = "; ".join(map(str, tensors))
        raise InputError(
            f"{name} does not take any number of rows: the first axis of {shown} is not one symbol "
            f"that no other axis has; {_REMEDY}"
        )
    for text in metadata.conditions:
        if batch in condition(text).names:
            raise InputError(f"{name} takes rows where {text} alone; {_REMEDY}")
    for declared in metadata.ranges:
        if declared.name == batch:
            if declared.least > 1:
                raise InputError(
                    f"{name} takes {declared.least} rows or more, and a last batch may have 1; "
                    f"{_REMEDY}"
                )
            return declared.most
    return None


def _is_on_another_axis(symbol: str, tensors: Iterable[TensorInfo]) -> bool:
    word = re.compile(rf"\b{symbol}\b")
    return any(word.search(str(extent)) for info in tensors for extent in info.shape[1:])


def chunks(count: int, most: int | None) -> Iterator[slice]:
    """So many rows in parts of ``most`` at most."""
    step = most or max(count, 1)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
