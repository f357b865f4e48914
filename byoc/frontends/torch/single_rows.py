"""Axes that may not be 1, as the module then computes something else than what was traced.

PyTorch's tracer supposes that open sizes are 2 or more, and notes nothing of code that looks for a
size of 1, nor that ``squeeze()`` takes such an axis away. Most modules compute the same for one
row. So the module is asked, beside the traced program and the shapes that it was traced with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from byoc.frontends.torch.computed_axes import value_of
from byoc.frontends.torch.nodes import inputs_of

#: How far results may be apart, as a share of the greatest.
_TOLERANCE = 1e-3

Answer = Callable[[list[Any]], list[Any]]


def not_for_one(
    program: torch.export.ExportedProgram,
    module: Answer,
    traced: Answer,
    is_refused: Callable[[Mapping[str, int]], bool],
    name_of: Callable[[str], str],
) -> frozenset[str]:
    """PyTorch's symbols of axes for whose size 1 the two do not agree; those of one name are 1
    together.

    Both take the leaves of the arguments, and give those of the result. What the module refuses
    tells nothing, and sizes that are refused anyway need no look.
    """
    leaves = pytree.tree_leaves(program.example_inputs)
    shapes = _shapes(program)
    if len(shapes) != len(leaves) or _changes_tensors(program):
        return frozenset()
    sizes = {
        str(size): given
        for leaf, shape in zip(leaves, shapes, strict=True)
        for size, given in zip(shape, getattr(leaf, "shape", ()), strict=False)
        if isinstance(size, sympy.Symbol)
    }
    counts = _counts(leaves, shapes)
    found = set()
    for symbol, given in sizes.items():
        known = {s: 1 if name_of(s) == name_of(symbol) else n for s, n in sizes.items()}
        known |= {s: n for s, n in counts.items() if s not in known}
        if given < 2 or is_refused(known):
            continue
        single = _with_sizes(leaves, shapes, known)
        if single is not None and _differ(single, module, traced, _results(program, known)):
            found.add(symbol)
    return frozenset(found)


def _counts(leaves: list[Any], shapes: list[tuple[Any, ...]]) -> dict[str, int]:
    """What is counted of axes that are computed of it, by its symbol: the ``h`` of ``32 * h``."""
    found = {}
    for leaf, shape in zip(leaves, shapes, strict=True):
        for size, given in zip(shape, getattr(leaf, "shape", ()), strict=False):
            one = not isinstance(size, int) and len(size.free_symbols) == 1
            if one and (count := value_of(size, given)) is not None:
                found[str(*size.free_symbols)] = count
    return found


def _shapes(program: torch.export.ExportedProgram) -> list[tuple[Any, ...]]:
    """The shapes of all leaves of the arguments, open sizes as SymPy's expressions."""
    return [_shape(node) for node in inputs_of(program)]


def _results(
    program: torch.export.ExportedProgram, sizes: Mapping[str, int]
) -> list[tuple[Any, ...]]:
    """The shapes of all leaves of the result, at these sizes."""
    kind = torch.export.graph_signature.OutputKind.USER_OUTPUT
    specs = program.graph_signature.output_specs
    nodes = program.graph.output_node().args[0]
    shapes = [_shape(n) for n, spec in zip(nodes, specs, strict=True) if spec.kind is kind]
    return [tuple(_at(size, sizes) for size in shape) for shape in shapes]


def _shape(node: Any) -> tuple[Any, ...]:
    """Of a tensor; empty for what is none."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return ()
    return tuple(size.node.expr if isinstance(size, torch.SymInt) else size for size in value.shape)


def _at(size: Any, sizes: Mapping[str, int]) -> Any:
    """A size where symbols have these values; an expression where one has none, or divides by 0."""
    if isinstance(size, int):
        return size
    known = {symbol: sizes[str(symbol)] for symbol in size.free_symbols if str(symbol) in sizes}
    try:
        found = size.subs(known)
    except ZeroDivisionError:
        return size
    return int(found) if found.is_Integer else found


def _changes_tensors(program: torch.export.ExportedProgram) -> bool:
    signature = program.graph_signature
    return bool(signature.buffers_to_mutate or signature.user_inputs_to_mutate)


def _with_sizes(
    leaves: list[Any], shapes: list[tuple[Any, ...]], sizes: Mapping[str, int]
) -> list[Any] | None:
    """The first elements of the leaves, as many as these sizes say; None where they have less."""
    made = []
    for leaf, shape in zip(leaves, shapes, strict=True):
        for axis, size in enumerate(shape):
            wanted = _at(size, sizes)
            if not isinstance(wanted, int) or not 0 <= wanted <= leaf.shape[axis]:
                return None
            leaf = leaf.narrow(axis, 0, wanted)
        made.append(leaf.clone() if isinstance(leaf, torch.Tensor) else leaf)
    return made


def _differ(
    leaves: list[Any], module: Answer, traced: Answer, shapes: list[tuple[Any, ...]]
) -> bool:
    copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    try:
        wanted, found = module(leaves), traced(copies)
    except Exception:  # whatever the module's own code raises
        return False
    return len(wanted) != len(found) or not all(map(_agree, wanted, found, shapes))


def _agree(wanted: Any, found: Any, shape: tuple[Any, ...]) -> bool:
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return True
    if isinstance(wanted, FakeTensor):  # which a dictionary of the code's keeps from the trace
        return True
    is_known = all(isinstance(size, int) for size in shape)
    if wanted.shape != found.shape or (is_known and wanted.shape != shape):
        return False
    if not wanted.is_floating_point():
        return torch.equal(wanted, found)
    greatest = wanted.nan_to_num(0.0, 0.0, 0.0).abs().max().item() if wanted.numel() else 0.0
    return torch.allclose(wanted, found, _TOLERANCE, _TOLERANCE * greatest, equal_nan=True)
