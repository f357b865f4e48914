"""The shapes that kernels are tested with: one list per family."""

from __future__ import annotations

from dataclasses import dataclass

Act = tuple[str, float, float]
NONE: Act = ("identity", 0.0, 0.0)
RELU: Act = ("relu", 0.0, 0.0)
RELU6: Act = ("clip", 0.0, 6.0)

#: Every function with parameters that exercise it.
ACTIVATIONS: tuple[Act, ...] = (
    NONE,
    RELU,
    RELU6,
    ("clip", -0.5, 0.5),
    ("sigmoid", 0.0, 0.0),
    ("silu", 0.0, 0.0),
    ("hard_sigmoid", 0.2, 0.5),
    ("hard_swish", 0.0, 0.0),
    ("gelu", 0.0, 0.0),
    ("gelu_tanh", 0.0, 0.0),
    ("tanh", 0.0, 0.0),
    ("leaky_relu", 0.1, 0.0),
    ("exp", 0.0, 0.0),
    ("log", 0.0, 0.0),
    ("erf", 0.0, 0.0),
    ("sqrt", 0.0, 0.0),
    ("rsqrt", 0.0, 0.0),
    ("abs", 0.0, 0.0),
    ("neg", 0.0, 0.0),
    ("elu", 0.7, 0.0),
    *((kind, 0.0, 0.0) for kind in ("selu", "mish", "softplus", "floor", "ceil", "round")),
    *((kind, 0.0, 0.0) for kind in ("sin", "cos", "tan", "sign", "reciprocal")),
    *((kind, 0.0, 0.0) for kind in ("expm1", "log1p", "trunc")),
    *((kind, 0.0, 0.0) for kind in ("atan", "asin", "acos", "asinh", "acosh", "atanh")),
)


@dataclass(frozen=True)
class Epilogue:
    """Which parts of an epilogue a case has; ``residual`` is "", "own" or "y" (y itself)."""

    bias: bool = False
    before: Act = NONE
    residual: str = ""
    after: Act = NONE
    factor: bool = False  # whether the residual is one

    def __str__(self) -> str:
        names = ["bias"] * self.bias + [self.before[0]] * (self.before != NONE)
        joined = "factor" if self.factor else "residual"
        names += [f"{joined}_{self.residual}"] * bool(self.residual)
        return "-".join(names + [self.after[0]] * (self.after != NONE)) or "plain"


EPILOGUES: tuple[Epilogue, ...] = (
    Epilogue(),
    Epilogue(bias=True),
    Epilogue(bias=True, after=RELU),
    Epilogue(bias=True, before=RELU6),
    Epilogue(residual="own"),
    Epilogue(bias=True, residual="own", after=RELU),
    Epilogue(bias=True, residual="y", after=RELU),
    Epilogue(bias=True, before=("silu", 0, 0), residual="own"),
    Epilogue(bias=True, before=("gelu", 0, 0), residual="y", after=("tanh", 0, 0)),
    Epilogue(bias=True, residual="y", after=("hard_swish", 0, 0)),
)

#: Those of products of matrices alone.
FACTORS: tuple[Epilogue, ...] = (
    Epilogue(residual="own", factor=True),
    Epilogue(bias=True, residual="y", after=RELU6, factor=True),
    Epilogue(bias=True, before=("silu", 0, 0), residual="own", factor=True),
    Epilogue(residual="y", after=("gelu", 0, 0), factor=True),
)


