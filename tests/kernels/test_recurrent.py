"""ext_recurrent against the formulas in NumPy and double precision."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from benchmarks import abi
from codegen_cc.dtypes import KERNEL_DTYPES
from codegen_cc.operators.recurrent import FUNCTIONS
from tests.kernels.every import every
from tests.kernels.guard import assert_close, at_page_end

KINDS = {"rnn": 0, "gru": 1, "gru_reset_last": 2, "lstm": 3}
GATES = {"rnn": 1, "gru": 3, "gru_reset_last": 3, "lstm": 4}
USUAL = {"rnn": "tanh", "gru": "sigmoid", "gru_reset_last": "sigmoid", "lstm": "sigmoid"}
#: Gates whose weights lie together; those of a GRU's second product behind the others.
PARTS = {"rnn": [1], "gru": [2, 1], "gru_reset_last": [3], "lstm": [4]}
NAMES = list(FUNCTIONS)


def apply(name: str, alpha: float, beta: float, clip: float, x: np.ndarray) -> np.ndarray:
    x = np.clip(x, -clip, clip) if clip else x
    with np.errstate(over="ignore"):
        functions = {
            "sigmoid": lambda: 1 / (1 + np.exp(-x)),
            "tanh": lambda: np.tanh(x),
            "relu": lambda: np.maximum(x, 0),
            "affine": lambda: alpha * x + beta,
            "leaky_relu": lambda: np.where(x < 0, alpha * x, x),
            "thresholded_relu": lambda: np.where(x <= alpha, 0, x),
            "scaled_tanh": lambda: alpha * np.tanh(beta * x),
            "hard_sigmoid": lambda: np.clip(alpha * x + beta, 0, 1),
            "elu": lambda: np.where(x < 0, alpha * np.expm1(x), x),
            "softsign": lambda: x / (1 + np.abs(x)),
            "softplus": lambda: np.logaddexp(0, x),
        }
        return functions[name]()


def rounded(h: np.ndarray) -> np.ndarray:
    """What DynamicQuantizeLinear leaves of a row of states; NaN where one is no finite number."""
    if not np.isfinite(h).all():
        return np.full_like(h, np.nan)
    low, high = min(h.min(initial=0), 0), max(h.max(initial=0), 0)
    scale = (high - low) / 255 or 1.0
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale


@dataclass
class Layer:
    """Numbers of a layer; x has the products of the inputs, [T, B, D, gates, H]."""

    kind: str
    steps: int
    batch: int
    units: int
    directions: int = 1
    reverse: bool = False
    lengths: list[int] | None = None
    clip: float = 0.0
    coupled: bool = False
    with_peepholes: bool = False
    with_states: bool = True
    integers: bool = False
    narrow: bool = False
    functions: list[tuple[str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        draw = np.random.default_rng(7)
        gates, d, h = GATES[self.kind], self.directions, self.units
        usual = [(USUAL[self.kind], 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)]
        self.functions = self.functions or usual * d
        self.x = draw.standard_normal((self.steps, self.batch, d, gates, h))
        self.r = draw.standard_normal((d, gates, h, h)) / np.sqrt(h)
        self.bias = draw.standard_normal((d, h))
        self.q = draw.integers(-127, 128, self.r.shape)
        self.scale = draw.uniform(0.5, 2, (d, gates, h)) / 127 / np.sqrt(h)
        self.peepholes = draw.standard_normal((d, 3, h))
        self.h, self.c = draw.standard_normal((2, d, self.batch, h)) * self.with_states

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = np.zeros((self.steps, self.directions, self.batch, self.units))
        h, c = self.h.copy(), self.c.copy()
        for d, row in itertools.product(range(self.directions), range(self.batch)):
            length = self.steps if self.lengths is None else self.lengths[row]
            times = range(length)
            for t in reversed(times) if d or self.reverse else times:
                h[d, row], c[d, row] = self.step(d, self.x[t, row, d], h[d, row], c[d, row])
                y[t, d, row] = h[d, row]
        return y, h, c

    def step(
        self, d: int, x: np.ndarray, h: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        f, g, k = (
            lambda s, chosen=chosen, clip=clip: apply(*chosen, clip, s)
            for chosen, clip in zip(
                self.functions[3 * d : 3 * d + 3], (self.clip, self.clip, 0.0), strict=True
            )
        )
        s = x + np.einsum("gjk,k->gj", self.r[d], rounded(h) if self.integers else h)
        if self.kind == "rnn":
            return f(s[0]), c
        if self.kind == "lstm":
            p = self.peepholes[d] * self.with_peepholes
            i = f(s[0] + p[0] * c)
            keep = 1 - i if self.coupled else f(s[2] + p[2] * c)
            c = keep * c + i * g(s[3])
            return f(s[1] + p[1] * c) * k(c), c
        z, u = f(s[0]), f(s[1])
        if self.kind == "gru":
            n = g(x[2] + self.r[d, 2] @ (u * h))
        else:
            n = g(x[2] + u * (self.r[d, 2] @ h + self.bias[d]))
        return (1 - z) * n + z * h, c

    # ------------------------------------------------------------------ as the kernel reads it

    def blocks(self, array: np.ndarray, axis: int) -> np.ndarray:
        """Units along an axis as blocks of 16, zero behind them, and those two axes apart."""
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, -self.units % 16)
        wide = np.pad(array, widths)
        count = wide.shape[axis] // 16
        return wide.reshape(*wide.shape[:axis], count, 16, *wide.shape[axis + 1 :])

    def gates_last(self, array: np.ndarray) -> np.ndarray:
        """[direction, gates, units] as [direction, block, gates, 16]."""
        return at_page_end(self.blocks(array, 2).transpose(0, 2, 1, 3))

    def weights(self) -> tuple[abi.RecurrentWeights, list[np.ndarray]]:
        """The block, and the arrays that it points at."""
        split = self.blocks(self.q if self.integers else self.r, 2).transpose(0, 2, 4, 1, 3)
        d, blocks, units, gates, _ = split.shape  # [d, block, k, gate, 16]
        if self.integers:
            quads = np.pad(split, [(0, 0), (0, 0), (0, -units % 4), (0, 0), (0, 0)])
            quads = quads.reshape(d, blocks, -1, 4, gates, 16).transpose(0, 1, 2, 4, 5, 3)
            sums = at_page_end(self.blocks(self.q.sum(3), 2).transpose(0, 2, 1, 3), np.int32)
            arrays = [at_page_end(quads, np.int8), self.gates_last(self.scale), sums]
        else:
            bounds = np.cumsum([0, *PARTS[self.kind]])
            parts = [split[:, :, :, a:b].reshape(d, -1) for a, b in itertools.pairwise(bounds)]
            dtype = ml_dtypes.bfloat16 if self.narrow else np.float32
            arrays = [at_page_end(np.concatenate(parts, axis=1), dtype)]
        pointers = [array.ctypes.data for array in arrays] + [None] * (3 - len(arrays))
        return abi.RecurrentWeights(KERNEL_DTYPES.index(str(arrays[0].dtype)), *pointers), arrays

    def run(self, lib: ctypes.CDLL, gap: int = 0) -> tuple[int, list[np.ndarray]]:
        """The kernel's status and results; ``gap`` elements lie between rows of the output."""
        d, blocks = self.directions, -(-self.units // 16)
        x = at_page_end(self.blocks(self.x, 4).transpose(0, 1, 2, 4, 3, 5))
        bias, peepholes = at_page_end(self.blocks(self.bias, 1)), self.gates_last(self.peepholes)
        lengths = None if self.lengths is None else at_page_end(self.lengths, np.int32)
        y = at_page_end(np.full((self.steps, d, self.batch, self.units + gap), 777.25))
        states = [at_page_end(state) for state in (self.h, self.c)]
        last = [at_page_end(np.zeros(self.h.shape)) for _ in range(2)]
        columns = GATES[self.kind] * blocks * 16 * d
        row, names = self.units + gap, [NAMES.index(name) for name, _, _ in self.functions]
        params = abi.RecurrentParams(
            *(KINDS[self.kind], d, self.reverse, self.coupled),
            *(self.steps, self.batch, self.units, self.batch * columns, columns),
            *(d * self.batch * row, self.batch * row, row, self.batch * self.units, self.units),
            self.clip,
        )
        for place, (code, (_, alpha, beta)) in enumerate(zip(names, self.functions, strict=True)):
            params.functions[place] = code
            params.alphas[place], params.betas[place] = alpha, beta

        def at(array: np.ndarray | None, wanted: bool = True) -> int | None:
            return array.ctypes.data if array is not None and wanted else None

        weights, arrays = self.weights()
        weights.bias = at(bias, self.kind == "gru_reset_last")
        weights.peepholes = at(peepholes, self.with_peepholes)
        given = [at(x), at(lengths), *(at(state, self.with_states) for state in states)]
        status = lib.ext_recurrent(params, weights, *given, at(y), *map(at, last))
        del arrays
        assert not gap or (y[..., self.units :] == np.float32(777.25)).all()
        return status, [y[..., : self.units], *last]

    def check(self, lib: ctypes.CDLL, gap: int = 0, limit: float = 1e-5) -> None:
        for name in ("x", "r", "bias", "peepholes", "h", "c", "scale"):  # what float32 holds
            setattr(self, name, getattr(self, name).astype(np.float32).astype(np.float64))
        if self.integers:
            self.r = self.q * self.scale[..., None]
        if self.narrow:
            self.r = self.r.astype(ml_dtypes.bfloat16).astype(np.float64)
        status, found = self.run(lib, gap)
        assert status == 0
        count = 3 if self.kind == "lstm" else 2
        for got, want in zip(found[:count], self.expected()[:count], strict=True):
            assert_close(got, want, limit * max(1.0, np.abs(want).max(initial=0)))


#: (steps, batch, units)
SHAPES = [
    *((1, 1, 1), (3, 1, 16), (2, 3, 15), (5, 1, 33), (2, 7, 17), (3, 2, 48), (2, 14, 20)),
    *((0, 2, 5), (2, 0, 5)),
]


@every("kind", KINDS)
@every("shape", SHAPES, ids=str)
def test_shapes(lib: ctypes.CDLL, kind: str, shape: tuple[int, int, int]) -> None:
    for directions, reverse in ((1, False), (1, True), (2, False)):
        Layer(kind, *shape, directions, reverse).check(lib, gap=3 * (directions - 1))
    Layer(kind, *shape, with_states=False).check(lib)


@every("narrow", [False, True])
def test_weights_that_do_not_fit_in_l2(lib: ctypes.CDLL, narrow: bool) -> None:
    """Steps forward and backward through 9 MB of them, or half of that."""
    Layer("lstm", 3, 1, 752, narrow=narrow).check(lib)
    Layer("gru", 3, 1, 752, narrow=narrow).check(lib)


@every("kind", KINDS)
def test_lengths(lib: ctypes.CDLL, kind: str) -> None:
    for lengths, directions in itertools.product(([4, 0, 2, 1], [3, 3, 3, 3]), (1, 2)):
        Layer(kind, 4, 4, 18, directions, lengths=lengths).check(lib)
    Layer(kind, 4, 4, 18, reverse=True, lengths=[1, 4, 0, 3]).check(lib)


@every("kind", KINDS)
def test_functions(lib: ctypes.CDLL, kind: str) -> None:
    """Each in each place, the directions having their own."""
    draw = np.random.default_rng(3)
    for shift in range(len(NAMES)):
        chosen = [
            (NAMES[(shift + 4 * i) % len(NAMES)], *draw.uniform(0.2, 0.9, 2)) for i in range(6)
        ]
        chosen = [(name, float(np.float32(a)), float(np.float32(b))) for name, a, b in chosen]
        Layer(kind, 2, 2, 20, 2, functions=chosen, clip=shift % 2 * 0.75).check(lib)


@every("clip", [0.0, 0.5])
@every("coupled", [False, True])
def test_peepholes(lib: ctypes.CDLL, coupled: bool, clip: float) -> None:
    Layer("lstm", 3, 2, 21, 2, coupled=coupled, clip=clip, with_peepholes=True).check(lib)


@every("kind", KINDS)
def test_special_values(lib: ctypes.CDLL, kind: str) -> None:
    """Where a NaN comes in, and gates that are shut, or open as far as can be."""
    layer = Layer(kind, 4, 6, 19)
    layer.x[1, 0, 0, :, 5] = np.nan
    layer.x[:, 1] *= 1e4
    layer.x[0, 2], layer.x[1, 2] = 1e38, -1e38
    layer.check(lib)


@every("kind", ["lstm", "gru", "gru_reset_last"])
@every("state", [1e5, 1e30, -3e38])
def test_a_shut_gate_forgets_a_great_state(lib: ctypes.CDLL, kind: str, state: float) -> None:
    layer = Layer(kind, 3, 6, 19)
    layer.r[:] = 0
    layer.h[0, 1, 3] = layer.c[0, 1, 3] = state
    layer.x[0, 1, 0, 2 if kind == "lstm" else 0, 3] = -200
    layer.x[0, 1, 0, 0, 3] = -200
    layer.check(lib)


@every(("lengths", "kind"), [([2, 5], "gru"), ([-1, 1], "lstm")])
def test_lengths_that_are_refused(lib: ctypes.CDLL, lengths: list[int], kind: str) -> None:
    assert Layer(kind, 4, 2, 3, lengths=lengths).run(lib)[0] == 4


def test_what_is_refused(lib: ctypes.CDLL) -> None:
    floats, integers = (abi.RecurrentWeights(KERNEL_DTYPES.index(d)) for d in ("float32", "int8"))
    for params, weights in (((4, 1), floats), ((3, 3), floats), ((1, 1), integers)):
        assert lib.ext_recurrent(abi.RecurrentParams(*params), weights, *[None] * 7) == 2


@every("kind", KINDS)
def test_weights_in_bfloat16(lib: ctypes.CDLL, kind: str) -> None:
    for shape in SHAPES:
        Layer(kind, *shape, directions=2, narrow=True).check(lib, gap=1)


# ---------------------------------------------------------------- weights of 8 bits


@pytest.mark.slow
@every("shape", SHAPES, ids=str)
def test_integers(quantised_lib: ctypes.CDLL, shape: tuple[int, int, int]) -> None:
    for directions, reverse in ((1, False), (1, True), (2, False)):
        layer = Layer("lstm", *shape, directions, reverse, integers=True)
        layer.h /= 4
        layer.check(quantised_lib, gap=directions)
    Layer("lstm", *shape, with_states=False, integers=True).check(quantised_lib)


def test_forms_of_integers(quantised_lib: ctypes.CDLL) -> None:
    """Lengths, peepholes, clip, states without a bound, and first states that are great, all above
    zero, below, or all zero."""
    forms = [{"lengths": [4, 0, 2]}, {"with_peepholes": True, "clip": 0.5}, {"coupled": True}]
    forms.append({"functions": [("sigmoid", 0, 0), ("tanh", 0, 0), ("affine", 3.0, 0.5)] * 2})
    for form in forms:
        Layer("lstm", 4, 3, 21, 2, integers=True, **form).check(quantised_lib)
    layer = Layer("lstm", 3, 4, 20, integers=True)
    layer.h *= 50
    layer.h[:, 1], layer.h[:, 2], layer.h[:, 3] = abs(layer.h[:, 1]), -abs(layer.h[:, 2]), 0
    layer.check(quantised_lib)


def test_special_values_of_integers(quantised_lib: ctypes.CDLL) -> None:
    """Where a NaN comes in, the whole row is NaN from the next step on, and no other."""
    layer = Layer("lstm", 4, 5, 40, integers=True, with_states=False)
    layer.x[1, 2, 0, :, 35] = np.nan
    layer.x[:, 1] *= 1e4
    layer.check(quantised_lib)
    layer = Layer("lstm", 2, 3, 17, integers=True)
    layer.h[0, 1, 3] = np.inf
    status, (y, _, _) = layer.run(quantised_lib)
    assert status == 0 and np.isnan(y[:, 0, 1]).all() and not np.isnan(y[:, 0, (0, 2)]).any()
