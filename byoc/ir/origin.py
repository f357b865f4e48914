"""Where a binding comes from: the nodes of the original model, and whether a user marked it.

TVM's importer drops the names of ONNX nodes. Ours stand in the *span* of the bound expression, the
one field that Relax passes hand on, that no operator reads, and that is saved with a module. A span
holds one text, so an origin is written as JSON behind a prefix that tells it from a real source
location. Names are arbitrary texts (quotes, newlines, ``*/``); whoever prints them escapes them.

Beside them stands which value of the original model the binding itself gives, where it gives one:
a node may have several results, and be several bindings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import tvm
from tvm import relax

#: Begins the source name of every span that holds an origin.
PREFIX = "byoc.ir.origin:"


@dataclass(frozen=True)
class Origin:
    """Names of nodes of the original model, in order, and whether any of them is marked.

    ``value`` is the original model's name of what the binding gives; empty where it has none.
    """

    names: tuple[str, ...] = ()
    marked: bool = False
    value: str = ""

    @property
    def of_a_part(self) -> Origin:
        """The origin of another value that the same nodes need."""
        return replace(self, value="") if self.value else self

    def __or__(self, other: Origin) -> Origin:
        """Both origins in one, each name once; of neither's value, unless they are the same."""
        if not other or self == other:
            return self
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        return Origin(names, self.marked or other.marked)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.names) or self.marked


#: Nothing is known of where a binding comes from.
UNKNOWN = Origin()


def origin_of(expr: relax.Expr) -> Origin:
    """The origin of a bound expression; ``UNKNOWN`` if it carries none."""
    span = expr.span
    name = str(span.source_name.name) if isinstance(span, tvm.ir.Span) else ""
    if not name.startswith(PREFIX):
        return UNKNOWN
    names, *others = json.loads(name[len(PREFIX) :])
    return Origin(tuple(names), *others)


def with_origin(expr: relax.Expr, origin: Origin) -> relax.Expr:
    """The expression with another origin; variables, constants and branches stay as they are."""
    if not origin or not isinstance(expr, relax.Call | relax.TupleGetItem):
        return expr
    text = PREFIX + json.dumps([origin.names, origin.marked, origin.value])
    span = tvm.ir.Span(tvm.ir.SourceName(text), 0, 0, 0, 0)
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span, expr.ty)
    return relax.TupleGetItem(expr.tuple_value, expr.index, span)