@dataclass(frozen=True)
class Matmul:
    """y[batch][m][n]; the layouts say which axis of an operand is contiguous."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    a_broadcast: tuple[int, ...] = ()  # batch axes along which a (b) is the same
    b_broadcast: tuple[int, ...] = ()
    a_transposed: bool = False
    b_transposed: bool = False
    b_step: int = 1  # distance between neighbouring columns of b
    y_gap: int = 0  # floats between rows of y
    epilogue: Epilogue = Epilogue()

    def __str__(self) -> str:
        layout = "t" * self.a_transposed + "n" * (not self.a_transposed)
        layout += "t" * self.b_transposed + "n" * (not self.b_transposed)
        batch = "x".join(map(str, self.batch))
        return f"{batch}_{self.m}x{self.n}x{self.k}_{layout}_gap{self.y_gap}_{self.epilogue}"


_EDGES = (0, 1, 2, 13, 15, 16, 17, 31, 33, 48)
#: Few columns or few rows: dots, walks and sweeps of gemv.c.
_THIN: tuple[Matmul, ...] = (
    *(Matmul(67, n, k, y_gap=n % 3) for n in range(1, 10) for k in (7, 16, 37)),
    *(
        Matmul(131, n, 50, y_gap=g, epilogue=e)
        for n, g in ((1, 0), (1, 2), (3, 0), (5, 2))
        for e in EPILOGUES
    ),
    *(Matmul(70, n, 130, b_transposed=True) for n in (1, 4)),
    *(Matmul(70, n, 0, epilogue=EPILOGUES[2]) for n in (1, 3)),
    Matmul(70, 3, 40, b_step=2),
    Matmul(70, 1, 40, a_transposed=True),
    Matmul(66, 2, 33, batch=(3,), epilogue=EPILOGUES[5]),
    Matmul(66, 2, 33, batch=(2, 3), b_broadcast=(0,), y_gap=1, epilogue=EPILOGUES[6]),
    Matmul(66, 2, 33, batch=(2, 3), a_broadcast=(1,), b_broadcast=(0, 1)),
    Matmul(3000, 1, 300, epilogue=EPILOGUES[2]),
    *(Matmul(m, n, 37, y_gap=1) for m in range(1, 15) for n in (3, 17, 131, 300)),
    *(Matmul(m, 171, 50, y_gap=2, epilogue=e) for m in (1, 3, 6) for e in EPILOGUES + FACTORS),
    *(Matmul(131, n, 50, y_gap=g, epilogue=e) for n, g in ((1, 0), (3, 2)) for e in FACTORS),
    *(Matmul(m, 71, 130, b_transposed=True, epilogue=e) for m in (1, 7) for e in FACTORS),
    *(
        Matmul(m, 70, k, b_transposed=True)
        for m in (1, 2, 3, 4, 5, 8, 14, 15)
        for k in (5, 37, 130)
    ),
    *(
        Matmul(m, 71, 130, b_transposed=True, y_gap=2, epilogue=e)
        for m in (1, 7)
        for e in EPILOGUES
    ),
    Matmul(6, 71, 130, a_transposed=True, b_transposed=True),
    Matmul(3, 171, 30, a_transposed=True),
    Matmul(2, 171, 0, epilogue=EPILOGUES[2]),
    Matmul(1, 197, 64, batch=(2, 5), b_transposed=True, epilogue=EPILOGUES[5]),
    Matmul(1, 64, 197, batch=(2, 5), a_broadcast=(1,), y_gap=3),
    Matmul(2, 200, 33, batch=(2, 3), b_broadcast=(1,), epilogue=EPILOGUES[7]),
    Matmul(6, 71, 130, batch=(3,), a_transposed=True, b_transposed=True, a_broadcast=(0,)),
    # More than L3 holds.
    Matmul(1, 150001, 21),
    Matmul(3, 150001, 21, y_gap=3, epilogue=EPILOGUES[6]),
    Matmul(6, 150001, 21, epilogue=EPILOGUES[7]),
)

MATMUL: tuple[Matmul, ...] = (
    *(Matmul(m, n, k) for m in (0, 1, 5, 29) for n in (0, 1, 16, 37) for k in (0, 1, 15)),
    *(Matmul(m, 33, 40, y_gap=3) for m in (*_EDGES, *range(3, 15))),
    *(Matmul(19, n, 21, y_gap=1) for n in _EDGES),
    *(Matmul(17, 40, k) for k in (16, 17, 383, 384, 385, 1000)),
    *(Matmul(1, n, 700, epilogue=e) for n in (8, 16, 100, 144) for e in EPILOGUES[:3]),
    *(Matmul(23, 43, 50, y_gap=2, epilogue=e) for e in EPILOGUES + FACTORS),
    *(Matmul(23, 43, 900, y_gap=2, epilogue=e) for e in EPILOGUES + FACTORS),
    *(Matmul(11, 19, 23, batch=(4,), y_gap=5, epilogue=e) for e in FACTORS),
    *(Matmul(1, 43, 900, y_gap=2, epilogue=e) for e in EPILOGUES),
    *(Matmul(9, 35, 12, epilogue=Epilogue(bias=True, after=a)) for a in ACTIVATIONS[:12]),
    Matmul(250, 70, 33),
    Matmul(130, 300, 500),
    Matmul(7, 5, 9, batch=(3,)),
    Matmul(1, 24, 40, batch=(5,)),
    Matmul(20, 33, 16, batch=(2, 3), b_broadcast=(0,)),
    Matmul(20, 33, 16, batch=(2, 3), b_broadcast=(0, 1)),
    Matmul(20, 33, 16, batch=(2, 3), a_broadcast=(1,)),
    Matmul(4, 18, 7, batch=(2, 1, 3, 2), a_broadcast=(0, 3), b_broadcast=(2,)),
    Matmul(11, 19, 23, batch=(2,), epilogue=EPILOGUES[5]),
    Matmul(11, 19, 23, batch=(4,), y_gap=5, epilogue=EPILOGUES[8]),
    Matmul(31, 35, 37, a_transposed=True),
    Matmul(31, 35, 37, b_transposed=True),
    Matmul(64, 64, 64, batch=(4,), b_transposed=True),
    Matmul(31, 35, 37, batch=(2,), a_transposed=True, b_transposed=True),
    Matmul(1, 35, 37, a_transposed=True, b_transposed=True),
    Matmul(12, 21, 18, b_step=2),
    *_THIN,
)


@dataclass(frozen=True)
class Conv:
    """x [n, h, w, c] to o channels; padding is top, left, bottom, right."""

    h: int
    w: int
    c: int
    o: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    n: int = 1
    x_gap: int = 0
    y_gap: int = 0
    epilogue: Epilogue = Epilogue()

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the result."""
        sizes = [
            (size + self.padding[i] + self.padding[i + 2] - dilation * (kernel - 1) - 1) // stride
            + 1
            for i, (size, kernel, stride, dilation) in enumerate(
                zip((self.h, self.w), self.kernel, self.strides, self.dilation, strict=True)
            )
        ]
        return max(0, sizes[0]), max(0, sizes[1])

    def __str__(self) -> str:
        parts = [f"{self.n}x{self.h}x{self.w}x{self.c}to{self.o}"]
        geometry = {"k": self.kernel, "s": self.strides, "p": self.padding, "d": self.dilation}
        parts += [letter + "x".join(map(str, sizes)) for letter, sizes in geometry.items()]
        parts += [f"g{self.groups}", f"gap{self.x_gap}.{self.y_gap}", str(self.epilogue)]
        return "_".join(parts)


