"""Which library computes which node: by order, forced for operators or nodes, or as measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codegen_cc.errors import LibraryError
from codegen_cc.libraries.assignment import assigned, parse, split_text, unknown_pattern
from codegen_cc.libraries.interface import KernelLibrary
from codegen_cc.libraries.registry import library
from codegen_cc.node import Elsewhere, Node
from codegen_cc.operator import is_operator, operator_of
from codegen_cc.plan.tensors import MAX_AXES

if TYPE_CHECKING:
    from codegen_cc.libraries.measured_choice import Tuning

#: Takes one of the libraries that support a node, which are in the user's order.
Choice = Callable[[Node, Sequence[KernelLibrary]], KernelLibrary]

#: What a user gives to say which library computes what.
Specs = str | KernelLibrary | Iterable[str | KernelLibrary] | None


def first(node: Node, candidates: Sequence[KernelLibrary]) -> KernelLibrary:
    """The first in the user's order."""
    del node
    return candidates[0]


def cheapest(node: Node, candidates: Sequence[KernelLibrary]) -> KernelLibrary:
    """The one that states the least cost; the first in order if none states any."""
    known = [(cost, i) for i, c in enumerate(candidates) if (cost := c.cost(node)) is not None]
    return candidates[min(known)[1]] if known else candidates[0]


@dataclass(frozen=True)
class Selection:
    """The user's choice of libraries.

    ``order`` are those to ask; ``by_operator`` and ``by_name`` (shell patterns of node names, the
    first that fits) force one for some nodes; ``choose`` decides where several can; ``tuning`` has
    the last word among those that may be asked, where it knows a node; ``exact`` is that of every
    node. ``fleet`` are the times of all machines, by their names, where one library is to know
    several; ``tuning`` is then that of the first.
    """

    order: tuple[KernelLibrary, ...]
    by_operator: tuple[tuple[str, KernelLibrary], ...] = ()
    by_name: tuple[tuple[str, KernelLibrary], ...] = ()
    choose: Choice = first
    tuning: Tuning | None = None
    exact: bool = False
    fleet: tuple[tuple[str, Tuning], ...] = ()

    @property
    def all(self) -> tuple[KernelLibrary, ...]:
        """Every library that may be asked, some several times: an object may have no hash."""
        return (*self.order, *(found for _, found in (*self.by_operator, *self.by_name)))

    @classmethod
    def of(cls, specs: Specs = None, choose: Choice = first) -> Selection:
        """Read what a user gives: ``onednn,builtin``, ``conv2d=onednn``, ``encoder/*=cblas``.

        Libraries are names, paths of ``.py`` files, or objects; commas and items of the iterable
        separate alike.  Without an order, ``builtin`` is asked alone.  Raises ``LibraryError``.
        """
        order: list[KernelLibrary] = []
        by_operator: list[tuple[str, KernelLibrary]] = []
        by_name: list[tuple[str, KernelLibrary]] = []
        for spec in _several(specs):
            pair = parse(spec) if isinstance(spec, str) else ("", spec)
            if pair is None:
                raise LibraryError(
                    f"cannot read library choice {spec!r}; need NAME, FILE.py, OPERATOR=NAME or"
                    " NODE_PATTERN=NAME"
                )
            what, found = pair[0], library(pair[1])
            if not what:
                order += [] if found in order else [found]
            elif is_operator(what):
                by_operator.append((what, found))
            else:
                by_name.append((what, found))
        return cls(
            tuple(order) or (library("builtin"),), tuple(by_operator), tuple(by_name), choose
        )

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ``LibraryError`` for a pattern that fits no operator and none of these nodes."""
        pairs = [(pattern, found.name) for pattern, found in self.by_name]
        if (problem := unknown_pattern(pairs, names)) is not None:
            raise LibraryError(problem)

    def candidates(self, node: Node, names: Iterable[str] = ()) -> tuple[KernelLibrary, ...]:
        """The libraries to ask about a node of these names: the forced one, or all in order."""
        if node.library:
            return (library(node.library),)
        forced = self.forced(names) or dict(self.by_operator).get(node.op)
        return self.order if forced is None else (forced,)

    def forced(self, names: Iterable[str]) -> KernelLibrary | None:
        """The library that a pattern forces for nodes of these names, or None."""
        return assigned(self.by_name, names)

    def pick(self, node: Node, names: Iterable[str] = ()) -> KernelLibrary | str:
        """The library for a node, or the reasons why none can compute it."""
        asked = self.candidates(node, names)
        reasons = {found.name: _refusal(found, node) for found in asked}
        able = [found for found in asked if reasons[found.name] is None]
        if able:
            return self.choose(node, able)
        if list(reasons) == ["builtin"]:
            return str(reasons["builtin"])
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def measured(self, node: Node, names: Iterable[str] = ()) -> Node:
        """A node that has its library, with library and algorithm by measurement where known."""
        if self.tuning is None:
            return node
        able = self.able(node, names)
        elsewhere = tuple(
            Elsewhere(machine, found.library, found.algorithm)
            for machine, tuning in self.fleet
            for found in [tuning.apply(node, able)]
        )
        return replace(self.tuning.apply(node, able), elsewhere=elsewhere)

    def others_compute(self, node: Node) -> bool:
        """Whether a library but the builtin one can compute a node, whatever it is called."""
        others = (found for found in self.all if found.name != "builtin")
        return any(_refusal(found, node) is None for found in others)

    def able(self, node: Node, names: Iterable[str] = ()) -> list[KernelLibrary]:
        """The libraries that may compute a node, whichever it has, and can."""
        asked = self.candidates(replace(node, library=""), names)
        return [found for found in asked if _refusal(found, node) is None]


def _refusal(found: KernelLibrary, node: Node) -> str | None:
    """None if a library computes the node; the reason of the library, or of every region."""
    rank = max(len(part.shape) for part in (*node.results, *node.operands))
    if rank > MAX_AXES:  # for which a region's entry and its views have no room
        return f"rank {rank}; need at most {MAX_AXES}"
    names = operator_of(node.op).results if is_operator(node.op) else ()
    if names and len(node.results) > len(names):
        return f"{len(node.results)} results; {node.op} has {', '.join(names)}"
    return found.supports(node)


def _several(specs: Specs) -> list[str | KernelLibrary]:
    single = specs is None or isinstance(specs, str | KernelLibrary)
    try:
        if isinstance(specs, bytes):
            raise TypeError
        items = [specs] if single else list(specs)
    except TypeError:  # an array without axes says that it can be iterated over
        kind = type(specs).__name__
        raise LibraryError(
            f"libraries are of type {kind}; need names, paths of .py files, or objects"
        ) from None
    parts: list[str | KernelLibrary] = []
    for item in items:
        if item is not None:
            parts += split_text(item) if isinstance(item, str) else [item]
    return parts
