"""All converters, by the operators that they are for."""

from __future__ import annotations

import torch

from byoc.frontends.torch.converters.contraction import CONTRACTION
from byoc.frontends.torch.converters.elementwise import ELEMENTWISE
from byoc.frontends.torch.converters.image import IMAGE
from byoc.frontends.torch.converters.indexing import INDEXING
from byoc.frontends.torch.converters.movement import MOVEMENT
from byoc.frontends.torch.converters.normalisation import NORMALISATION
from byoc.frontends.torch.converters.recurrent import RECURRENT
from byoc.frontends.torch.values import Converter

#: By ``name`` or, for one of its forms, ``name.overload``.
CONVERTERS: dict[str, Converter] = {
    **ELEMENTWISE,
    **CONTRACTION,
    **NORMALISATION,
    **MOVEMENT,
    **INDEXING,
    **IMAGE,
    **RECURRENT,
}


def converter_of(target: object) -> Converter | None:
    """The converter of an operator; None where there is none."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    name = target._opname
    return CONVERTERS.get(f"{name}.{target._overloadname}") or CONVERTERS.get(name)
