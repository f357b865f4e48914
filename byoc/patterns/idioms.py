"""Functions of one tensor: those that Relax has an operator for, and those it writes in pieces.

    hard_sigmoid(x) = clip(alpha x + beta, 0, 1)          also clip(x + 3, 0, 6) / 6
    hard_swish(x)   = x clip(x / 6 + 1 / 2, 0, 1)         also x clip(x + 3, 0, 6) / 6
    elu(x)          = -alpha relu(1 - exp(x)) + relu(x)
    selu(x)         = gamma elu(x)                        with the constants of its paper
    softplus(x)     = relu(x) + log(1 + exp(-|x|))
    mish(x)         = x tanh(softplus(x))                 also x tanh(log(1 + exp(x)))
    log1p(x)        = log(1 + x)                          with all digits of a small x
    expm1(x)        = exp(x) - 1                          the same

Relax has no operator of these names, so their composite keeps the pieces. An idiom is found from
its last binding backwards; everything inside must be read by nothing else.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tvm import relax

from byoc.ir.algebra import near, polynomial, product
from byoc.ir.dataflow import Block, is_kernel_float, op_name, scalar_of, shape_of
from byoc.ir.elementwise import SIMPLE_UNARY
from byoc.patterns import smooth
from byoc.patterns.idiom import Idiom, rounded

#: Functions that take several operators.
IDIOM_KINDS = ("hard_sigmoid", "hard_swish", "elu", "selu", "softplus", "mish", "log1p", "expm1")


def find_idioms(block: Block) -> list[Idiom]:
    """All unary functions of a block, by their last binding; those of several operators first."""
    position = {var: i for i, var in enumerate(block.ordered())}
    several: list[Idiom] = []
    simple: list[Idiom] = []
    for var, call in block.calls():
        if shape_of(call) is None:
            continue
        found = _of_several(block, var) if is_kernel_float(call) else None
        if found is not None and found.source not in found.bindings:
            ordered = tuple(sorted(set(found.bindings), key=position.__getitem__))
            several.append(Idiom(found.kind, found.alpha, found.beta, found.source, ordered))
        if op_name(call) in SIMPLE_UNARY and _has_kind(call):
            alpha, beta = _parameters(call)
            kind = SIMPLE_UNARY[op_name(call)]
            simple.append(Idiom(kind, alpha, beta, call.args[0], (var,)))
    # Longest first: hard swish contains a hard sigmoid.
    several = [idiom for idiom in several if _is_closed(block, idiom)]
    return sorted(several, key=lambda idiom: -len(idiom.bindings)) + simple


def _of_several(block: Block, var: relax.Var) -> Idiom | None:
    """The function of several operators that ends here, if one does."""
    return (
        _hard_swish(block, var)
        or _hard_sigmoid(block, var)
        or smooth.elu(block, var)
        or smooth.softplus(block, var)
        or smooth.mish(block, var)
        or smooth.near_zero(block, var)
    )


def _has_kind(call: relax.Call) -> bool:
    """Whether an operator's attributes are those of the function of its name."""
    return op_name(call) != "relax.nn.softplus" or smooth.is_softplus(call)


def _parameters(call: relax.Call) -> tuple[float, float]:
    """``alpha`` and ``beta`` of an operator that is one function, as its dtype holds them."""
    if op_name(call) == "relax.clip":
        low, high = (rounded(argument.value, call) for argument in call.args[1:])
        return low, high
    if op_name(call) == "relax.nn.leakyrelu":
        return rounded(call.attrs.alpha, call), 0.0
    return 0.0, 0.0


def _is_closed(block: Block, idiom: Idiom) -> bool:
    """Whether every value inside is read inside alone, and the source is the only thing read."""
    inside = set(idiom.bindings)
    for var in idiom.bindings[:-1]:
        if block.is_fixed(var) or not inside.issuperset(block.users(var)):
            return False
    return all(shape_of(var) == shape_of(idiom.source) for var in idiom.bindings)


@dataclass(frozen=True)
class _Ramp:
    """``scale * clip(slope x + offset, 0, top)`` as ``clip(slope' x + offset', 0, 1)``."""

    slope: float
    offset: float
    source: relax.Expr
    interior: tuple[relax.Var, ...]


def _ramp(block: Block, expr: relax.Expr, scale: float, x: relax.Expr | None) -> _Ramp | None:
    """Read a clipped line in ``x`` (or in whatever it is a line in), scaled to end at one."""
    clip = block.call(expr, "relax.clip")
    if clip is None or float(clip.args[1].value) != 0.0:
        return None
    if not near(scale * float(clip.args[2].value), 1.0):
        return None
    source = x if x is not None else _base_of_line(block, clip.args[0])
    line = polynomial(block, clip.args[0], source) if source is not None else None
    if line is None or any(c != 0.0 for power, c in line.coefficients.items() if power > 1):
        return None
    slope, offset = (scale * line.coefficients.get(power, 0.0) for power in (1, 0))
    return _Ramp(slope, offset, source, (*line.interior, expr)) if slope != 0.0 else None


def _base_of_line(block: Block, expr: relax.Expr) -> relax.Expr | None:
    """The tensor under additions of and multiplications by numbers; None if there are none."""
    base = expr
    for _ in range(4):
        call = block.call(base, "relax.add", "relax.subtract", "relax.multiply", "relax.divide")
        if call is None:
            break
        tensors = [argument for argument in call.args if scalar_of(argument) is None]
        if len(tensors) != 1 or not block.is_private(base):
            break
        base = tensors[0]
    return base if base != expr and isinstance(base, relax.Var) else None


def _hard_sigmoid(block: Block, var: relax.Var) -> Idiom | None:
    scale, inner, outer = 1.0, var, ()
    if block.call(var, "relax.multiply", "relax.divide") is not None:
        parts = product(block, var)
        if len(parts.factors) != 1:
            return None
        scale, inner = parts.scale, parts.factors[0]
        outer = (*parts.interior, var)
    ramp = _ramp(block, inner, scale, None)
    if ramp is None:
        return None
    slope, offset = (rounded(c, var) for c in (ramp.slope, ramp.offset))
    return Idiom("hard_sigmoid", slope, offset, ramp.source, (*ramp.interior, *outer))


def _hard_swish(block: Block, var: relax.Var) -> Idiom | None:
    if block.call(var, "relax.multiply", "relax.divide") is None:
        return None
    parts = product(block, var)
    if len(parts.factors) != 2:
        return None
    for x, gate in itertools.permutations(parts.factors):
        ramp = _ramp(block, gate, parts.scale, x)
        if ramp is not None and near(ramp.slope, 1.0 / 6.0) and near(ramp.offset, 0.5):
            bindings = (*ramp.interior, *parts.interior, var)
            return Idiom("hard_swish", 0.0, 0.0, x, bindings)
    return None
