"""``auto``: the fewest bits in which the outputs stay within an error, measured."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import Unpack

from byoc.arguments import as_error
from byoc.compiler.keywords import CompileKeywords, takes
from byoc.errors import VerifyError
from byoc.frontends import GivenModel
from byoc.layer_errors.compare import compare
from byoc.partition.precision import without_auto
from codegen_cc.operators.bfloat16 import three_products_pay

#: Where users give none: a share of an output's range.
MAX_ERROR = 0.01


@dataclass(frozen=True)
class ChosenPrecision:
    """What ``compile`` takes as ``precision``, and the greatest error of an output with it."""

    precision: tuple[str, ...]
    error: float


@takes(CompileKeywords)
def choose_precision(
    model: GivenModel,
    max_error: float = MAX_ERROR,
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    *,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    seed: int = 0,
    **keywords: Unpack[CompileKeywords],
) -> ChosenPrecision:
    """Choose bfloat16 for as many nodes as an error allows, and more bits for the others.

    Every node begins in bfloat16, unless ``precision`` says another for it or its kernels gain
    nothing. Those that lose most by themselves are kept in fp32, one more after the other, until
    no output is off by more than ``max_error`` of its range from ONNX Runtime's, or PyTorch's.
    Every choice is compiled and run on ``inputs`` (arrays by name, or an .npz file; typical ones of
    the network), else on a program's example inputs, or on ones drawn with ``seed``. A module of
    PyTorch needs ``example_inputs``. Where bf16x3 is faster than fp32 and its error small enough,
    it takes the place of fp32 in the end.

    Raises ``VerifyError`` where the error is greater with every node in fp32, and whatever
    ``compare`` raises.
    """
    limit = as_error(max_error, "max_error", VerifyError)
    asked = ("bf16", *without_auto(keywords["precision"]))
    keywords["precision"] = asked
    given = {"example_inputs": example_inputs, "seed": seed}
    found = compare(model, inputs, input_shapes, max_error=limit, **given, **keywords)
    kept = found.kept
    if not kept.holds:
        raise VerifyError(
            f"an output is off by {kept.error:.1e} of its range with every node in fp32; need at"
            f" most {limit:.1e}"
        )
    chosen = ChosenPrecision((*(remedy.value for remedy in kept.remedies), *asked), kept.error)
    if not (kept.remedies and three_products_pay()):
        return chosen
    names = [remedy.name for remedy in kept.remedies if remedy.keyword == "precision"]
    keywords["precision"] = (*(f"{name}=bf16x3" for name in names), *asked)
    error = compare(model, inputs, input_shapes, **given, **keywords).error
    return ChosenPrecision(keywords["precision"], error) if error <= limit else chosen
