"""What an operator is: one record, which planner, kernel libraries, reports and docs read.

``codegen_cc/operators`` holds the records, a family in each file, and beside each the rule and the
calls of the built-in kernels.  Users register operators of their own (``register``), for which they
bring the kernels.  Records are below nodes, so that a node can ask its own: where functions take a
``Node``, a ``RegionNode`` or a ``Tensor``, the types here say ``Any``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from codegen_cc.custom import Custom
from codegen_cc.dim import Dim
from codegen_cc.errors import LibraryError

#: A number that a kernel is told, or the name of a C enumerator.
Number = Dim | float | str

#: ``neutral(node, told)``: whether an attribute is as a kernel that is not told it will assume,
#: given what it is told.
Neutral = Callable[[Any, Collection[str]], bool]

#: The package of the records; it is imported when the first one is asked for.
_RECORDS = "codegen_cc.operators"

#: Operators whose records are not a user's belong to nobody.
_OURS = ""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Layout(Enum):
    """What an operator's kernels want of the order of operands in memory, to plan by."""

    PLAIN = "read row-major"
    IMAGE = "images are read and written channels-last"
    VIEW = "only the view of the operand changes"
    LOOP = "operands are repeated to one shape and read in one order, which the result keeps"
    KEEP = "the operand is read dense in any order, which the result keeps"
    KEEP_GAPS = "the operand is read in any order, with gaps, and the result keeps it"
    AXES = "the attribute axes lie side by side"
    LAST_AXES = "the attribute axes lie innermost, in their order"
    FREE = "read with strides, or copied in any case"


