"""What PyTorch's tracer noted of the sizes that a program is for, as conditions on its symbols.

A tracer that meets ``if x.shape[0] % 2 == 0`` follows one branch, and notes that sizes must go the
same way. It notes as well that sizes are not 0 or 1, and that two sizes differ, for rules of
broadcasting and of layouts that hold without: such notes say nothing here. That a size is not 17
may come of either. Where the tracer was in PyTorch's own code it says nothing, in a user's it
counts; a program from a file does not tell, so that it counts there where no rule needs it.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard
from torch.utils import _pytree as pytree
from torch.utils._sympy.functions import ToFloat, TruncToInt
from torch.utils._sympy.printers import PythonPrinter

from byoc.deploy.conditions import Condition, condition
from byoc.errors import ModelError
from byoc.frontends.torch.computed_axes import computed_axes, supposed_least
from byoc.frontends.torch.nodes import inputs_of
from byoc.frontends.torch.symbols import MOST_TIMES, share_of

#: Functions that the tracer writes, as conditions call them.
_FUNCTIONS = {
    **{"Max": "max", "Min": "min", "ToFloat": "float"},
    **{"sym_max": "max", "sym_min": "min", "sym_float": "float", "sym_int": "trunc"},
    "TruncToInt": "trunc",
}

#: Where Dynamo asks what the code that it follows needs to know, in PyTorch's package.
_FOLLOWED = Path("_dynamo", "variables")

#: How PyTorch calls the file of a graph's code.
_OF_A_GRAPH = "<eval_with_key>"

#: Sizes that are tried of a symbol without a range, and of one that counts multiples.
_ANY, COUNTS = (2, 1 << 40), (1, 1 << 40)


def conditions_of(
    program: torch.export.ExportedProgram, names: Mapping[str, str]
) -> tuple[str, ...]:
    """The conditions of a program, whose symbols users call by ``names``.

    Raises ``ModelError`` for one that cannot be looked at.
    """
    notes = getattr(program, "_guards_code", None) or ()
    shapes = _shapes(program) if notes else {}
    traced = _traced(program) if notes else []
    ranges = _ranges(program, names)
    found: dict[str, None] = {}
    for note in notes:
        tree = ast.parse(note.replace("\n", " ").strip(), mode="eval").body
        both = isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)
        for part in tree.values if both else [tree]:
            text = _condition(part, shapes, names, ranges, not traced)
            if text is not None:
                found.setdefault(text)
    for guard in filter(_is_of_user, traced):
        text = _difference(guard.expr, names)
        if text is not None:
            found.setdefault(text)
    return (*found, *_roundings(program, names))


def _ranges(
    program: torch.export.ExportedProgram, names: Mapping[str, str]
) -> dict[str, tuple[int, int]]:
    """What symbols may be, by what users call them. Of a size that no axis is itself, the tracer
    supposes 2 or more without a note of it."""
    computed = computed_axes(program)
    found = {}
    for symbol, bounds in program.range_constraints.items():
        if bounds.lower.is_Integer:
            supposed = supposed_least(symbol, computed) if symbol.is_Symbol else _ANY[0]
            least = int(bounds.lower) if bounds.lower > _ANY[0] else supposed
            most = int(bounds.upper) if bounds.upper.is_Integer else _ANY[1]
            found[names.get(str(symbol), str(symbol))] = (least, most)
    return found


def _environment(program: torch.export.ExportedProgram) -> ShapeEnv | None:
    """Where the tracer keeps what it knows of sizes; None of a program from a file."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def _traced(program: torch.export.ExportedProgram) -> list[ShapeGuard]:
    """What the tracer noted, with the places in the code, of sizes as they are declared; nothing
    of a program from a file."""
    known = _environment(program)
    return (
        [guard._replace(expr=known.replace(guard.expr)) for guard in known.guards] if known else []
    )


