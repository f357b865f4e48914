"""Inputs and outputs of an imported program: PyTorch's names with Relax's shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import tvm
from tvm import relax

from byoc.deploy.metadata import TensorInfo
from byoc.errors import CompileError, ModelError
from byoc.extent import parse_extent
from byoc.frontends.torch.buffers import Changed
from byoc.frontends.torch.nodes import inputs_of
from byoc.frontends.torch.program import Program
from codegen_cc.region.relax_dims import dim_text


def signature(
    program: Program, module: tvm.IRModule, kept: Changed
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs of ``main``, in order; ``kept`` is what it changes.

    Raises ``CompileError``, and ``ModelError`` where an output is called as what it changes.
    """
    main = module["main"]
    result = main.body.body.ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    given = [*(name for name, _ in program.inputs()), *kept.buffers]
    if twice := [name for name, _ in program.outputs() if name in kept.all]:
        raise ModelError(
            f"an output, and what the module changes, are called {twice[0]!r}; rename one"
        )
    made = [*(name for name, _ in program.outputs()), *kept.all]
    inputs = zip(given, [parameter.ty for parameter in main.params], strict=True)
    derived = _derived_axes(program)
    outputs = zip(made, results, strict=True)
    return (
        tuple(_info(name, kind, derived.get(name, {})) for name, kind in inputs),
        tuple(_info(name, kind) for name, kind in outputs),
    )


def _derived_axes(program: Program) -> dict[str, dict[int, str]]:
    """By input and axis, sizes that were declared as multiples of another one: ``32*h``.

    ``main`` has plain axes there, which say nothing of what fits.
    """
    values = {node.name: node.meta.get("val") for node in inputs_of(program.exported)}
    found: dict[str, dict[int, str]] = {}
    for name, _ in program.inputs():
        for axis, size in enumerate(values[name].shape):
            if isinstance(size, int) or size.node.expr.is_Symbol:
                continue
            text = str(program.sizes().dim(size)).replace(" ", "")
            with suppress(ValueError):
                found.setdefault(name, {})[axis] = str(parse_extent(text))
    return found


def _info(name: str, kind: relax.Type, told: Mapping[int, str] | None = None) -> TensorInfo:
    """What an input or output is; ``told`` are texts of some axes."""
    sizes = getattr(getattr(kind, "shape", None), "values", None)
    if sizes is None:
        raise CompileError(f"{name!r} has no known shape after import ({kind})")
    extents = [int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes]
    for axis, text in (told or {}).items():
        extents[axis] = text
    return TensorInfo(name, tuple(extents), str(kind.dtype))
