"""Inputs and outputs of an imported program: PyTorch's names with Relax's shapes and dtypes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from byoc.deploy.metadata import TensorInfo
from byoc.errors import CompileError
from byoc.frontends.torch.program import Program
from codegen_cc.region.relax_dims import dim_text


def signature(
    program: Program, module: tvm.IRModule, kept: Sequence[str] = ()
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs of ``main``, in order; ``kept`` are buffers behind both.

    Raises ``CompileError``.
    """
    main = module["main"]
    result = main.body.body.ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    given = [*(name for name, _ in program.inputs()), *kept]
    made = [*(name for name, _ in program.outputs()), *kept]
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
