"""The rules of a partition: what to skip and to keep to, which libraries, how exact, how small.

What to skip is decided for each call before the matcher looks at it: a refused call is offered to
no pattern, neither as a root nor as a later step of another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from byoc.arguments import as_texts, as_whole
from byoc.errors import ControlError
from byoc.ir.dataflow import Block, is_candidate, op_name
from byoc.ir.names import matches, resolve_op, suggestion
from byoc.ir.origin import origin_of
from byoc.ir.walk import bindings_of
from byoc.partition.marks import is_marked
from byoc.partition.precision import Precision, PrecisionSpecs
from byoc.partition.prune import MIN_COMPUTE_BYTES
from byoc.patterns import Idiom, Unfit
from byoc.patterns.registry import Predicate, ask, predicates_for, row_for
from byoc.report.reasons import Chosen
from codegen_cc.libraries import Selection, default_selection
from codegen_cc.libraries.selection import Specs
from codegen_cc.node import Node

#: What a user gives to say which kernel library computes what (see ``Selection.of``).
Libraries = Selection | Specs


@dataclass(frozen=True)
class Rules:
    """What a user asks of a partition, read and checked once (``of``).

    ``skip_ops`` and ``only`` are full names of Relax operators, ``skip_nodes`` patterns of node
    names; ``predicate`` is asked as those of ``register_ext_op`` are, about every operator.
    ``libraries`` says which kernel library is to compute what, by which measured times, and whether
    nodes are exact; ``precision`` what is to be multiplied in fewer bits. A region without a
    contraction must compute on ``min_bytes`` bytes.
    """

    skip_ops: frozenset[str] = frozenset()
    skip_nodes: tuple[str, ...] = ()
    only: frozenset[str] = frozenset()
    predicate: Predicate | None = None
    libraries: Selection = field(default_factory=default_selection)
    min_bytes: int = MIN_COMPUTE_BYTES
    precision: Precision = field(default_factory=Precision)

    @classmethod
    def of(
        cls,
        skip_ops: Iterable[str] = (),
        skip_nodes: Iterable[str] = (),
        only: Iterable[str] = (),
        predicate: Predicate | None = None,
        libraries: Libraries = None,
        min_bytes: int = MIN_COMPUTE_BYTES,
        precision: Precision | PrecisionSpecs = (),
    ) -> Rules:
        """Read what a user gives.

        Raises ``ControlError`` for names of no operator, ``LibraryError`` for libraries.
        """
        if predicate is not None and not callable(predicate):
            raise ControlError(
                f"predicate is of type {type(predicate).__name__}; need a function of node and call"
            )
        return cls(
            _resolved(skip_ops, "skip_ops"),
            as_texts(skip_nodes, "skip_nodes", ControlError),
            _resolved(only, "only"),
            predicate,
            libraries if isinstance(libraries, Selection) else Selection.of(libraries),
            as_whole(min_bytes, "min_bytes", ControlError, 0, sys.maxsize),
            precision if isinstance(precision, Precision) else Precision.of(precision),
        )

    @property
    def exact(self) -> bool:
        """Whether NaN, infinities and huge numbers flow as through the operators' formulas."""
        return self.libraries.exact

    def least_bytes(self, mod: tvm.IRModule) -> int:
        """``min_bytes`` for a module; 0, every region, where it has marks, and where exact.

        Who marks a binding has decided that it is worth a region. TVM's own kernels drop NaN.
        """
        return 0 if is_marked(mod) or self.exact else self.min_bytes

    def check_nodes(self, mod: tvm.IRModule) -> None:
        """Raise ``ControlError`` if a pattern of ``skip_nodes`` matches no node of a module.

        The same for one that chooses a precision, ``LibraryError`` for one that forces a library.
        """
        if not (self.skip_nodes or self.libraries.by_name or self.precision.by_name):
            return
        known = dict.fromkeys(name for names in _module_names(mod) for name in names)
        self.libraries.check_names(known)
        self.precision.check_names(known)
        for glob in self.skip_nodes:
            if not matches(glob, known):
                raise ControlError(
                    f"no node is called {glob!r}{suggestion(glob, list(known))};"
                    " byoc partition --html shows all names"
                )

    def others_compute(self, call: relax.Call) -> bool:
        """Whether a library but the builtin one computes a call as it is written."""
        node = _node_of(op_name(call) or "", call, None)
        return node is not None and self.libraries.others_compute(node)

    def refusals(self, block: Block, idioms: Sequence[Idiom] = ()) -> dict[relax.Var, str]:
        """Why calls of a block must stay with TVM; calls that may be offloaded are not listed."""
        marked_only = block.mod is not None and is_marked(block.mod)
        simple = {idiom.result: idiom for idiom in idioms if len(idiom.bindings) == 1}
        refused: dict[relax.Var, str] = {}
        for var, call in block.calls():
            op = op_name(call)
            if op is None:
                continue
            reason = self._rule(block, var, op, marked_only)
            reason = reason or self._predicates(op, call, simple.get(var))
            if reason is not None:
                refused[var] = Chosen(reason)
        return refused

    def _rule(self, block: Block, var: relax.Var, op: str, marked_only: bool) -> str | None:
        if op in self.skip_ops:
            return f"skipped by operator {op}"
        if self.only and op not in self.only:
            return f"not among the operators to offload ({', '.join(sorted(self.only))})"
        names = block.origin(var).names or (var.name,)
        for glob in self.skip_nodes:
            if matches(glob, names):
                return f"skipped by node name {glob!r}"
        if marked_only and not block.origin(var).marked:
            return f"{op} is not marked; need a mark, as the module has some"
        return None

    def _predicates(self, op: str, call: relax.Call, idiom: Idiom | None) -> str | None:
        predicates = [*predicates_for(op)]
        if self.predicate is not None:
            predicates.append(self.predicate)
        node = _node_of(op, call, idiom) if predicates else None
        if node is None:
            return None
        return next((r for r in (ask(p, node, call) for p in predicates) if r is not None), None)


#: Leaves everything to the pattern table.
FREE = Rules()


def _node_of(op: str, call: relax.Call, idiom: Idiom | None) -> Node | None:
    """The descriptor of a call alone; None if the table has none, and gives the reason itself."""
    row = row_for(op)
    try:
        if row is not None:
            return row.build(call).node
        return idiom.candidate().node if idiom is not None else None
    except Unfit:
        return None


def _resolved(names: Iterable[str], argument: str) -> frozenset[str]:
    given = as_texts(names, argument, ControlError)
    return frozenset(name for op in given for name in resolve_op(op))


def _module_names(mod: tvm.IRModule) -> Iterator[tuple[str, ...]]:
    for func in mod.functions.values():
        if not is_candidate(func):
            continue
        for binding in bindings_of(func):
            value = binding.value if isinstance(binding, relax.VarBinding) else None
            yield (value is not None and origin_of(value).names) or (binding.var.name,)
