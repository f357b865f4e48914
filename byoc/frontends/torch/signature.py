"""Inputs and outputs of an imported program: PyTorch's names with Relax's shapes and dtypes."""

from __future__ import annotations

import tvm
from tvm import relax

from byoc.deploy.metadata import TensorInfo
from byoc.errors import CompileError, ModelError
from byoc.frontends.torch.buffers import Changed
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
    outputs = zip(made, results, strict=True)
    return (
        tuple(_info(name, kind) for name, kind in inputs),
        tuple(_info(name, kind) for name, kind in outputs),
    )


def _info(name: str, kind: relax.Type) -> TensorInfo:
    sizes = getattr(getattr(kind, "shape", None), "values", None)
    if sizes is None:
        raise CompileError(f"{name!r} has no known shape after import ({kind})")
    extents = (int(size) if isinstance(size, tvm.tirx.IntImm) else dim_text(size) for size in sizes)
    return TensorInfo(name, tuple(extents), str(kind.dtype))