def _is_of_user(guard: ShapeGuard) -> bool:
    """Whether code outside of PyTorch asked; Dynamo asks for code that it follows, and the code of
    a graph asks nothing."""
    place = guard.sloc.framework_loc
    file = Path(getattr(place, "filename", None) or torch.__file__)
    package = Path(torch.__file__).parent
    if file.name.startswith(_OF_A_GRAPH):
        return False
    return not file.is_relative_to(package) or file.is_relative_to(package / _FOLLOWED)


def _difference(expr: sympy.Basic, names: Mapping[str, str]) -> str | None:
    """The condition that two numbers differ, such as ``n // 3 != 5``; None for others, and for two
    sizes, which notes have."""
    if not isinstance(expr, sympy.Ne) or all(side.is_Symbol for side in expr.args):
        return None
    tree = ast.parse(PythonPrinter().doprint(expr), mode="eval").body
    return _readable(_InSymbols({}, names).visit(tree)).text


def _roundings(program: torch.export.ExportedProgram, names: Mapping[str, str]) -> list[str]:
    """That sizes times a float are as large as by the fraction which the library counts with."""
    scaled: set[sympy.Basic] = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        for size in sizes:
            if isinstance(size, torch.SymInt):
                scaled |= size.node.expr.atoms(TruncToInt)
    found = []
    for whole in sorted(scaled, key=str):
        floats = [part for part in whole.args[0].args if isinstance(part, sympy.Float)]
        sizes = [part for part in whole.args[0].args if isinstance(part, ToFloat)]
        if len(floats) != 1 or len(sizes) != 1 or not 0 < float(floats[0]) < MOST_TIMES:
            continue
        share, is_exact = share_of(float(floats[0]))
        if not is_exact:
            size = ast.unparse(_named(sizes[0].args[0], names))
            made = f"trunc({float(floats[0])!r} * float({size}))"
            found.append(f"{made} == {share.numerator} * ({size}) // {share.denominator}")
    return [ast.unparse(ast.parse(text, mode="eval")) for text in found]


def _condition(
    tree: ast.expr,
    shapes: Mapping[str, Any],
    names: Mapping[str, str],
    ranges: Mapping[str, tuple[int, int]],
    from_file: bool,
) -> str | None:
    """One condition; None where it says nothing, or nothing that an input's shape decides."""
    of_number = from_file and _tells_from_number(tree)
    if _says_nothing(tree) and not of_number:
        return None
    writer = _InSymbols(shapes, names)
    made = writer.visit(tree)
    if writer.others:
        return None
    known = _readable(made)
    return known.text if known.names and (of_number or not always_holds(known, ranges)) else None


def _readable(tree: ast.AST) -> Condition:
    """A condition that libraries can look at. Raises ``ModelError``."""
    text = ast.unparse(ast.fix_missing_locations(tree))
    try:
        return condition(text)
    except ValueError as error:
        raise ModelError(
            f"PyTorch's tracer follows the code for {text} alone, which a library cannot look at "
            f"({error}); give these axes fixed sizes"
        ) from error


def _tells_from_number(tree: ast.expr) -> bool:
    """Whether sizes, without their extremes, are told from a number that no rule of broadcasting
    is about: ``n * m != 34``."""
    if not isinstance(tree, ast.Compare) or not isinstance(tree.ops[0], ast.NotEq):
        return False
    left, right = tree.left, tree.comparators[0]
    number = right if isinstance(right, ast.Constant) else left
    called = [part.func for part in ast.walk(tree) if isinstance(part, ast.Call)]
    sizes = all(isinstance(func, ast.Attribute) and func.attr == "size" for func in called)
    return isinstance(number, ast.Constant) and sizes and not _is_small(number)


