"""Read scalar arithmetic off a block: products, and polynomials in one tensor.

Exporters write the same function in many orders: ``0.5 * x * (1 + erf(x / 1.414))``,
``x * (1 + erf(0.707 * x)) * 0.5`` and so on. Comparing factors and coefficients recognises all of
them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose

import numpy as np
from tvm import relax

from byoc.ir.dataflow import Block, op_name, scalar_of, shape_of

#: Relative difference at which a constant written in fp32 (or with six digits, as some exporters
#: do) still counts as the number that it stands for.
TOLERANCE = 2e-6

#: Highest power that is of interest (tanh-GELU has a cube) and longest chain that is followed.
MAX_DEGREE = 3
MAX_DEPTH = 8


def near(value: float, expected: float) -> bool:
    """Whether a constant is the expected one but for rounding."""
    return isclose(value, expected, rel_tol=TOLERANCE, abs_tol=1e-30)


def drops_digits(numbers: np.ndarray, kept: int) -> bool:
    """Whether an fp32 sum with one of these numbers has fewer than ``kept`` bits behind the point.

    Networks round so on purpose, or take the number away from values near it: the sum has to be
    computed where it stands.
    """
    return bool((np.isfinite(numbers) & (abs(numbers) >= 2.0 ** (24 - kept))).any())


def fits_single(numbers: np.ndarray) -> bool:
    """Whether fp32 has these numbers: none is beyond its range, and not all of them are below."""
    limits, greatest = np.finfo(np.single), np.abs(numbers).max(initial=0.0)
    return greatest == 0.0 or bool(limits.tiny <= greatest <= limits.max)


@dataclass
class Product:
    """``scale * factors[0] * factors[1] * ...``, and the bindings that it was read from."""

    scale: float = 1.0
    factors: list[relax.Expr] = field(default_factory=list)
    interior: list[relax.Var] = field(default_factory=list)


def product(block: Block, expr: relax.Expr) -> Product:
    """Flatten multiplications and divisions by a number; inner ones only if no one else reads them.

    The interior holds inner bindings alone, not ``expr`` itself. What lies deeper than
    ``MAX_DEPTH`` is a factor, so that long chains take linear time.
    """
    out = Product()
    _collect_product(block, expr, out, 0)
    return out


def _collect_product(block: Block, expr: relax.Expr, out: Product, depth: int) -> None:
    number = scalar_of(expr)
    if number is not None:
        out.scale *= number
        return
    call = block.call(expr, "relax.multiply", "relax.divide")
    inner = call is not None and depth < MAX_DEPTH and (depth == 0 or block.is_private(expr))
    if inner and op_name(call) == "relax.divide":
        number = scalar_of(call.args[1])
        inner = number is not None and number != 0.0
    if not inner or (depth > 0 and shape_of(expr) is None):
        out.factors.append(expr)
        return
    if depth > 0:
        out.interior.append(expr)
    _collect_product(block, call.args[0], out, depth + 1)
    if op_name(call) == "relax.divide":
        out.scale /= number
    else:
        _collect_product(block, call.args[1], out, depth + 1)


@dataclass
class Polynomial:
    """Coefficients by power, and the bindings that they were read from."""

    coefficients: dict[int, float]
    interior: list[relax.Var]

    def has(self, **expected: float) -> bool:
        """Whether these are the only coefficients: ``has(c0=3, c1=1)`` is ``x + 3``."""
        wanted = {int(name[1:]): value for name, value in expected.items()}
        found = {power: c for power, c in self.coefficients.items() if c != 0.0}
        return found.keys() == wanted.keys() and all(near(found[p], wanted[p]) for p in wanted)


def polynomial(
    block: Block, expr: relax.Expr, x: relax.Expr, depth: int = MAX_DEPTH
) -> Polynomial | None:
    """Read an expression as a polynomial of ``x``; None if it is none of low degree."""
    if expr == x:
        return Polynomial({1: 1.0}, [])
    number = scalar_of(expr)
    if number is not None:
        return Polynomial({0: number}, [])
    names = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.power")
    call = block.call(expr, *names)
    if call is None or depth == 0:
        return None
    left = polynomial(block, call.args[0], x, depth - 1)
    right = polynomial(block, call.args[1], x, depth - 1) if left is not None else None
    if left is None or right is None:
        return None
    coefficients = _combine(op_name(call), left.coefficients, right.coefficients)
    if coefficients is None:
        return None
    return Polynomial(coefficients, [*left.interior, *right.interior, expr])


def _combine(name: str, left: dict[int, float], right: dict[int, float]) -> dict[int, float] | None:
    if name in ("relax.add", "relax.subtract"):
        sign = 1.0 if name == "relax.add" else -1.0
        return {p: left.get(p, 0.0) + sign * right.get(p, 0.0) for p in {*left, *right}}
    if name == "relax.multiply":
        return _times(left, right)
    if right.keys() != {0}:
        return None
    number = right[0]
    if name == "relax.divide":
        return {p: c / number for p, c in left.items()} if number != 0.0 else None
    if number not in (1.0, 2.0, 3.0):
        return None
    out = left
    for _ in range(int(number) - 1):
        out = _times(out, left) if out is not None else None
    return out


def _times(left: dict[int, float], right: dict[int, float]) -> dict[int, float] | None:
    out: dict[int, float] = {}
    for p, a in left.items():
        for q, b in right.items():
            out[p + q] = out.get(p + q, 0.0) + a * b
    return out if max(out) <= MAX_DEGREE else None
