"""Tables whose rows are brought to a greatest norm, as ``nn.Embedding(max_norm=1)`` has them.

PyTorch writes the rows that a call looks up into the table. What a call gives is the same where it
looks them up in a table of bounded rows, which is a constant as the weights are. Tables that are no
weights stay as they are: what PyTorch writes there, the caller sees. One that something else reads
too is refused: there it has the rows bounded that calls looked up so far.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F

from byoc.errors import ModelError


def _bounded(usual: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(usual)

    @wraps(usual)
    def look_up(*args: Any, **named: Any) -> Any:
        given = parameters.bind(*args, **named)
        given.apply_defaults()
        arguments = given.arguments
        table, most = arguments["weight"], arguments["max_norm"]
        if most is not None and isinstance(table, torch.nn.Parameter):
            # The copy tells ``require_sole_readers`` of which tables the rows are bounded.
            arguments["weight"] = torch.renorm(table.clone(), arguments["norm_type"], 0, most)
            arguments["max_norm"] = None
        return usual(*given.args, **given.kwargs)

    return look_up


BOUNDED_TABLES = {(F, "embedding"): _bounded, (F, "embedding_bag"): _bounded}


def require_sole_readers(program: torch.export.ExportedProgram) -> None:
    """Raise ``ModelError`` where a table with bounded rows is read in another way as well."""
    aten = torch.ops.aten
    for node in program.graph.find_nodes(op="call_function", target=aten.renorm.default):
        copy = node.args[0]
        if copy.target is not aten.clone.default or copy.args[0].op != "placeholder":
            continue
        readers = [r for name in _names_of(program, copy.args[0]) for r in name.users]
        others = [reader for reader in readers if reader.target is not aten.clone.default]
        if others:
            name = program.graph_signature.inputs_to_parameters.get(copy.args[0].name)
            raise ModelError(
                f"embedding with max_norm bounds rows of {name!r} in place, call by call, and"
                f" {others[0].name} reads them as well; bound the table once, without max_norm"
            )


def _names_of(program: torch.export.ExportedProgram, table: torch.fx.Node) -> list[torch.fx.Node]:
    """The inputs that are one parameter, which modules may have under several names."""
    parameters = program.graph_signature.inputs_to_parameters
    places = {
        node: program.state_dict[parameters[node.name]].data_ptr()
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in parameters
    }
    return [node for node, place in places.items() if place == places.get(table)]
