"""All converters, by the operators that they are for."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from byoc.frontends.torch.converters.activations import ACTIVATIONS
from byoc.frontends.torch.converters.bags import BAGS
from byoc.frontends.torch.converters.bits import BITS
from byoc.frontends.torch.converters.complex_numbers import COMPLEX
from byoc.frontends.torch.converters.contraction import CONTRACTION
from byoc.frontends.torch.converters.custom import converter_of_custom
from byoc.frontends.torch.converters.data_sized import DATA_SIZED
from byoc.frontends.torch.converters.detection import DETECTION
from byoc.frontends.torch.converters.elementwise import ELEMENTWISE
from byoc.frontends.torch.converters.image import IMAGE
from byoc.frontends.torch.converters.indexing import INDEXING
from byoc.frontends.torch.converters.linear_algebra import LINEAR_ALGEBRA
from byoc.frontends.torch.converters.movement import MOVEMENT
from byoc.frontends.torch.converters.normalisation import NORMALISATION
from byoc.frontends.torch.converters.order import ORDER
from byoc.frontends.torch.converters.quantisation import (
    KEEPS_INTEGERS,
    QUANTISATION,
    casts_weight,
)
from byoc.frontends.torch.converters.random_numbers import RANDOM
from byoc.frontends.torch.converters.recurrent import RECURRENT
from byoc.frontends.torch.converters.replacement import REPLACEMENT
from byoc.frontends.torch.converters.scattering import SCATTERING
from byoc.frontends.torch.converters.special import SPECIAL
from byoc.frontends.torch.converters.triangles import TRIANGLES
from byoc.frontends.torch.converters.whole_numbers import WHOLE_NUMBERS
from byoc.frontends.torch.values import Converter

#: By ``name`` or, for one of its forms, ``name.overload``; those of other packages than PyTorch
#: with their namespace, ``transformers::name``.
CONVERTERS: dict[str, Converter] = {
    **ELEMENTWISE,
    **ACTIVATIONS,
    **CONTRACTION,
    **LINEAR_ALGEBRA,
    **NORMALISATION,
    **MOVEMENT,
    **TRIANGLES,
    **REPLACEMENT,
    **INDEXING,
    **SCATTERING,
    **BAGS,
    **ORDER,
    **BITS,
    **IMAGE,
    **RECURRENT,
    **RANDOM,
    **SPECIAL,
    **DATA_SIZED,
    **DETECTION,
    **WHOLE_NUMBERS,
    **QUANTISATION,
}


def converter_of(target: object) -> Converter | None:
    """The converter of an operator, of real or of complex numbers; None where there is none."""
    return _found(CONVERTERS, target) or _found(COMPLEX, target) or converter_of_custom(target)


def draws(target: object) -> bool:
    """Whether an operator draws random numbers, which are not PyTorch's in a library; into a new
    tensor, or into one that there is, as ``normal_`` does."""
    if _found(RANDOM, target) is not None:
        return True
    packet = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return packet and target._opname.removesuffix("_") in RANDOM


def keeps_integers(node: torch.fx.Node) -> bool:
    """Whether an operator gives floats of integers, which products of them read as they are."""
    return _found(KEEPS_INTEGERS, node.target) is not None or casts_weight(node)


def complex_converter_of(target: object) -> Converter | None:
    """The converter of an operator of which operands or results are complex."""
    return _found(COMPLEX, target)


def _found(table: Mapping[str, Converter], target: object) -> Converter | None:
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = target._opname
    if target.namespace != "aten":
        return table.get(f"{target.namespace}::{name}")
    return table.get(f"{name}.{target._overloadname}") or table.get(name)
