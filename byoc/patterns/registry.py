"""Operators and predicates that users register beside the pattern table.

    @byoc.register_ext_op("relax.nn.conv2d")
    def only_large_images(node, call):
        height, width = node.shape[2:]
        return None if height * width >= 256 else f"image of {height}x{width}; need 256 pixels"

A predicate narrows what the table takes. A builder, ``register_ext_op(name, build=...)``, widens
it: it says which node an operator is that the table does not know, or refuses it by raising
``Unfit``. A kernel library must run that node all the same. See ``docs/annotate.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tvm import relax

from byoc.errors import ControlError
from byoc.ir.names import resolve_op
from byoc.patterns import TABLE, Candidate, Row, Unfit
from codegen_cc.node import Node

#: Answers for one call: None or True to offload it, a reason (or False) to leave it to TVM.
Predicate = Callable[[Node, relax.Call], "str | bool | None"]

#: Reads one call into a node and the expressions of its operands, or raises ``Unfit``.
Build = Callable[[relax.Call], Candidate]


@dataclass
class _Entry:
    predicates: list[Predicate] = field(default_factory=list)
    builders: list[Build] = field(default_factory=list)

    def build(self, call: relax.Call) -> Candidate:
        """What the builder says that was registered last, of those that do not refuse the call."""
        refused: list[Unfit] = []
        for builder in reversed(self.builders):
            try:
                return _built(builder, call)
            except Unfit as unfit:
                refused.append(unfit)
        raise Unfit("; ".join(dict.fromkeys(map(str, refused))))


_ENTRIES: dict[str, _Entry] = {}


def register_ext_op(op: str, *, build: Build | None = None) -> Callable[[Predicate], Predicate]:
    """Register a builder, a predicate or both for a Relax operator, for this process.

    ``register_ext_op("relax.nn.conv2d")`` decorates ``predicate(node, call)``, which is asked about
    every call of the operator that has a node. ``node`` is the descriptor of that call alone
    (operator, operand shapes, attributes), ``call`` the Relax call after canonicalisation, whose
    constant arguments hold their values (``call.args[1].value.numpy()``). It returns None (or True)
    to take the call, or the reason why not, which the report shows. Several predicates must agree.

    ``build(call)`` gives the node of an operator and the expressions of its operands; it comes
    before the table's own, and before builders that were registered earlier, which are asked about
    what it refuses by raising ``Unfit``. Calls that all refuse stay with TVM.

    Raises ``ControlError`` for a name that is no Relax operator, and for what is no function.
    """
    if build is not None and not callable(build):
        raise ControlError(f"build is {build!r}; need a function of a call")
    (name, *others) = resolve_op(op)
    if others:
        raise ControlError(f"operator {op!r} is one of {name}, {', '.join(others)}; name one")
    entry = _ENTRIES.setdefault(name, _Entry())
    if build is not None:
        entry.builders.append(build)

    def register(predicate: Predicate) -> Predicate:
        if not callable(predicate):
            raise ControlError(f"the predicate is {predicate!r}; need a function of node and call")
        entry.predicates.append(predicate)
        return predicate

    return register


def unregister_ext_op(op: str) -> None:
    """Forget all that was registered for an operator."""
    for name in resolve_op(op):
        _ENTRIES.pop(name, None)


def _built(builder: Build, call: relax.Call) -> Candidate:
    """What a builder says. Raises ``ControlError`` if it fails or gives something else."""
    name = getattr(builder, "__name__", type(builder).__name__)
    try:
        found = builder(call)
    except Unfit:
        raise
    except Exception as err:
        raise ControlError(
            f"builder {name} failed on {call.op.name}: {type(err).__name__}: {err}"
        ) from err
    if not isinstance(found, Candidate):
        raise ControlError(
            f"builder {name} of {call.op.name} gave {found!r}; need what"
            " byoc.patterns.row.candidate gives, or an Unfit of byoc.patterns.registry"
        )
    return found


def row_for(op: str | None) -> Row | None:
    """The row of an operator: the table's, with a registered builder in place of its own."""
    row = TABLE.get(op or "")
    entry = _ENTRIES.get(op or "")
    if entry is None or not entry.builders:
        return row
    return Row(op, entry.build, "") if row is None else replace(row, build=entry.build)


def predicates_for(op: str) -> list[Predicate]:
    """The predicates that are registered for an operator."""
    entry = _ENTRIES.get(op)
    return entry.predicates if entry is not None else []


def ask(predicate: Predicate, node: Node, call: relax.Call) -> str | None:
    """The reason why a predicate refuses a call; None if it does not.

    Raises ``ControlError`` if the predicate fails or answers something else.
    """
    name = getattr(predicate, "__name__", type(predicate).__name__)
    try:
        answer = predicate(node, call)
    except Exception as err:
        raise ControlError(
            f"predicate {name} failed on {call.op.name} {list(node.shape)}:"
            f" {type(err).__name__}: {err}"
        ) from err
    if answer is None or answer is True:
        return None
    if answer is False or answer == "":
        return f"refused by predicate {name}"
    if isinstance(answer, str):
        return answer
    raise ControlError(
        f"predicate {name} returned {type(answer).__name__}; return None, a bool or a reason"
    )


__all__ = [
    "Build",
    "Candidate",
    "Predicate",
    "Unfit",
    "ask",
    "predicates_for",
    "register_ext_op",
    "row_for",
    "unregister_ext_op",
]
