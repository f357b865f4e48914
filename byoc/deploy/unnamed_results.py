"""Results of a library that tells nothing about them: their order is all that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byoc.deploy.metadata import TensorInfo
from byoc.errors import RunError

if TYPE_CHECKING:
    import tvm_ffi


def flat(result: Any) -> list[tvm_ffi.Tensor]:
    """The tensors of a result whose form is not known, in order."""
    if hasattr(result, "__dlpack__"):
        return [result]
    try:
        return [tensor for item in result for tensor in flat(item)]
    except TypeError:
        raise RunError(f"a result is of type {type(result).__name__}; need tensors") from None


def numbered(values: list[tvm_ffi.Tensor]) -> tuple[TensorInfo, ...]:
    """Results of a library that does not say what they are called."""
    return tuple(
        TensorInfo(f"output{index}", tuple(map(int, value.shape)), str(value.dtype))
        for index, value in enumerate(values)
    )