_SAME = (1, 1, 1, 1)
CONV: tuple[Conv, ...] = (
    Conv(7, 9, 5, 11),
    # Few channels: lines are copied with their padding, short ones follow one another.
    *(Conv(9, 11, 3, 18, padding=_SAME, n=5, y_gap=g) for g in (0, 3)),
    *(Conv(19, 60, 1, 8, kernel=(3, 5), padding=(4, 2, 0, 7), strides=(1, s)) for s in (1, 3)),
    Conv(40, 9, 4, 5, kernel=(2, 3), padding=(1, 8, 2, 5), dilation=(3, 2), n=2),
    *(Conv(6, 8, 2, 35, padding=_SAME, epilogue=e) for e in EPILOGUES),
    Conv(7, 9, 16, 32, padding=_SAME),
    Conv(7, 9, 17, 33, padding=_SAME, x_gap=3, y_gap=7),
    Conv(6, 6, 24, 40, kernel=(1, 1)),
    Conv(6, 6, 24, 40, kernel=(1, 1), x_gap=8, y_gap=24),
    Conv(7, 8, 24, 40, kernel=(1, 1), strides=(2, 2)),
    Conv(5, 5, 8, 8, kernel=(1, 1), padding=_SAME),
    Conv(23, 21, 3, 20, kernel=(7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
    Conv(9, 10, 6, 7, padding=(0, 2, 1, 0), strides=(1, 2)),
    Conv(9, 10, 6, 7, kernel=(2, 5), padding=(1, 0, 0, 3), strides=(3, 1)),
    Conv(11, 12, 6, 7, padding=(2, 2, 2, 2), dilation=(2, 2)),
    Conv(11, 12, 6, 7, padding=(3, 0, 3, 0), dilation=(3, 1)),
    Conv(3, 2, 4, 5, kernel=(5, 5), padding=(2, 2, 2, 2)),
    Conv(1, 700, 20, 37, kernel=(1, 7), padding=(0, 3, 0, 3)),
    Conv(1, 900, 16, 20, kernel=(1, 4), padding=(0, 40, 0, 0), strides=(1, 2), groups=2),
    Conv(3, 500, 8, 16, kernel=(2, 3), padding=(1, 2, 0, 2), dilation=(1, 2), y_gap=5),
    Conv(2, 2, 4, 5, kernel=(3, 3), padding=(3, 4, 3, 4)),
    Conv(8, 8, 12, 18, padding=_SAME, groups=2),
    Conv(8, 8, 12, 18, padding=_SAME, groups=6, y_gap=2, epilogue=EPILOGUES[5]),
    Conv(8, 8, 10, 10, padding=_SAME, groups=10),
    Conv(6, 5, 64, 48, padding=_SAME, n=2),
    Conv(6, 5, 64, 48, padding=_SAME, n=3, strides=(2, 2), x_gap=16),
    Conv(3, 3, 200, 35, padding=_SAME),
    Conv(1, 1, 300, 50, kernel=(1, 1), epilogue=EPILOGUES[2]),
    # Wide images, of which some tiles lie inside.
    Conv(4, 61, 3, 20, kernel=(7, 7), padding=(3, 3, 3, 3), n=2),
    Conv(4, 93, 5, 33, padding=_SAME, strides=(2, 2), epilogue=EPILOGUES[5]),
    Conv(3, 50, 9, 17, padding=(2, 2, 2, 2), dilation=(2, 2), x_gap=3, y_gap=5),
    Conv(3, 50, 12, 18, padding=_SAME, groups=2, epilogue=EPILOGUES[8]),
    # Dilations so wide that pixels have few of the taps, or none.
    Conv(9, 13, 6, 20, padding=(4, 4, 4, 4), dilation=(4, 4), y_gap=3, epilogue=EPILOGUES[8]),
    Conv(8, 8, 5, 33, padding=(8, 8, 8, 8), dilation=(8, 8), n=2, epilogue=EPILOGUES[2]),
    Conv(5, 31, 8, 7, padding=(2, 12, 2, 12), dilation=(2, 12), x_gap=3),
    Conv(2, 6, 4, 12, kernel=(2, 2), padding=(5, 20, 5, 9), dilation=(5, 9), epilogue=EPILOGUES[5]),
    Conv(4, 40, 6, 10, kernel=(1, 5), padding=(0, 14, 0, 3), strides=(1, 3), dilation=(1, 5)),
    Conv(1, 700, 12, 18, kernel=(1, 3), padding=(0, 64, 0, 0), dilation=(1, 32), groups=2),
    Conv(2, 64, 4, 12, kernel=(2, 4), strides=(2, 4)),
    # Neighbouring pixels share few sets of L1.
    Conv(3, 20, 1024, 5, padding=_SAME),
    Conv(3, 20, 1024, 40, kernel=(1, 1), epilogue=EPILOGUES[7]),
    Conv(5, 40, 40, 5, kernel=(1, 1), x_gap=984),
    Conv(0, 4, 3, 4, padding=_SAME),
    Conv(4, 4, 3, 0),
    Conv(4, 4, 0, 3),
    Conv(4, 4, 3, 2, n=0),
    *(Conv(7, 6, 9, 21, padding=_SAME, y_gap=3, epilogue=e) for e in EPILOGUES),
    *(Conv(4, 5, 70, 21, padding=_SAME, y_gap=3, epilogue=e) for e in EPILOGUES),
    *(Conv(4, 4, 8, 20, epilogue=Epilogue(bias=True, after=a)) for a in ACTIVATIONS[:12]),
)

#: 1 x 1 convolutions whose input has a prologue.
PROLOGUE: tuple[Conv, ...] = (
    Conv(6, 7, 5, 11, kernel=(1, 1), n=2),
    Conv(5, 5, 700, 40, kernel=(1, 1), n=3, x_gap=8, y_gap=24, epilogue=EPILOGUES[5]),
    Conv(9, 9, 24, 20, kernel=(1, 1), epilogue=EPILOGUES[7]),
)


def _depthwise(h: int, w: int, c: int, **rest: object) -> Conv:
    return Conv(h, w, c, c, groups=c, **rest)  # type: ignore[arg-type]


DEPTHWISE: tuple[Conv, ...] = (
    *(
        _depthwise(13, 23, c, kernel=(k, k), strides=(s, s), padding=(k // 2,) * 4, x_gap=g)
        for k in (3, 5, 7)
        for s in (1, 2)
        for c, g in ((45, 3), (16, 0))
    ),
    _depthwise(13, 23, 20),
    _depthwise(13, 23, 20, padding=(0, 1, 2, 0), strides=(2, 1)),
    _depthwise(13, 23, 20, padding=(2, 2, 2, 2), dilation=(2, 2)),
    _depthwise(13, 23, 20, padding=(2, 1, 2, 1), dilation=(2, 1)),
    _depthwise(9, 30, 33, kernel=(3, 5), padding=(1, 2, 1, 2)),
    # Rows of sound, which are made of parts; tiles of any kernel.
    _depthwise(1, 700, 20, kernel=(1, 31), padding=(0, 15, 0, 15)),
    _depthwise(1, 700, 37, kernel=(1, 9), padding=(0, 8, 0, 0), dilation=(1, 3), x_gap=3),
    _depthwise(2, 700, 16, kernel=(2, 4), padding=(1, 40, 0, 3), strides=(1, 3)),
    _depthwise(1, 500, 20, kernel=(1, 3), padding=(0, 1, 0, 1)),
    *(_depthwise(1, 300, 21, kernel=(1, 8), epilogue=e) for e in EPILOGUES[:6]),
    _depthwise(9, 10, 8, kernel=(2, 4), strides=(3, 3)),
    _depthwise(2, 2, 8, kernel=(7, 7), padding=(3, 3, 3, 3)),
    _depthwise(2, 2, 8, kernel=(3, 3), padding=(4, 4, 4, 4)),
    _depthwise(4, 9, 40, padding=(1, 4, 1, 1)),
    _depthwise(5, 5, 1, padding=_SAME),
    _depthwise(4, 9, 40, padding=(1, 0, 1, 4)),
    _depthwise(7, 7, 48, padding=_SAME, n=2),
    _depthwise(0, 5, 4, padding=_SAME),
    *(_depthwise(6, 19, 37, padding=_SAME, y_gap=3, epilogue=e) for e in EPILOGUES),
    *(_depthwise(4, 12, 20, epilogue=Epilogue(bias=True, after=a)) for a in ACTIVATIONS[:12]),
)

#: Groups that share a vector of 16, 8 or 4 outputs, or have one or several; with and without tiles.
GROUPED: tuple[Conv, ...] = (
    *(
        Conv(5, w, g * i, g * o, strides=(1, s), padding=_SAME, groups=g, x_gap=gap, y_gap=gap)
        for g, i, o in ((8, 2, 2), (5, 2, 2), (5, 4, 4), (3, 2, 4), (3, 8, 8), (2, 16, 16))
        for w, s, gap in ((6, 1, 0), (33, 1, 3), (16, 2, 0), (60, 2, 5))
    ),
    *(
        Conv(6, 31, g * i, g * o, padding=_SAME, groups=g)
        for g, i, o in ((20, 1, 2), (6, 1, 8), (3, 3, 4), (3, 6, 32), (2, 24, 48))
    ),
    Conv(7, 20, 12, 12, padding=(0, 1, 2, 0), strides=(2, 1), groups=3),
    Conv(7, 20, 12, 12, padding=(2, 3, 1, 0), groups=3, n=2),
    Conv(9, 20, 24, 24, padding=(2, 2, 2, 2), dilation=(2, 2), groups=3),
    Conv(9, 20, 64, 64, padding=(2, 2, 2, 2), dilation=(2, 2), groups=2),
    Conv(9, 20, 12, 12, padding=_SAME, dilation=(2, 1), groups=3),
    Conv(9, 20, 24, 24, strides=(3, 3), groups=6),
    Conv(9, 20, 24, 24, kernel=(5, 5), padding=(2, 2, 2, 2), groups=6),
    Conv(9, 20, 24, 24, kernel=(2, 4), padding=(0, 1, 1, 2), groups=3),
    Conv(9, 20, 24, 24, kernel=(1, 3), padding=(0, 1, 0, 1), groups=6),
    Conv(9, 20, 24, 24, kernel=(1, 1), groups=6),
    Conv(9, 20, 24, 24, kernel=(1, 1), strides=(2, 2), groups=3),
    Conv(2, 2, 8, 8, padding=(4, 4, 4, 4), groups=2),
    Conv(1, 1, 64, 64, padding=_SAME, groups=16),
    Conv(7, 7, 96, 96, padding=_SAME, groups=3, n=3),
    Conv(0, 5, 8, 8, padding=_SAME, groups=2),
    Conv(5, 5, 8, 8, padding=_SAME, groups=2, n=0),
    Conv(5, 5, 0, 8, padding=_SAME, groups=2),
    *(Conv(6, 19, 20, 20, padding=_SAME, groups=5, y_gap=3, epilogue=e) for e in EPILOGUES),
    *(Conv(6, 19, 32, 32, padding=_SAME, groups=2, y_gap=3, epilogue=e) for e in EPILOGUES),
)

POOL: tuple[Conv, ...] = (
    _depthwise(13, 12, 16, kernel=(2, 2), strides=(2, 2)),
    _depthwise(13, 12, 100, kernel=(3, 3), strides=(2, 2), padding=_SAME, x_gap=3, y_gap=5),
    _depthwise(13, 12, 21, kernel=(3, 3), padding=_SAME, n=2),
    _depthwise(13, 12, 64, kernel=(3, 2), strides=(1, 3), padding=(0, 1, 2, 0)),
    _depthwise(13, 12, 5, kernel=(3, 3), padding=(2, 2, 2, 2), dilation=(2, 2)),
    _depthwise(3, 3, 7, kernel=(5, 5), padding=(2, 2, 2, 2)),
    _depthwise(7, 7, 70, kernel=(7, 7)),
    # Windows side by side, and maxima of columns' maxima.
    _depthwise(9, 31, 1, kernel=(3, 3), padding=_SAME, n=2),
    _depthwise(9, 31, 3, kernel=(7, 7), padding=(3, 3, 3, 3)),
    _depthwise(9, 31, 40, kernel=(5, 5), padding=(2, 2, 2, 2), strides=(2, 1)),
    _depthwise(6, 20, 33, kernel=(2, 4), padding=(1, 3, 1, 3), dilation=(3, 2), n=2),
    _depthwise(2, 9, 6, kernel=(3, 5), padding=(3, 0, 3, 0)),
    # Few channels: windows of columns' values.
    *(_depthwise(9, 31, c, kernel=(2, 2), strides=(2, 2), n=2) for c in (1, 3)),
    *(_depthwise(9, 31, c, kernel=(3, 3), strides=(2, 2), padding=_SAME) for c in (1, 6)),
    _depthwise(9, 31, 5, kernel=(3, 2), strides=(1, 3), padding=(0, 1, 2, 0), dilation=(2, 3)),
    _depthwise(3, 11, 2, kernel=(5, 4), strides=(2, 2), padding=(4, 4, 4, 4), x_gap=2),
    _depthwise(5, 5, 0, kernel=(2, 2)),
)

#: (outer, reduce, inner) of reductions and softmax.
REDUCE: tuple[tuple[int, int, int], ...] = (
    *((o, r, 1) for o in (3, 35) for r in (1, 2, 5, 15, 16, 17, 31, 63, 64, 65, 127, 257, 999)),
    *((2, 49, i) for i in (2, 3, 15, 16, 17, 63, 64, 65, 130)),
    (2, 5000, 1),
    (1, 5000, 6),
    (0, 4, 4),
    (4, 4, 0),
)

#: (rows, n)
LAYER_NORM: tuple[tuple[int, int], ...] = (
    *((rows, n) for rows in (1, 5) for n in (1, 2, 15, 16, 17, 63, 64, 65, 130, 768)),
    (0, 8),
    (8, 0),
)

#: shape, axes along which a is one value, the same for b.
BINARY: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (), ()),
    ((37,), (), ()),
    ((37,), (), (0,)),
    ((37,), (0,), ()),
    ((37,), (0,), (0,)),
    ((4, 5, 21), (), (0, 1)),
    ((4, 5, 21), (0, 1), ()),
    ((4, 5, 21), (), (2,)),
    ((4, 5, 21), (), (0, 2)),
    ((4, 5, 21), (1,), (0, 2)),
    ((2, 1, 3, 16), (), (3,)),
    ((2, 3, 2, 3, 2, 3, 2, 5), (1, 4), (0, 7)),
    ((3, 0, 4), (), ()),
    ((3, 57, 2), (), (2,)),
    ((3, 57, 2), (2,), (0,)),
    ((5, 2100, 3), (0,), (2,)),
    ((4, 9, 7), (1,), (0, 2)),
    ((3, 130, 9), (), (0, 2)),
    ((2, 300, 16), (2,), (0,)),
    ((70000,), (), ()),
)

#: shape of y; order of x's axes in memory; axes along which x is one value; floats between y's
#: rows.
COPY: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int], ...] = (
    *(((n,), (0,), (), 0) for n in (1, 100, 70000)),
    ((5, 21), (0, 1), (), 0),
    ((5, 21), (0, 1), (), 4),
    ((5, 21), (1, 0), (), 4),
    ((40, 67), (1, 0), (), 0),
    ((3, 70, 90), (2, 1, 0), (), 0),
    # Some blocks, along y and along x, whose ends fill no tile.
    *(((2, *size), (0, 2, 1), (), 0) for size in ((37, 1003), (1003, 37))),
    ((600, 530), (1, 0), (), 3),
    ((2, 3, 20, 22), (0, 2, 3, 1), (), 0),
    ((2, 20, 22, 3), (0, 3, 1, 2), (), 0),
    ((2, 20, 22, 35), (0, 3, 1, 2), (), 5),
    ((2, 12, 10, 64), (0, 2, 1, 3), (), 0),
    *(((9, 70, n), (0, 2, 1), (), n // 5) for n in (2, 3, 4, 5)),
    *(((9, n, 37), (0, 2, 1), (), 3 * (n // 4)) for n in (2, 3, 4)),
    # An image whose pixels come from channels that lie inside: columns are two axes.
    *(((c, 3, n, 11, n), (1, 3, 2, 4, 0), (), 0) for c in (3, 35) for n in (2, 3, 5)),
    ((3, 2, 5, 2), (0, 2, 1, 3), (), 0),
    ((3, 2, 5, 8), (0, 2, 1, 3), (), 2),
    *(((5, 4, 3, n), (2, 0, 1, 3), (), n % 3) for n in (2, 3, 5, 7, 9, 11, 13, 15)),
    ((2500, 2, 3), (1, 0, 2), (), 0),
    ((2, 1100, 7), (1, 0, 2), (), 1),
    ((7, 2, 3, 6), (2, 0, 1, 3), (1,), 2),
    ((4, 5, 6), (2, 0, 1), (1,), 0),
    ((4, 5, 6), (0, 1, 2), (2,), 3),
    ((4, 5, 6), (0, 1, 2), (0, 1, 2), 0),
    ((2, 2, 2, 2, 3, 2, 2, 3), (7, 3, 5, 1, 0, 2, 6, 4), (), 0),
    ((3, 0, 4), (0, 1, 2), (), 0),
    *(((3, 37, n), (0, 1, 2), (2,), 0) for n in (2, 3, 4, 5)),
    *(((70000 // n, n), (0, 1), (1,), 0) for n in (2, 5)),
    # An image with its channels inside is enlarged.
    ((2, 8, 5, 2, 7, 2), (0, 2, 4, 1, 3, 5), (3, 5), 0),
    ((1, 3, 4, 3, 70, 3), (0, 2, 4, 1, 3, 5), (3, 5), 0),
    ((1, 67, 3, 2, 65, 2), (0, 2, 4, 1, 3, 5), (3, 5), 0),
    ((1, 20, 3, 4, 130, 4), (0, 2, 4, 1, 3, 5), (3, 5), 0),
    ((1, 20, 3, 2, 30, 2), (0, 2, 4, 1, 3, 5), (3, 5), 3),
    ((1, 20, 3, 5, 30, 5), (0, 2, 4, 1, 3, 5), (3, 5), 0),
)