@dataclass(frozen=True)
class Facts:
    """What a kernel of a user's table can be told of a node, as names of numbers.

    ``ranks`` are the ranks that ``numbers`` relies on.  ``numbers(node)`` gives the named numbers,
    ``names`` says which there are.  ``told_by`` lists, for each attribute that changes what is
    computed, the sets of names of which one must be told; ``neutral`` says when that is not needed.
    ``unfit(node, told, function)`` is why the numbers that a C function is told cannot describe a
    node's shapes, or None.
    ``params`` is the C type of the parameter block, and ``place(node, builder)`` fills it.
    """

    ranks: Mapping[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    numbers: Callable[[Any], dict[str, Number]] = lambda node: {}
    told_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    neutral: Mapping[str, Neutral] = field(default_factory=dict)
    unfit: Callable[[Any, Collection[str], str], str | None] = lambda node, told, function: None
    params: str | None = None
    place: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Narrow:
    """Which of a node's values its kernels read or write in fewer bits than their dtype has.

    ``roles`` are those of operands, and ``output``.  With ``alike`` all of them are stored in one
    dtype, whichever it is; the result ``follows`` the operand of that role: it is stored so only
    if that is.
    """

    roles: frozenset[str] = frozenset()
    alike: bool = False
    follows: str = ""


@dataclass(frozen=True)
class Kernels:
    """How the built-in kernels compute an operator.

    ``lower(node, builder)`` records the calls.  ``dtypes(node)`` and ``supports(node)`` give None
    or the reason why not.  ``algorithms(node)`` are the names of the ways to compute a node, the
    own choice first, and ``algorithm(node)`` is the name of the way that the node says or that is
    chosen; both are the operator's name where there is one way.  ``computes(node)`` is None, or the
    reason, for a node with a ``compute`` of its own: that it is not offered, or that nothing is
    gained by it.  Without it, nodes are computed in what they are stored in.  ``narrow(node)``
    tells which values may be stored as ``Node.storage`` says.  ``border`` is the number around an
    image that kernels take for padding of their own (``plan/borders.py``).
    """

    lower: Callable[[Any, Any], None]
    dtypes: Callable[[Any], str | None]
    supports: Callable[[Any], str | None] = lambda node: None
    algorithm: Callable[[Any], str] | None = None
    algorithms: Callable[[Any], tuple[str, ...]] | None = None
    computes: Callable[[Any], str | None] | None = None
    narrow: Callable[[Any], Narrow] = lambda node: Narrow()
    border: float | None = None


@dataclass(frozen=True)
class Operator:
    """One operator.

    ``roles`` name the operands, those of an epilogue aside; a node may lack those that are
    ``optional``.  An operator with any number of operands ``repeats`` one role: ``input0``, ...
    ``attributes`` are names, and what each holds; ``results`` the names of the results.
    ``about`` says what is computed.

    ``macs(node)`` counts multiply-accumulates.  ``moves`` says that data only move.
    ``elementwise`` operators may run over dense memory in any order.  ``view(node, tensor)`` gives
    the result as a view of the operand (None where that needs a copy).  ``epilogue`` are the steps
    that may follow, ``bias`` along ``channel_axis`` of the result.  ``weight_layout`` are the
    letters of the weight's axes.  ``named_by`` is what a composite is called by: ``op``, and names
    of attributes.  ``filled(node)`` are the first operand's axes that need an element where
    there is a result, ``reads(node)`` where reading begins on each of them, and where it ends,
    ``rests(node)`` extents that are below 0 where the operands are too small, ``differences(node)``
    what is 0 where sizes fit.
    ``samples()`` are nodes that libraries are asked about.
    ``custom`` is there for operators that Relax does not have: what models call them.
    """

    name: str
    roles: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    results: tuple[str, ...] = ("output",)
    optional: tuple[str, ...] = ()
    repeats: str = ""
    about: str = ""
    macs: Callable[[Any], Dim] = lambda node: 0
    layout: Layout = Layout.PLAIN
    view: Callable[[Any, Any], Any] | None = None
    moves: bool = False
    elementwise: bool = False
    epilogue: tuple[str, ...] = ()
    channel_axis: int = -1
    weight_layout: str = ""
    named_by: tuple[str, ...] = ("op",)
    filled: Callable[[Any], tuple[int, ...]] = lambda node: ()
    reads: Callable[[Any], tuple[tuple[Dim, Dim], ...]] = lambda node: ()
    rests: Callable[[Any], tuple[Dim, ...]] = lambda node: ()
    differences: Callable[[Any], tuple[Dim, ...]] = lambda node: ()
    facts: Facts = Facts()
    kernels: Kernels | None = None
    samples: Callable[[], Iterable[Any]] = tuple
    custom: Custom | None = None

    def is_role(self, name: str) -> bool:
        """Whether a name is that of an operand."""
        number = name.removeprefix(self.repeats) if self.repeats else ""
        return name in self.roles or (number != name and number.isdecimal())


_known: dict[str, Operator] = {}
_owners: dict[str, str] = {}


def register(operator: Operator, owner: str = _OURS) -> None:
    """Make an operator known; ``owner`` is the kernel library that brings it.

    Raises ``LibraryError`` for a name that is no C identifier or belongs to somebody else.
    """
    who = f"library {owner}, operator {operator.name!r}"
    if operator.custom is not None:
        operator = _with_custom(operator, who)
    if owner != _OURS:
        _load()
        names = (operator.name, *operator.roles, *operator.results, *operator.attributes)
        for name in names:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise LibraryError(f"{who}: {name!r} is no name; need a C identifier")
        if len(set(names[1:])) < len(names[1:]):
            raise LibraryError(f"{who}: a name stands for two of its operands, attributes, results")
    if operator.name in _known and _owners[operator.name] != owner:
        whose = _owners[operator.name]
        raise LibraryError(
            f"{who}: {f'library {whose} has' if whose else 'there is'} an operator of that name;"
            " choose another"
        )
    if owner != _OURS:  # what is not told is not asked, whatever the record leaves out
        told_by = {**dict.fromkeys(operator.attributes, ()), **operator.facts.told_by}
        operator = replace(operator, facts=replace(operator.facts, told_by=told_by))
    _known[operator.name] = operator
    _owners[operator.name] = owner


def _with_custom(operator: Operator, who: str) -> Operator:
    """An operator with the attributes that models give it. Raises ``LibraryError``."""
    custom = operator.custom
    custom.check(who)
    for other in _known.values():
        twice = set(other.custom.names if other.custom else ()) & set(custom.names)
        if twice and other.name != operator.name:
            raise LibraryError(
                f"{who}: {min(twice)!r} is operator {other.name!r} already; choose another name"
            )
    missing = [name for name in operator.attributes if name not in custom.attributes]
    if missing:
        raise LibraryError(
            f"{who}: attributes of custom lack {missing[0]!r}; give its type or usual value"
        )
    told = {name: f"usually {usual}" for name, usual in custom.attributes.items()}
    return replace(operator, attributes={**told, **operator.attributes})


def custom_operators() -> list[Operator]:
    """The operators that models call by names of users' own."""
    return [operator for operator in _known.values() if operator.custom is not None]


def custom_operator(name: str) -> Operator | None:
    """The operator that models call by a name, ``domain::Name``; None where nobody brought one."""
    return next((each for each in custom_operators() if name in each.custom.names), None)


def known_operators() -> dict[str, Operator]:
    """All operators by name: ours, then those that users registered."""
    _load()
    return dict(_known)


def is_operator(name: str) -> bool:
    """Whether there is an operator of that name."""
    _load()
    return name in _known


def owner_of(name: str) -> str:
    """The kernel library that brought an operator; empty for ours."""
    return _owners[name]


def operator_of(name: str) -> Operator:
    """The record of an operator. Raises ``LibraryError`` where there is none."""
    found = _known.get(name)
    if found is None:
        _load()
        found = _known.get(name)
    if found is None:
        raise LibraryError(
            f"no operator is called {name!r}; need one of {', '.join(_known)}, or the kernel"
            " library that brings it"
        )
    return found


def _load() -> None:
    if not _known:
        importlib.import_module(_RECORDS)
