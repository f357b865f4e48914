"""Functions of PyTorch that take plain numbers alone, and are given open sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch._export.verifier import Verifier

from byoc.frontends.torch.bounded_tables import BOUNDED_TABLES
from byoc.frontends.torch.open_grids import GRIDS
from byoc.frontends.torch.open_places import PLACES
from byoc.frontends.torch.open_sounds import SOUNDS
from byoc.frontends.torch.packed_sequences import PACKED_SEQUENCES
from byoc.frontends.torch.replaced import replaced

_OPEN = (torch.SymInt, torch.SymFloat)
_FUNCTIONS = {**GRIDS, **PLACES, **SOUNDS}


def functions_of_any_size(*modules: torch.nn.Module) -> AbstractContextManager[None]:
    """Within this context such functions leave sizes open; under the names that the code of
    modules has for them, too."""
    others: dict[tuple[Any, str], Any] = {(Verifier, "allowed_op_types"): _allowed_types}
    others |= {place: _either(getattr(*place), made) for place, made in _FUNCTIONS.items()}
    for place, other in _OTHERS.items():
        others[place] = other(getattr(*place))
    known = {id(getattr(*place)): other for place, other in others.items()}
    files = {type(part).__module__ for module in modules for part in module.modules()}
    for home in (sys.modules[file] for file in files if file in sys.modules):
        names = [(name, id(value)) for name, value in vars(home).items()]
        others |= {(home, name): known[value] for name, value in names if value in known}
    return replaced(others)


def _either(usual: Callable[..., Any], of_open: Callable[..., Any]) -> Callable[..., Any]:
    """A function, or what stands for it where an argument is open and it knows the form."""

    @wraps(usual)
    def either(*args: Any, **named: Any) -> Any:
        is_open = any(isinstance(value, _OPEN) for value in (*args, *named.values()))
        made = of_open(*args, **named) if is_open else NotImplemented
        return usual(*args, **named) if made is NotImplemented else made

    return either


def _attention(usual: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Attention takes ``is_causal=n > 1`` of an open size, which must be a plain truth for PyTorch,
    and ``scale=1 / math.sqrt(n)``, by which queries are multiplied before."""

    @wraps(usual)
    def attention(query: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
        if "is_causal" in named:
            named["is_causal"] = bool(named["is_causal"])
        if isinstance(scale := named.get("scale"), (*_OPEN, torch.Tensor)):
            query, named["scale"] = query * scale, 1.0
        return usual(query, *args, **named)

    return attention


def _distances(usual: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Distances of points are those of differences. PyTorch looks at the number of points whether
    a product is faster, which is less exact; it still does where points of the example are many
    and wide."""

    @wraps(usual)
    def cdist(x1: torch.Tensor, x2: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
        counts = [x.shape[-2] for x in (x1, x2)]
        if len(args) < 2 and any(isinstance(count, _OPEN) for count in counts):
            known = [count.node.hint if isinstance(count, _OPEN) else count for count in counts]
            if x1.shape[-1] <= _NARROW or None in known or max(known) <= _FEW:
                named.setdefault("compute_mode", "donot_use_mm_for_euclid_dist")
        return usual(x1, x2, *args, **named)

    return cdist


def _equality(usual: Callable[..., bool]) -> Callable[..., bool | torch.Tensor]:
    """Whether tensors are equal is a tensor, where their shapes do not tell: PyTorch's answer is a
    plain truth, which its tracer refuses before anybody asks for it."""

    @wraps(usual)
    def equal(x: torch.Tensor, other: torch.Tensor) -> bool | torch.Tensor:
        if x.dim() != other.dim():
            return False
        pairs = list(zip(x.shape, other.shape, strict=True))
        pairs.sort(key=lambda pair: any(isinstance(count, _OPEN) for count in pair))
        return False if any(one != two for one, two in pairs) else (x == other).all()

    return equal


class _OrdersOfProducts:
    """The package that says in which order ``torch.einsum`` multiplies three tensors or more, asked
    of the sizes that the example has: it compares them, which would fix open ones."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def contract_path(self, equation: str, *operands: torch.Tensor, **named: Any) -> Any:
        shapes = [tuple(map(_in_the_example, operand.shape)) for operand in operands]
        return self._package.contract_path(equation, *shapes, shapes=True, **named)


def _in_the_example(count: int | torch.SymInt) -> int:
    """A size that only a value tells is a few."""
    return count.node.hint or _FEW if isinstance(count, torch.SymInt) else count


def _orders(usual: Callable[[], Any]) -> Callable[[], Any]:
    @wraps(usual)
    def orders() -> Any:
        return _OrdersOfProducts(package) if (package := usual()) else package

    return orders


class _OfSizes(type):
    """Of a class whose objects are PyTorch's functions of open numbers: ``torch._sym_sin``."""

    def __instancecheck__(cls, value: object) -> bool:
        name = getattr(value, "__name__", "")
        return name.startswith("_sym_") and getattr(torch, name, None) is value


class _OfSize(metaclass=_OfSizes):
    pass


def _allowed_types(verifier: Verifier) -> tuple[type, ...]:
    """What programs may call: of such functions, which the tracer of ``torch.compile`` writes,
    PyTorch's programs have the root alone."""
    return (*_ALLOWED(verifier), _OfSize)


_ALLOWED = Verifier.allowed_op_types

#: Points that PyTorch takes for few, and numbers of each for which differences are fast enough.
_FEW, _NARROW = 25, 32

#: Functions that ask sizes themselves, take more than sizes otherwise, or write what they read.
_OTHERS = {
    (F, "scaled_dot_product_attention"): _attention,
    (torch, "cdist"): _distances,
    (torch, "equal"): _equality,
    (torch.Tensor, "equal"): _equality,
    (torch.backends.opt_einsum, "get_opt_einsum"): _orders,
    **BOUNDED_TABLES,
    **PACKED_SEQUENCES,
}
