"""Named sizes of which PyTorch's tracer notes a condition.

It refuses a ``Dim`` with a name unless it can prove that its code is for all sizes in the range:
not even ``2 % (2 + 2 * (length // 8)) != 0`` of ``torch.stft`` is proved. Sizes without names may
have conditions. So such ones are traced, and the library checks the conditions at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.export.dynamic_shapes import _DerivedDim
from torch.fx.experimental.symbolic_shapes import DimConstraints
from torch.utils import _pytree as pytree

from byoc.deploy.conditions import condition
from byoc.errors import ModelError
from byoc.frontends.torch.replaced import replaced

#: What the tracer says of guards that it does not prove, or that it solves, at times for one of
#: many sizes: ``(3 * n - 1) // n == 2`` of ``torch.chunk``.
_UNPROVED = ("satisfy the generated guard", "solving the guards generated")


def traced_with_conditions(
    trace: Callable[[Any], ExportedProgram],
    declared: Callable[[ExportedProgram], Sequence[tuple[Dim, Any]]],
    shapes: Any,
) -> ExportedProgram:
    """What ``trace`` makes of the declared shapes, whose named sizes may have conditions;
    ``declared`` gives the sizes of a program that have names."""
    try:
        return trace(shapes)
    except Exception as error:
        nameless = _without_names(error, shapes)
        if nameless is not None:
            with suppress(Exception):
                program = trace(nameless)
                if _are_named_alike(declared(program)):
                    return program
        raise


@contextmanager
def unsolved_conditions() -> Iterator[None]:
    """Conditions that the tracer does not solve stay conditions within this context: where SymPy
    finds no single size of which one holds, the tracer would fail."""
    usual = DimConstraints.solve

    def solve(constraints: DimConstraints) -> None:
        with suppress(AssertionError):
            usual(constraints)

    with replaced({(DimConstraints, "solve"): solve}):
        yield


def _without_names(error: Exception, shapes: Any) -> Any | None:
    """The shapes with sizes of the same ranges, and no names, for those that the tracer refused.

    None where it refused for another reason, and where sizes are computed of others (``2 * n``).
    """
    reasons = [line for line in str(error).splitlines() if line.startswith("  - ")]
    unproved = bool(reasons) and all(any(text in line for text in _UNPROVED) for line in reasons)
    failed = isinstance(error, NotImplementedError)  # of SymPy, which proves
    failed |= "Cannot create Dim" in str(error)  # of what the tracer would propose
    if not unproved and not failed:
        return None
    dims = [leaf for leaf in pytree.tree_leaves(shapes) if isinstance(leaf, Dim)]
    if any(isinstance(dim, _DerivedDim) for dim in dims):
        return None

    def nameless(dim: Any) -> Any:
        most = int(dim.max) if isinstance(dim.max, int) else None
        return Dim.DYNAMIC(min=dim.min or None, max=most)

    return pytree.tree_map_only(Dim, nameless, shapes)


def _are_named_alike(declared: Sequence[tuple[Dim, Any]]) -> bool:
    """Whether each named size is one symbol, another than that of each other name."""
    symbols: dict[str, Any] = {}
    for dim, size in declared:
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
            return False
        if symbols.setdefault(dim.__name__, size.node.expr) != size.node.expr:
            return False
    return bool(symbols) and len(set(symbols.values())) == len(symbols)


def require_open(conditions: Sequence[str], names: Iterable[str], greatest: int) -> None:
    """Raise ``ModelError`` for a named size that conditions leave one value, as those of code
    do that keeps what it made for one image; ``greatest`` is above all that are in question.

    PyTorch's tracer says so where the size itself is fixed, and not where one made of it is.
    """
    known = [condition(text) for text in conditions]
    for name in names:
        own = [needed for needed in known if needed.names == {name}]
        fixing = [needed.text for needed in own if " == " in needed.text]
        if not fixing:
            continue
        sizes = (size for size in range(1, greatest) if all(c.holds({name: size}) for c in own))
        if (only := next(sizes, None)) is not None and next(sizes, None) is None:
            raise ModelError(
                f"{name!r} was declared open, and the module's code is for {name} = {only} alone: "
                f"it needs {fixing[-1]}; give the axis a fixed size, or another example (a "
                "larger one, or a module that has not run, where it keeps what it made)"
            )


def symbol_names(declared: Iterable[tuple[Dim, Any]]) -> dict[str, str]:
    """The names that a user gave dimensions (``Dim("batch")``), by PyTorch's symbols."""
    names: dict[str, str] = {}
    for dim, size in declared:
        if isinstance(size, torch.SymInt):
            names |= _named(size.node.expr, dim)
    return names


def _named(size: Any, dim: Dim) -> dict[str, str]:
    """What a declared size calls the symbol that it is, or that it is computed of: the ``h`` of
    ``32 * h``. Nothing where the tracer found it to be another size than was declared."""
    root = dim.root if isinstance(dim, _DerivedDim) else dim
    if len(size.free_symbols) != 1:
        return {}
    (symbol,) = size.free_symbols
    declared = dim.fn(symbol) if isinstance(dim, _DerivedDim) else symbol
    return {str(symbol): root.__name__} if size == declared else {}
