"""The NumPy expression that an annotation gives as reference: nothing but arithmetic gets through.

The text becomes part of a generated test, so only a small part of Python is taken: names of inputs
and attributes, numbers, operators, slices, NumPy's elementwise functions and a few more.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

import numpy as np

_FUNCTIONS = {
    *("all", "any", "argmax", "argmin", "broadcast_to", "clip", "concatenate", "cumsum", "diff"),
    *("dot", "einsum", "expand_dims", "flip", "max", "mean", "median", "min", "moveaxis", "outer"),
    *("pad", "permute_dims", "prod", "repeat", "reshape", "roll", "sort", "squeeze", "stack"),
    *("std", "sum", "swapaxes", "take", "take_along_axis", "tensordot", "tile", "transpose"),
    *("tril", "triu", "var", "where", "zeros_like", "ones_like", "full_like", "arange"),
}
_DTYPES = {"float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool_"}
_CONSTANTS = {"pi", "e", "inf", "nan", "newaxis"}
_METHODS = {
    *("T", "all", "any", "argmax", "argmin", "astype", "clip", "cumsum", "dtype", "max", "mean"),
    *("min", "ndim", "prod", "repeat", "reshape", "shape", "size", "squeeze", "std", "sum"),
    *("swapaxes", "transpose", "var"),
}
_SYNTAX = (
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Call, ast.keyword),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Starred, ast.Constant, ast.Name),
    *(ast.Attribute, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context),
)


def check_reference(text: str, names: Collection[str], results: int) -> str | None:
    """None if the text is such an expression of these names, else what in it is not.

    A function with several results needs a tuple of so many.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return f"cannot read {text!r}"
    given = len(tree.elts) if isinstance(tree, ast.Tuple) else 1
    if given != results:
        return f"it has {given} results; the function has {results}"
    for node in ast.walk(tree):
        problem = _check(node, names)
        if problem is not None:
            return problem
    return None


def reference_text(text: str) -> str:
    """The checked expression, written anew."""
    return ast.unparse(ast.parse(text.strip(), mode="eval"))


def _check(node: ast.AST, names: Collection[str]) -> str | None:
    if not isinstance(node, _SYNTAX):
        return f"{ast.unparse(node)!r} is no expression on arrays"
    if isinstance(node, ast.Name) and node.id not in {*names, "np"}:
        return f"{node.id} is unknown; known are np, {', '.join(names)}"
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str | None):
        return f"{node.value!r} is no number"
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "np":
            fine = node.attr in _FUNCTIONS | _DTYPES | _CONSTANTS or isinstance(
                getattr(np, node.attr, None), np.ufunc
            )
            return None if fine else f"np.{node.attr} is not among the functions for references"
        if node.attr not in _METHODS:
            return f".{node.attr} is not among the methods for references"
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
        return f"{ast.unparse(node.func)} is called; need a function of np or a method"
    return None
