"""Loops of unknown length, as functions that call each other.

    rounds_0(i, s) = round i of the body from the states s, and whether another one follows
    rounds_k(i, s) = what rounds_k-1 gives, and where that goes on, what rounds_k-1 makes of it
    loop(i, go, s) = loop of what rounds_10 makes of s where it goes on, else s
    all(i, go, s)  = loop of what rounds_10 gives where there is a round at all, else s

so that calls nest as deep as the logarithm of a thousand rounds, and what the rounds give besides
their states is joined by halves. The body stands inside of rounds_0: what counts the rounds is
computed by the regions of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import sympy
import tvm
from tvm import relax

from byoc.frontends.relax_functions import (
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


@dataclass(frozen=True)
class _Results:
    """What a step gives: whether to go on, number and states of the next round, parts."""

    going: relax.Expr
    changed: list[relax.Expr]
    parts: list[relax.Expr]


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
        self._step = [self._one()]
        levels = LEVELS if most is None else min(LEVELS, max(most - 1, 0).bit_length())
        for level in range(1, levels + 1):
            self._step.append(self._twice(level))
        bounded = most is not None and most <= 2**levels
        return self._where_any(self._step[-1] if bounded else self._endless())

    # ------------------------------------------------------------------ functions

    def _kinds(self) -> list[Kind]:
        return [NUMBER, *self.states, NUMBER, *self.around]

    def _wholes(self) -> list[Kind]:
        return [part.whole() for part in self.parts]

    def _results(self, results: list[relax.Expr]) -> _Results:
        number, going, *others = results
        count = len(self.states)
        return _Results(going, [number, *others[:count]], others[count:])

    def _rest(self, operands: list[relax.Expr]) -> list[relax.Expr]:
        """The operands of a step that stay the same in all rounds."""
        return operands[1 + len(self.states) :]

    def _one(self) -> tvm.ir.GlobalVar:
        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            number, *others = operands
            count = len(self.states)
            states, limit, around = others[:count], others[count], others[count + 1 :]
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

        name = f"{self.name}_rounds_0"
        return self.functions.add(name, self.known, self._kinds(), make, computes=True)

    def _where_any(self, some: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """What ``some`` gives where the flag says that there is a round, else the states."""

        def nothing(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            number, *states = operands[: 1 + len(self.states)]
            parts = [
                builder.emit(
                    relax.op.zeros(
                        [relax_extent(dim, variables) for dim in part.whole(0).dims],
                        part.kind.dtype,
                    )
                )
                for part in self.parts
            ]
            return relax.Tuple([number, relax.const(False, "bool"), *states, *parts])

        none = self.functions.add(f"{self.name}_none", self.known, self._kinds(), nothing)

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            number, going, *others = operands
            given = [number, *others]
            one, other = (call(gvar, variables, given) for gvar in (some, none))
            return choice(builder, going, one, other)

        number, *others = self._kinds()
        return self.functions.add(f"{self.name}_all", self.known, [number, FLAG, *others], make)

    def _twice(self, level: int) -> tvm.ir.GlobalVar:
        before = self._step[-1]
        more = self._joining(f"{self.name}_more_{level}", before)

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            half = items(builder, builder.emit(call(before, variables, operands)))
            done = self._results(half)
            again = call(more, variables, [*done.changed, *self._rest(operands), *done.parts])
            return choice(builder, done.going, again, relax.Tuple(half))

        return self.functions.add(f"{self.name}_rounds_{level}", self.known, self._kinds(), make)

    def _joining(self, name: str, step: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        """What a step gives, with its parts behind earlier ones."""

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            number, *states = (done := self._joined(builder, variables, operands, step)).changed
            return relax.Tuple([number, done.going, *states, *done.parts])

        return self.functions.add(name, self.known, [*self._kinds(), *self._wholes()], make)

    def _joined(
        self,
        builder: relax.BlockBuilder,
        variables: Variables,
        operands: list[relax.Expr],
        step: tvm.ir.GlobalVar,
    ) -> _Results:
        count = len(operands) - len(self.parts)
        done = self._results(items(builder, builder.emit(call(step, variables, operands[:count]))))
        joined = [
            builder.emit(
                part.joined(
                    earlier, builder.match_cast(later, part.whole().type(variables, "more"))
                )
            )
            for part, earlier, later in zip(self.parts, operands[count:], done.parts, strict=True)
        ]
        return replace(done, parts=joined)

    def _endless(self) -> tvm.ir.GlobalVar:
        """One round and all others, however many: by a function that calls itself."""
        number, *others = [*self._kinds(), *self._wholes()]
        kinds = [number, FLAG, *others]
        variables, params = parameters(self.known, kinds)
        results = [NUMBER, FLAG, *self.states, *self._wholes()]
        result = relax.TupleType([kind.type(variables) for kind in results])
        loop = global_name(
            self.functions.name(f"{self.name}_loop"),
            relax.FuncType([param.ty for param in params], result),
        )
        again = self._again(loop)

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            number, going, *others = operands
            states, parts = others[: len(self.states)], others[len(others) - len(self.parts) :]
            done = relax.Tuple([number, going, *states, *parts])
            return choice(builder, going, call(again, variables, [number, *others]), done)

        self.functions.add("", self.known, kinds, make, loop)
        step = self._step[-1]

        def begin(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            done = self._results(items(builder, builder.emit(call(step, variables, operands))))
            return builder.emit(self._on(loop, variables, operands, done))

        return self.functions.add(f"{self.name}_begin", self.known, self._kinds(), begin)

    def _again(self, loop: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        step = self._step[-1]

        def make(
            builder: relax.BlockBuilder, variables: Variables, operands: list[relax.Expr]
        ) -> relax.Expr:
            done = self._joined(builder, variables, operands, step)
            given = operands[: len(operands) - len(self.parts)]
            return builder.emit(self._on(loop, variables, given, done))

        kinds = [*self._kinds(), *self._wholes()]
        return self.functions.add(f"{self.name}_again", self.known, kinds, make)

    def _on(
        self,
        loop: tvm.ir.GlobalVar,
        variables: Variables,
        operands: list[relax.Expr],
        done: _Results,
    ) -> relax.Call:
        """The loop from what a step with these operands gave."""
        number, *states = done.changed
        given = [number, done.going, *states, *self._rest(operands), *done.parts]
        return call(loop, variables, given)
