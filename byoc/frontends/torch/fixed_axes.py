"""Axes that were declared ``Dim.AUTO``, and that PyTorch's tracer fixes without a word."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from byoc.frontends.torch.failures import is_users
from byoc.frontends.torch.nodes import inputs_of
from byoc.frontends.torch.replaced import replaced

#: As many axes are listed.
_MOST = 4


class FixedAxes:
    """By PyTorch's symbols, the lines of users' code that made them numbers, or other symbols."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._equal: dict[str, str] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What the tracer does within this context is noted."""
        usual = ShapeEnv._set_replacement

        def noting(env: ShapeEnv, symbol: sympy.Symbol, to: sympy.Expr, msg: str) -> None:
            usual(env, symbol, to, msg)
            if to.is_number:
                self._lines[symbol.name] = _line()
            elif to.is_Symbol:
                self._equal[symbol.name] = to.name

        with replaced({(ShapeEnv, "_set_replacement"): noting}):
            yield

    def note(
        self, module: torch.nn.Module, program: torch.export.ExportedProgram, shapes: Any
    ) -> str:
        """In one line, which axes of a traced module were left to the tracer, and fixed; empty
        where none was."""
        values = [node.meta.get("val") for node in inputs_of(program)]
        spec = program.call_spec.in_spec
        if shapes is None or spec.num_leaves != len(values):
            return ""
        args, kwargs = pytree.tree_unflatten(values, spec)
        given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        if not isinstance(shapes, Mapping):
            shapes = dict(zip(given, shapes, strict=False))
        symbols = _symbols(program)
        found = []
        for path, axis, size in _left_open(given, shapes, ""):
            if isinstance(size, int) or size.node.expr.is_number:
                why = self._why(symbols.get((f"L{path}", axis)), int(size))
                found.append(f"axis {axis} of {_readable(path)} is {size}{why}")
        if not found:
            return ""
        more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
        return f"declared open, and fixed by the code: {'; '.join(found[:_MOST])}{more}"

    def _why(self, symbol: str | None, size: int) -> str:
        if symbol is None and size in (0, 1):
            return ", as the example's (one of 2 or more leaves it open)"
        seen: set[str] = set()
        while symbol is not None and symbol not in self._lines and symbol not in seen:
            seen.add(symbol)
            symbol = self._equal.get(symbol)
        line = self._lines.get(symbol or "", "")
        return f" ({line})" if line else ""


def _line() -> str:
    """The line of users' code that is at work."""
    frame = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame is not None else ""


def _symbols(program: torch.export.ExportedProgram) -> dict[tuple[str, int], str]:
    """The symbols that the tracer gave axes, by what it calls the inputs."""
    known = (node.meta.get("val") for node in program.graph.nodes)
    tensor = next((v for v in known if isinstance(v, torch.Tensor)), None)
    env = getattr(getattr(tensor, "fake_mode", None), "shape_env", None)
    found = {}
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        for source in sources:
            if hasattr(source, "base") and hasattr(source, "idx"):
                found[source.base.name, source.idx] = symbol.name
    return found


def _left_open(given: Any, shapes: Any, path: str) -> Iterator[tuple[str, int, Any]]:
    """Each axis that is left to the tracer: how the input is reached, its place, and its size."""
    if isinstance(given, torch.Tensor):
        axes = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
        for axis, dim in axes:
            if getattr(dim, "type", None) == Dim.AUTO.type:
                yield path, axis, given.shape[axis]
    elif isinstance(given, Mapping) and isinstance(shapes, Mapping):
        for key, part in given.items():
            yield from _left_open(part, shapes.get(key), f"{path}[{key!r}]")
    elif isinstance(given, list | tuple) and isinstance(shapes, list | tuple):
        for place, (part, axes) in enumerate(zip(given, shapes, strict=False)):
            yield from _left_open(part, axes, f"{path}[{place}]")


def _readable(path: str) -> str:
    """``['x'][0]`` as ``x[0]``."""
    name, _, rest = path.removeprefix("['").partition("']")
    return f"{name}{rest}"
