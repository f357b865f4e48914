"""What became of each kernel library that a user asked for: nodes, and why none where none.

A library can be idle for reasons that its user cannot see: a pattern took the operator into a node
of several (attention contains its softmax), another library stands before it in the order, or it
refuses every node that there is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from byoc.ir.dataflow import is_region, op_name
from byoc.ir.names import matches
from byoc.ir.walk import bindings_of, composites_of
from byoc.patterns import Unfit
from byoc.patterns.registry import row_for
from byoc.report.left import NAMES, Left
from codegen_cc.libraries import KernelLibrary, Selection
from codegen_cc.node import Node

#: Reasons that are kept for a library.
_LISTED = 3


@dataclass(frozen=True)
class Asked:
    """A library, what it was asked for, how many nodes it took, and why none where none.

    ``what`` is an operator of nodes, a pattern of node names, or ``every node``.
    """

    library: str
    what: str
    nodes: int
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line, such as ``onednn, asked for softmax: no node (2 x softmax is part of ...)``."""
        count = f"{self.nodes} node{'' if self.nodes == 1 else 's'}" if self.nodes else "no node"
        why = f" ({'; '.join(self.why)})" if self.why else ""
        return f"{self.library}, asked for {self.what}: {count}{why}"


@dataclass(frozen=True)
class _Taken:
    """A node of a region, and the operators that its composite stands for, as nodes alone."""

    node: Node
    parts: tuple[str, ...]


def asked_libraries(
    mod: tvm.IRModule, selection: Selection, left: Sequence[Left]
) -> tuple[Asked, ...]:
    """Look up every library of a selection in a partitioned module."""
    taken = list(_taken(mod))
    found = [_every(library, taken, left) for library in selection.order]
    found += [_operator(op, library, taken, left) for op, library in selection.by_operator]
    found += [_named(glob, library, taken, left) for glob, library in selection.by_name]
    return tuple(found)


def _taken(mod: tvm.IRModule) -> Iterator[_Taken]:
    for func in mod.functions.values():
        for _, composite, node in composites_of(func) if is_region(func) else ():
            yield _Taken(node, tuple(_parts(composite)))


def _parts(composite: relax.Function) -> Iterator[str]:
    for binding in bindings_of(composite):
        row = row_for(op_name(binding.value))
        try:
            if row is not None:
                yield row.build(binding.value).node.op
        except Unfit:
            continue


def _every(library: KernelLibrary, taken: Sequence[_Taken], left: Sequence[Left]) -> Asked:
    count = sum(one.node.library == library.name for one in taken)
    if count:
        return Asked(library.name, "every node", count)
    reasons: Counter[str] = Counter()
    for one in taken:
        refusal = library.supports(one.node)
        reasons[f"{one.node.op}: {refusal or f'{one.node.library} was preferred'}"] += 1
    return Asked(library.name, "every node", 0, _listed(reasons + _refused(library, left)))


def _operator(
    op: str, library: KernelLibrary, taken: Sequence[_Taken], left: Sequence[Left]
) -> Asked:
    count = sum(one.node.op == op and one.node.library == library.name for one in taken)
    if count:
        return Asked(library.name, op, count)
    reasons: Counter[str] = Counter()
    for one in taken:
        if one.node.op == op:  # by a name that forces another library, or as measured
            reasons[f"{op}: {one.node.library} was preferred"] += 1
        elif op in one.parts:
            whole = f"{one.node.op}, which {one.node.library} computes"
            reasons[f"{op} is part of {whole}"] += one.parts.count(op)
    found = _listed(reasons + _refused(library, left))
    return Asked(library.name, op, 0, found or (f"no {op} among the nodes",))


def _named(
    glob: str, library: KernelLibrary, taken: Sequence[_Taken], left: Sequence[Left]
) -> Asked:
    fitting = [one.node for one in taken if matches(glob, one.node.source)]
    count = sum(node.library == library.name for node in fitting)
    if count:
        return Asked(library.name, glob, count)
    reasons = Counter(f"{node.op}: {node.library} was preferred" for node in fitting)
    stayed = [entry for entry in left if matches(glob, (entry.name, *entry.name.split(NAMES)))]
    reasons += Counter(f"{entry.op}: {entry.reason}" for entry in stayed)
    return Asked(library.name, glob, 0, _listed(reasons))


def _refused(library: KernelLibrary, left: Sequence[Left]) -> Counter[str]:
    """What the library said of calls that stay (see ``Selection.pick``)."""
    # Reasons of several libraries are one text: "onednn: rank 3; need 2; cblas: ...".
    part = re.compile(rf"(?:^|; ){re.escape(library.name)}: (.*?)(?=; \w+: |$)")
    said = ((entry.op, part.search(entry.reason)) for entry in left)
    return Counter(f"{op}: {match[1]}" for op, match in said if match)


def _listed(reasons: Counter[str]) -> tuple[str, ...]:
    return tuple(f"{count} x {reason}" for reason, count in reasons.most_common(_LISTED))
