"""Modules that compute derivatives: ``torch.autograd.grad`` of an energy, ``torch.func.jacrev``.

PyTorch's tracer stands above autograd, where it sees that derivatives are asked for, and refuses or
loses them. Below autograd it sees the operators that compute them. These have a name each,
``silu_backward``, and are taken apart here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch._decomp import decomposition_table
from torch._functorch import eager_transforms
from torch.export import ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel

from byoc.errors import ModelError
from byoc.frontends.torch.buffers import lost_constant
from byoc.frontends.torch.converters.table import converter_of
from byoc.frontends.torch.opened_results import other_forward
from byoc.frontends.torch.replaced import replaced

_APART = partial(sdpa_kernel, [SDPBackend.MATH])

#: How PyTorch's tracer begins what it says of sizes that may not be open.
VIOLATED = "Constraints violated"
_FIXED = (
    "the module computes derivatives of which PyTorch's tracer makes open sizes those of the"
    " example; fix them, or write hessian(f) as jacrev(grad(f))"
)

Trace = Callable[..., ExportedProgram]


def traced_below_autograd(model: torch.nn.Module, trace: Trace) -> ExportedProgram | None:
    """What a trace below autograd gives, which keeps derivatives; None where that fails, too.
    Raises ``ModelError`` where it fixes open sizes of a module that computes derivatives.

    Attention is taken apart, as the derivatives of its kernels cannot be.
    """
    for around in (nullcontext, partial(_constant_parameters, model)):
        with _derivatives_asked() as asked:
            try:
                with other_forward(model, torch.enable_grad()), _APART(), _in_reverse(), around():
                    program = trace(below_autograd=True)
                return program if lost_constant(program) is None else None
            except Exception as error:
                if asked and VIOLATED in str(error):
                    raise ModelError(_FIXED) from error
    return None


@contextmanager
def _derivatives_asked() -> Iterator[list[int]]:
    """Of each time that autograd goes backward within this context, how many results it has."""
    asked: list[int] = []
    usual = torch.autograd._engine_run_backward

    def noted(results: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        asked.append(len(results))
        return usual(results, *args, **kwargs)

    with replaced({(torch.autograd, "_engine_run_backward"): noted}):
        yield asked


@contextmanager
def _constant_parameters(model: torch.nn.Module) -> Iterator[None]:
    """No derivative is by a parameter: the tracer confuses them with inputs of which one is."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_()


@contextmanager
def _in_reverse() -> Iterator[None]:
    """``jacfwd``, and with it ``hessian``, goes backward as ``jacrev`` does: in forward mode,
    PyTorch's tracer makes open sizes those of the example."""

    def jacfwd(
        func: Callable[..., Any],
        argnums: int | tuple[int, ...] = 0,
        has_aux: bool = False,
        *,
        randomness: str = "error",
    ) -> Callable[..., Any]:
        return torch.func.jacrev(func, argnums, has_aux=has_aux)

    with replaced({(place, "jacfwd"): jacfwd for place in (torch.func, eager_transforms)}):
        yield


def derivatives_of_operators() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """What stands for the derivatives of operators."""
    aten = torch.ops.aten
    found = {
        target: taken_apart
        for target, taken_apart in decomposition_table.items()
        if "_backward" in str(target) and converter_of(target) is None
    }
    return {**found, aten.convolution_backward.default: convolution_backward}


def convolution_backward(
    change: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The derivatives of a convolution by its input and bias. Raises ``NotImplementedError`` for
    that by its weight."""
    of_input, of_weight, of_bias = output_mask
    if of_weight:
        raise NotImplementedError("the derivative of a convolution by its weight")
    spatial = x.dim() - 2
    by_input = None
    if of_input and transposed:
        by_input = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1](
            change, weight, None, stride, padding, dilation, groups
        )
    elif of_input:
        shape = zip(x.shape[2:], change.shape[2:], weight.shape[2:], strict=True)
        rest = [
            size - ((made - 1) * step - 2 * pad + gap * (taps - 1) + 1)
            for (size, made, taps), step, pad, gap in zip(
                shape, stride, padding, dilation, strict=True
            )
        ]
        by_input = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1](
            change, weight, None, stride, padding, rest, groups, dilation
        )
    by_bias = change.sum([axis for axis in range(change.dim()) if axis != 1]) if of_bias else None
    return by_input, None, by_bias
