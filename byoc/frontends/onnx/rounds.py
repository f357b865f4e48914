"""Loops of unknown length, as functions that call each other.

    one(i, go, s)      = round i of the body from the states s, and whether another one follows
    rounds_0(i, go, s) = one(i, go, s) where it goes on, else nothing
    rounds_k(i, go, s) = what rounds_k-1 gives, and where that goes on, what rounds_k-1 makes of it
    loop(i, go, s)     = loop of what rounds_10 gives where it goes on, else s

so that calls nest as deep as the logarithm of a thousand rounds, and what the rounds give besides
their states is joined by halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
import tvm
from tvm import relax

from byoc.frontends.onnx.relax_functions import (
    Functions,
    Kind,
    Variables,
    call,
    choice,
    global_name,
    items,
    parameters,
)
from codegen_cc.dim import Dim
from codegen_cc.region.relax_dims import relax_extent

#: Rounds in a call that does not call itself, as a power of two.
LEVELS = 10

NUMBER, FLAG = Kind("int64", ()), Kind("bool", ())

#: Gives, for builder, variables, number of the round, states and values around: whether to go on,
#: the states and the parts.
Body = Callable[
    [relax.BlockBuilder, Variables, relax.Expr, list[relax.Expr], list[relax.Expr]],
    tuple[relax.Expr | None, list[relax.Expr], list[relax.Expr]],
]


@dataclass(frozen=True)
class Part:
    """What each round gives besides the states: joined along an axis, perhaps the last first."""

    kind: Kind
    axis: int = 0
    backward: bool = False

    def whole(self, extent: Dim | None = None) -> Kind:
        """What some rounds give, of that extent along the axis."""
        return self.kind.along(self.axis, extent)

    def joined(self, one: relax.Expr, other: relax.Expr) -> relax.Expr:
        """What earlier and later rounds gave."""
        return relax.op.concat([other, one] if self.backward else [one, other], self.axis)


@dataclass
class Rounds:
    """The functions of one loop. ``limit`` of rounds, and ``around``, are operands of them all."""

    functions: Functions
    known: Sequence[sympy.Symbol]
    name: str
    states: list[Kind]
    parts: list[Part]
    around: list[Kind]
    body: Body

    def run(self, most: int | None) -> tvm.ir.GlobalVar:
        """The function of all rounds, of which there are at most so many, if that is known.

        Its operands are number, flag, states, limit and values around; its results number, flag,
        states and parts.
        """
        self._step = [self._first()]
        levels = LEVELS if most is None else min(LEVELS, max(most - 1, 0).bit_length())
        for level in range(1, levels + 1):
            self._step.append(self._twice(level))
        return self._step[-1] if most is not None and most <= 2**levels else self._endless()

    # ------------------------------------------------------------------ functions

    def _kinds(self) -> list[Kind]:
        return [NUMBER, FLAG, *self.states, NUMBER, *self.around]

    def _split(self, operands: list[relax.Expr]) -> tuple[list[relax.Expr], list[relax.Expr]]:
        """What changes in a round, and what does not."""
        count = 2 + len(self.states)
        return operands[:count], operands[count:]

    def _one(self) -> tvm.ir.GlobalVar:
        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            (number, _, *states), (limit, *around) = self._split(operands)
            going, states, parts = self.body(builder, variables, number, states, around)
            following = builder.emit(relax.op.add(number, relax.const(1, "int64")))
            more = builder.emit(relax.op.less(following, limit))
            if going is not None:
                more = builder.emit(relax.op.logical_and(more, going))
            parts = [
                builder.emit(relax.op.expand_dims(value, part.axis))
                for value, part in zip(parts, self.parts, strict=True)
            ]
            return relax.Tuple([following, more, *states, *parts])

        return self.functions.add(f"{self.name}_one", self.known, self._kinds(), make)

    def _first(self) -> tvm.ir.GlobalVar:
        one = self._one()

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            changing, _ = self._split(operands)
            nothing = relax.Tuple([*changing, *self.nothing(builder, variables)])
            return choice(builder, operands[1], call(one, variables, operands), nothing)

        return self.functions.add(f"{self.name}_rounds_0", self.known, self._kinds(), make)

    def nothing(self, builder: relax.BlockBuilder, variables: Variables) -> list[relax.Expr]:
        """The parts of no rounds."""
        return [
            builder.emit(
                relax.op.zeros(
                    [relax_extent(dim, variables) for dim in part.whole(0).dims], part.kind.dtype
                )
            )
            for part in self.parts
        ]

    def _twice(self, level: int) -> tvm.ir.GlobalVar:
        before = self._step[-1]
        more = self._joining(f"{self.name}_more_{level}", before)

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            _, rest = self._split(operands)
            half = items(builder, builder.emit(call(before, variables, operands)))
            changed, parts = self._split(half)
            again = call(more, variables, [*changed, *rest, *parts])
            return choice(builder, changed[1], again, relax.Tuple(half))

        return self.functions.add(f"{self.name}_rounds_{level}", self.known, self._kinds(), make)

    def _joining(self, name: str, step: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """What a step gives, with its parts behind earlier ones."""

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            return relax.Tuple(self._joined(builder, variables, operands, step))

        kinds = [*self._kinds(), *(part.whole() for part in self.parts)]
        return self.functions.add(name, self.known, kinds, make)

    def _joined(
        self,
        builder: relax.BlockBuilder,
        variables: Variables,
        operands: list[relax.Expr],
        step: tvm.ir.GlobalVar,
    ) -> list[relax.Expr]:
        count = len(operands) - len(self.parts)
        done = items(builder, builder.emit(call(step, variables, operands[:count])))
        changed, parts = self._split(done)
        joined = [
            builder.emit(
                part.joined(
                    earlier, builder.match_cast(later, part.whole().type(variables, "more"))
                )
            )
            for part, earlier, later in zip(self.parts, operands[count:], parts, strict=True)
        ]
        return [*changed, *joined]

    def _endless(self) -> tvm.ir.GlobalVar:
        """All rounds, however many; it calls itself."""
        kinds = [*self._kinds(), *(part.whole() for part in self.parts)]
        variables, params = parameters(self.known, kinds)
        results = [NUMBER, FLAG, *self.states, *(part.whole() for part in self.parts)]
        result = relax.TupleType([kind.type(variables) for kind in results])
        gvar = global_name(
            self.functions.name(f"{self.name}_loop"),
            relax.FuncType([param.ty for param in params], result),
        )
        again = self._again(f"{self.name}_again", gvar)

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            count = len(operands) - len(self.parts)
            changing, _ = self._split(operands[:count])
            done = relax.Tuple([*changing, *operands[count:]])
            return choice(builder, operands[1], call(again, variables, operands), done)

        self.functions.add("", self.known, kinds, make, gvar)

        def begin(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            nothing = self.nothing(builder, variables)
            return builder.emit(call(gvar, variables, [*operands, *nothing]))

        return self.functions.add(f"{self.name}_all", self.known, self._kinds(), begin)

    def _again(self, name: str, loop: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        step = self._step[-1]

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            count = len(operands) - len(self.parts)
            _, rest = self._split(operands[:count])
            done = self._joined(builder, variables, operands, step)
            changed, parts = self._split(done)
            return builder.emit(call(loop, variables, [*changed, *rest, *parts]))

        kinds = [*self._kinds(), *(part.whole() for part in self.parts)]
        return self.functions.add(name, self.known, kinds, make)