def _says_nothing(tree: ast.expr) -> bool:
    """Whether a note only tells a size from another, as rules of broadcasting and of layouts do,
    which hold without it. The rest of a size, and two sizes of inputs, are told apart by users."""
    if not isinstance(tree, ast.Compare) or isinstance(tree.ops[0], ast.Eq):
        return False
    sides = [tree.left, tree.comparators[0]]
    if not isinstance(tree.ops[0], ast.NotEq):
        return any(map(_counts_elements, sides)) and any(map(_is_small, sides))
    if any(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mod) for side in sides):
        return any(isinstance(part, ast.FloorDiv) for part in ast.walk(tree))
    return not all(isinstance(side, ast.Subscript) for side in sides)


def _is_small(side: ast.expr) -> bool:
    return isinstance(side, ast.Constant) and side.value in (0, 1, 2)


def _counts_elements(side: ast.expr) -> bool:
    """Whether it is a product of several sizes, or a share of one, as half of a square is."""
    if not isinstance(side, ast.BinOp):
        return False
    if isinstance(side.op, ast.FloorDiv) and isinstance(side.right, ast.Constant):
        return _counts_elements(side.left)
    if not isinstance(side.op, ast.Mult):
        return False
    factors = (side.left, side.right)
    return any(map(_counts_elements, factors)) or not any(
        isinstance(factor, ast.Constant) for factor in factors
    )


def always_holds(known: Condition, ranges: Mapping[str, tuple[int, int]]) -> bool:
    """Whether many sizes meet a condition, of those that symbols may be."""
    draw = random.Random(0)
    for bits in (9, 20, 40):
        for _ in range(200):
            sizes = {
                name: min(bounds[0] + int(2 ** draw.uniform(0, bits)) - 1, bounds[1])
                for name in sorted(known.names)
                for bounds in [ranges.get(name, _ANY)]
            }
            if not known.holds(sizes):
                return False
    return True


class _InSymbols(ast.NodeTransformer):
    """Writes symbols for the sizes of inputs; ``others`` are what it met that is none."""

    def __init__(self, shapes: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._shapes = shapes
        self._names = names
        self.others: list[str] = []

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """``L['x'].size()[0]``."""
        call = node.value
        is_size = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if is_size and call.func.attr == "size" and isinstance(node.slice, ast.Constant):
            shape = self._shapes.get(ast.unparse(call.func.value))
            if shape is not None:
                return self._size(shape[node.slice.value])
        self.others.append(ast.unparse(node))
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A symbol of the tracer's."""
        return ast.Name(self._names.get(node.id, node.id), ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A function of sizes."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if name in ("stride", "storage_offset", "size"):
            self.others.append(ast.unparse(node))
            return node
        arguments = [self.visit(value) for value in node.args]
        name = _FUNCTIONS.get(name, name.removeprefix("_sym_"))
        return ast.Call(ast.Name(name, ast.Load()), arguments, [])

    def _size(self, size: Any) -> ast.AST:
        if isinstance(size, int):
            return ast.Constant(size)
        return _named(size.node.expr, self._names)


def _named(expr: sympy.Basic, names: Mapping[str, str]) -> ast.expr:
    """A size of the tracer's in the names of users."""
    tree = ast.parse(str(expr), mode="eval").body
    for part in ast.walk(tree):
        if isinstance(part, ast.Name):
            part.id = names.get(part.id, _FUNCTIONS.get(part.id, part.id))
    return tree


def _shapes(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The shapes of inputs by what the tracer calls them."""
    given = [node.meta.get("val") for node in inputs_of(program)]
    found = {f"L['flat_args'][{place}]": value for place, value in enumerate(given)}
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        bound = inspect.signature(program.module(check_guards=False).forward).bind(*args, **kwargs)
        bound.apply_defaults()
        leaves = pytree.tree_leaves_with_path(bound.arguments)
        for (path, _), value in zip(leaves, given, strict=False):
            text = f"L{pytree.keystr(path)}"
            found[text] = value
            # One of several arguments (``*rest``) has a name of its own here.
            found.setdefault(re.sub(r"^L\['(\w+)_(\d+)'\]", r"L['\1'][\2]", text), value)
    return {k: v.shape for k, v in found.items() if isinstance(v, torch.Tensor)}
