"""A recurrent layer as loops of TVM's: right for every form and dtype, and slow.

The formulas are those of ``ext_recurrent.h``. Sums of a step are written down first, then states.
Where weights are integers, what they multiply is rounded as DynamicQuantizeLinear does: the input
as a whole, the states of each row at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from codegen_cc.operators.recurrent import GATES, GRU, LSTM, backwards, functions_of


@dataclass(frozen=True)
class LayerForm:
    """Roles of the operands and attributes of a layer."""

    roles: tuple[str, ...]
    attrs: dict[str, Any]


#: Places of zero points, scales behind them.
_OF_INPUT, _OF_STATES = 0, 2


def _number(value: int, x: tirx.Expr | te.TensorSlice) -> tirx.Expr:
    """A constant of the dtype of an expression, which only elements of a tensor name so."""
    return tirx.const(value, x.dtype if isinstance(x, te.TensorSlice) else str(x.ty))


#: What gates apply, by name: of the argument, alpha and beta.
_FUNCTIONS: dict[str, Callable[..., tirx.Expr]] = {
    "sigmoid": lambda x, a, b: tirx.sigmoid(x),
    "tanh": lambda x, a, b: tirx.tanh(x),
    "relu": lambda x, a, b: tirx.max(x, _number(0, x)),
    "affine": lambda x, a, b: a * x + b,
    "leaky_relu": lambda x, a, b: tirx.Select(x < 0, a * x, x),
    "thresholded_relu": lambda x, a, b: tirx.Select(x <= a, _number(0, x), x),
    "scaled_tanh": lambda x, a, b: a * tirx.tanh(b * x),
    "hard_sigmoid": lambda x, a, b: tirx.max(tirx.min(a * x + b, _number(1, x)), _number(0, x)),
    "elu": lambda x, a, b: tirx.Select(x < 0, a * (tirx.exp(x) - 1), x),
    "softsign": lambda x, a, b: x / (1 + tirx.abs(x)),
    "softplus": lambda x, a, b: tirx.max(x, _number(0, x)) + tirx.log(1 + tirx.exp(-tirx.abs(x))),
}


def emit_loops(operands: Sequence[te.Tensor], form: LayerForm) -> list[te.Tensor]:
    """The output and the last states, two of them whatever the kind, sums of the gates, the zero
    points and scales of an input and of states that are rounded, and these states."""
    given = dict(zip(form.roles, operands, strict=True))
    x, r = given["input"], given["recurrence"]
    directions, sums, units = r.shape
    if form.attrs["batch_first"]:
        batch, steps, _ = x.shape
        shapes = [[batch, steps, directions, units], *[[batch, directions, units]] * 2]
    else:
        steps, batch, _ = x.shape
        shapes = [[steps, directions, batch, units], *[[directions, batch, units]] * 2]
    shapes += [[directions, batch, sums], [4], [units]]
    return te.extern(
        shapes,
        list(operands),
        lambda ins, outs: _Layer(form, ins, outs).statement(),
        name="recurrent_layer",
        dtype=[x.dtype] * len(shapes),
    )


class _Layer:
    """Writes the loops into TVM's builder."""

    def __init__(self, form: LayerForm, ins: Any, outs: Any) -> None:
        self.attrs = form.attrs
        self.given = dict(zip(form.roles, ins, strict=True))
        self.y, self.h, self.c, self.sums, self.range, self.rounded = outs
        x = self.given["input"]
        self.dtype = x.dtype
        self.batch_first = self.attrs["batch_first"]
        self.batch, self.steps = (x.shape[i] for i in ((0, 1) if self.batch_first else (1, 0)))
        self.inputs, self.units = x.shape[2], self.given["recurrence"].shape[2]
        self.kind, self.gates = self.attrs["kind"], GATES[self.attrs["kind"]]

    def statement(self) -> tirx.Stmt:
        """All of it."""
        with IRBuilder() as builder:
            with T.seq_scope():
                if "weight_scale" in self.given:
                    x = self.given["input"]
                    self._take_range(_OF_INPUT, x.shape, lambda *place: x[place])
                with T.serial(0, self.batch) as b:
                    for d in range(int(self.given["recurrence"].shape[0])):
                        self._row(d, b)
            return builder.get()

    def _row(self, d: int, b: tirx.Expr) -> None:
        """All steps of one direction of one row of the batch."""
        for state, role in ((self.h, "initial_h"), (self.c, "initial_c")):
            first = self.given.get(role)
            with T.serial(0, self.units) as j:
                value = self._zero() if first is None else first[self._state(d, b, j)]
                T.buffer_store(state, value, self._state(d, b, j))
        lengths = self.given.get("lengths")
        length = self.steps if lengths is None else lengths[b].astype("int64")
        with T.serial(0, self.steps) as step, T.If(step < length):
            with T.Then():
                time = length - 1 - step if backwards(self.attrs, d) else step
                self._step(d, b, time)
                self._write(d, b, time, lambda j: self.h[self._state(d, b, j)])
            with T.Else():
                self._write(d, b, step, lambda j: self._zero())

    def _write(
        self, d: int, b: tirx.Expr, time: tirx.Expr, value: Callable[[tirx.Expr], tirx.Expr]
    ) -> None:
        with T.serial(0, self.units) as j:
            place = [b, time, d, j] if self.batch_first else [time, d, b, j]
            T.buffer_store(self.y, value(j), place)

    def _step(self, d: int, b: tirx.Expr, time: tirx.Expr) -> None:
        h = self._states_as_multiplied(d, b)
        resets = self.kind == GRU
        own = self.units * (2 if resets else self.gates)
        with T.serial(0, self.units * self.gates) as j:
            self._set(d, b, j, self._bias(d, j, reset_last=resets and self.attrs["reset_last"]))
            with T.serial(0, self.inputs) as i:
                place = [b, time, i] if self.batch_first else [time, b, i]
                self._add(d, b, j, self._input(place) * self._weight("weight", d, j, i))
        with T.serial(0, own) as j, T.serial(0, self.units) as k:
            self._add(d, b, j, h(k) * self._weight("recurrence", d, j, k))
        if self.kind == LSTM:
            with T.serial(0, self.units) as j:
                self._lstm(d, b, j)
        elif resets:
            self._gru(d, b)
        else:
            with T.serial(0, self.units) as j:
                self._set_state(self.h, d, b, j, self._apply(0, d, self._sum(d, b, 0, j)))

    # ------------------------------------------------------------------ cells

    def _lstm(self, d: int, b: tirx.Expr, j: tirx.Expr) -> None:
        """Sums take the place of gates, as each is read once more."""
        peepholes = self.given.get("peepholes")
        c = self.c[self._state(d, b, j)]

        def gate(index: int, state: tirx.Expr) -> tirx.Expr:
            value = self._sum(d, b, index, j)
            if peepholes is not None:
                value = value + peepholes[d, index * self.units + j] * state
            return self._apply(0, d, value)

        at = partial(self._place, d, b)
        T.buffer_store(self.sums, gate(0, c), at(0, j))
        keep = 1 - self._sum(d, b, 0, j) if self.attrs["coupled"] else gate(2, c)
        T.buffer_store(self.sums, keep, at(2, j))
        fresh = self._apply(1, d, self._sum(d, b, 3, j))
        state = self._sum(d, b, 2, j) * c + self._sum(d, b, 0, j) * fresh
        self._set_state(self.c, d, b, j, state)
        T.buffer_store(self.sums, gate(1, self.c[self._state(d, b, j)]), at(1, j))
        squashed = self._apply(2, d, self.c[self._state(d, b, j)], clip=0)
        self._set_state(self.h, d, b, j, self._sum(d, b, 1, j) * squashed)

    def _gru(self, d: int, b: tirx.Expr) -> None:
        """``c`` holds what is multiplied by the last gate's weights, or the products."""
        units, last = self.units, self.attrs["reset_last"]
        with T.serial(0, units) as j:
            for index in (0, 1):
                gate = self._apply(0, d, self._sum(d, b, index, j))
                T.buffer_store(self.sums, gate, self._place(d, b, index, j))
            if not last:
                reset = self._sum(d, b, 1, j) * self.h[self._state(d, b, j)]
                self._set_state(self.c, d, b, j, reset)
        with T.serial(0, units) as j:
            weights = partial(self._weight, "recurrence", d, 2 * units + j)
            if last:
                bias = self.given.get("bias")
                first = self._zero() if bias is None else bias[d, 5 * units + j]
                self._set_state(self.c, d, b, j, first)
                with T.serial(0, units) as k:
                    product = self.h[self._state(d, b, k)] * weights(k)
                    self._set_state(self.c, d, b, j, self.c[self._state(d, b, j)] + product)
                reset = self._sum(d, b, 1, j) * self.c[self._state(d, b, j)]
                self._add(d, b, 2 * units + j, reset)
            else:
                with T.serial(0, units) as k:
                    self._add(d, b, 2 * units + j, self.c[self._state(d, b, k)] * weights(k))
        with T.serial(0, units) as j:
            fresh, z = self._apply(1, d, self._sum(d, b, 2, j)), self._sum(d, b, 0, j)
            state = (1 - z) * fresh + z * self.h[self._state(d, b, j)]
            self._set_state(self.h, d, b, j, state)

    # ------------------------------------------------------------------ parts

    def _states_as_multiplied(self, d: int, b: tirx.Expr) -> Callable[[tirx.Expr], tirx.Expr]:
        """The states of a row, rounded where their weights are integers."""
        h = lambda k: self.h[self._state(d, b, k)]  # noqa: E731
        if "recurrence_scale" not in self.given:
            return h
        self._take_range(_OF_STATES, [self.units], h)
        with T.serial(0, self.units) as k:
            T.buffer_store(self.rounded, self._rounded(_OF_STATES, h(k)), [k])
        return lambda k: self.rounded[k]

    def _take_range(self, at: int, extents: Sequence[Any], value: Callable[..., tirx.Expr]) -> None:
        """The zero point and the scale of values, at two places of ``range``."""
        zero, low, high = self._zero(), self.range[at], self.range[at + 1]
        for place in (at, at + 1):
            T.buffer_store(self.range, zero, [place])
        with ExitStack() as loops:
            place = [loops.enter_context(T.serial(0, extent)) for extent in extents]
            T.buffer_store(self.range, tirx.min(low, value(*place)), [at])
            T.buffer_store(self.range, tirx.max(high, value(*place)), [at + 1])
        width = (high - low) / tirx.const(255, self.dtype)
        one = tirx.const(1, self.dtype)
        T.buffer_store(self.range, tirx.Select(width > zero, width, one), [at + 1])
        T.buffer_store(self.range, self._byte(-low / high), [at])

    def _byte(self, value: tirx.Expr) -> tirx.Expr:
        """The nearest of the integers 0 .. 255."""
        low, high = (tirx.const(bound, self.dtype) for bound in (0, 255))
        return tirx.nearbyint(tirx.max(tirx.min(value, high), low))

    def _input(self, place: list[Any]) -> tirx.Expr:
        value = self.given["input"][tuple(place)]
        if "weight_scale" not in self.given:
            return value
        return self._rounded(_OF_INPUT, value)

    def _rounded(self, at: int, value: tirx.Expr) -> tirx.Expr:
        zero, scale = self.range[at], self.range[at + 1]
        return (self._byte(tirx.nearbyint(value / scale) + zero) - zero) * scale

    def _weight(self, role: str, d: int, j: tirx.Expr, k: tirx.Expr) -> tirx.Expr:
        value, scale = self.given[role][d, j, k], self.given.get(f"{role}_scale")
        return value if scale is None else value.astype(self.dtype) * scale[d, j]

    def _zero(self) -> tirx.Expr:
        return tirx.const(0, self.dtype)

    def _state(self, d: int, b: tirx.Expr, j: tirx.Expr) -> tuple[Any, ...]:
        return (b, d, j) if self.batch_first else (d, b, j)

    def _set_state(self, state: Any, d: int, b: tirx.Expr, j: tirx.Expr, value: Any) -> None:
        T.buffer_store(state, value, list(self._state(d, b, j)))

    def _place(self, d: int, b: tirx.Expr, gate: int, j: tirx.Expr) -> list[Any]:
        return [d, b, gate * self.units + j]

    def _sum(self, d: int, b: tirx.Expr, gate: int, j: tirx.Expr) -> tirx.Expr:
        return self.sums[tuple(self._place(d, b, gate, j))]

    def _set(self, d: int, b: tirx.Expr, j: tirx.Expr, value: tirx.Expr) -> None:
        T.buffer_store(self.sums, value, [d, b, j])

    def _add(self, d: int, b: tirx.Expr, j: tirx.Expr, value: tirx.Expr) -> None:
        self._set(d, b, j, self.sums[d, b, j] + value)

    def _bias(self, d: int, j: tirx.Expr, reset_last: bool) -> tirx.Expr:
        """Both biases of a sum, but for one that a reset gate multiplies."""
        bias = self.given.get("bias")
        if bias is None:
            return self._zero()
        one, other = bias[d, j], bias[d, self.gates * self.units + j]
        if reset_last:
            return one + tirx.Select(j < 2 * self.units, other, self._zero())
        return one + other

    def _apply(self, index: int, d: int, value: tirx.Expr, clip: float | None = None) -> tirx.Expr:
        """A function of a sum, which is clipped first."""
        name, alpha, beta = functions_of(self.attrs, d)[index]
        clip = self.attrs["clip"] if clip is None else clip
        if clip:
            bound = tirx.const(clip, self.dtype)
            value = tirx.max(tirx.min(value, bound), -bound)
        return _FUNCTIONS[name](value, *(tirx.const(n, self.dtype) for n in (alpha, beta)))
