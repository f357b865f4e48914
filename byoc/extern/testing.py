"""What the generated tests share: drawn numbers, comparison, and runs of small modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te

Array = npt.NDArray[np.generic]
Shapes = Mapping[str, Sequence[int]]

#: Relative and absolute tolerance by dtype; whole numbers must be equal.
_TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def draw(shape: Sequence[int], dtype: str) -> Array:
    """Numbers of either sign, none of them large; the same every time."""
    source = np.random.default_rng(len(shape) + sum(shape))
    if dtype.startswith("float"):
        return source.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return source.random(shape) < 0.5
    return source.integers(0 if dtype.startswith("u") else -9, 10, shape).astype(dtype)


def draw_all(shapes: Shapes, dtypes: Mapping[str, str]) -> dict[str, Array]:
    """An array for each input."""
    return {name: draw(shapes[name], dtype) for name, dtype in dtypes.items()}


def unfilled(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> list[tvm.runtime.Tensor]:
    """Tensors for results, with values that no result has by chance."""
    return [
        tvm.runtime.tensor(np.full(shape, 77).astype(dtype))
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def agree(
    found: Sequence[tvm.runtime.Tensor],
    dtypes: Sequence[str],
    reference: Callable[..., Array | tuple[Array, ...]],
    given: Mapping[str, Array],
    attributes: Mapping[str, object],
) -> None:
    """Assert that results have the dtypes, shapes and values of the reference.

    The reference computes in double precision.
    """
    wide = {
        name: array.astype("float64") if array.dtype.kind == "f" else array
        for name, array in given.items()
    }
    wanted = reference(**wide, **attributes)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(found) == len(wanted), f"{len(found)} results; the reference has {len(wanted)}"
    for tensor, array, dtype in zip(found, wanted, dtypes, strict=True):
        result = tensor.numpy()
        assert result.dtype == dtype
        assert result.shape == array.shape
        tolerance = _TOLERANCE.get(dtype, 0)
        np.testing.assert_allclose(result, array.astype(dtype), tolerance, tolerance)


def network(
    shapes: Shapes,
    dtypes: Mapping[str, str],
    build: Callable[[Mapping[str, relax.Var]], relax.Expr],
) -> tvm.IRModule:
    """A module whose main function returns what ``build`` makes of its inputs."""
    operands = {
        name: relax.Var(name, relax.TensorType(list(shapes[name]), dtype))
        for name, dtype in dtypes.items()
    }
    builder = relax.BlockBuilder()
    with builder.function("main", list(operands.values())):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(operands)))
        builder.emit_func_output(result)
    return builder.get()


def run(module: tvm.IRModule, given: Mapping[str, Array]) -> list[tvm.runtime.Tensor]:
    """Compile a module and run it once."""
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, given.values()))
    return [found] if isinstance(found, tvm.runtime.Tensor) else list(found)


def run_te(
    operator: Callable[..., te.Tensor | list[te.Tensor]],
    given: Mapping[str, Array],
    outputs: Sequence[tvm.runtime.Tensor],
    attributes: Mapping[str, object],
) -> None:
    """Compile one operator of tensor expressions and fill its outputs."""
    placed = [te.placeholder(array.shape, str(array.dtype), name) for name, array in given.items()]
    results = operator(*placed, **attributes)
    results = [results] if isinstance(results, te.Tensor) else list(results)
    function = tvm.compile(te.create_prim_func([*placed, *results]), "llvm")
    function(*map(tvm.runtime.tensor, given.values()), *outputs)
