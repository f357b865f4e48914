"""Relax modules of one expression, with inputs of any type."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax


def tensors(*shape: int | str, dtype: str) -> relax.TensorType:
    """A tensor type; names in the shape are symbols, one name one symbol."""
    symbols = {name: tvm.tirx.Var(name, "int64") for name in shape if isinstance(name, str)}
    return relax.TensorType([symbols.get(extent, extent) for extent in shape], dtype)


def floats(*shape: int | str, dtype: str = "float32") -> relax.TensorType:
    """A tensor of floating-point numbers."""
    return tensors(*shape, dtype=dtype)


def integers(*shape: int | str, dtype: str = "int64") -> relax.TensorType:
    """A tensor of integers."""
    return tensors(*shape, dtype=dtype)


IMAGE = floats(1, 3, 6, 6)


def typed_module(build: Callable[..., relax.Expr], *types: relax.Type) -> tvm.IRModule:
    """A function of one dataflow block, whose result is ``build(*inputs)``."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    return builder.get()
