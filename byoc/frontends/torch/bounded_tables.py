"""Tables whose rows are brought to a greatest norm, as ``nn.Embedding(max_norm=1)`` has them.

PyTorch writes the rows that a call looks up into the table. What a call gives is the same where it
looks them up in a table of bounded rows, which is a constant as the weights are. Tables that are no
weights stay as they are: what PyTorch writes there, the caller sees.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F


def _bounded(usual: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(usual)

    @wraps(usual)
    def look_up(*args: Any, **named: Any) -> Any:
        given = parameters.bind(*args, **named)
        given.apply_defaults()
        arguments = given.arguments
        table, most = arguments["weight"], arguments["max_norm"]
        if most is not None and isinstance(table, torch.nn.Parameter):
            arguments["weight"] = torch.renorm(table, arguments["norm_type"], 0, most)
            arguments["max_norm"] = None
        return usual(*given.args, **given.kwargs)

    return look_up


BOUNDED_TABLES = {(F, "embedding"): _bounded, (F, "embedding_bag"): _bounded}
