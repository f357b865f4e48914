"""unary, binary and copy against numpy."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from tests.kernels import cases, reference
from tests.kernels.every import every
from tests.kernels.guard import SENTINEL, Rows, assert_close, at_page_end

#: Error limits of a function over its whole range: ULPs of the result, plus an absolute part for
#: those whose formula cancels (their result may be far smaller than its terms).
LIMITS: dict[str, tuple[float, float]] = {
    "sigmoid": (4, 1.2e-38),
    "silu": (5, 1.1e-36),
    "hard_sigmoid": (1, 6e-8),
    "hard_swish": (2, 2e-7),
    "gelu": (4, 8e-7),
    "gelu_tanh": (4, 8e-7),
    "tanh": (6, 0),
    "exp": (2, 0),
    "log": (2, 0),
    "erf": (6, 0),
    "rsqrt": (2, 0),
    "leaky_relu": (1, 0),
    "elu": (3, 0),
    "selu": (4, 0),
    "mish": (6, 1.1e-36),
    "softplus": (5, 0),
    "sin": (2, 0),
    "cos": (2, 0),
    "tan": (4, 0),
    "atan": (2, 0),
    "asin": (2, 0),
    "acos": (2, 0),
    "asinh": (2, 0),
    "acosh": (2, 0),
    "atanh": (2, 0),
    "expm1": (2, 0),
    "log1p": (2, 0),
}
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        3e38,
        -3e38,
        1e-38,
        -1e-38,
        1e-45,
        88.8,
        -88.8,
        -104,
        1,
        -1,
    ],
    np.float32,
)


def _samples(kind: str) -> np.ndarray:
    """Dense where the function bends, then every magnitude of fp32, then special values."""
    rng = np.random.default_rng(4)
    near = np.linspace(-12, 12, 20011, dtype=np.float32)
    magnitudes = np.exp2(rng.uniform(-149, 127.9, 20000)).astype(np.float32)
    signs = rng.choice(np.array([-1, 1], np.float32), magnitudes.size)
    wide = np.linspace(-110, 95, 20011, dtype=np.float32)
    return np.concatenate([near, wide, magnitudes * signs, SPECIAL])


def _ulp(want: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(want), np.abs(want), 0)
        return np.spacing(np.minimum(finite, np.finfo(np.float32).max).astype(np.float32))


@every("case", cases.ACTIVATIONS, ids=lambda a: f"{a[0]}_{a[1]}_{a[2]}")
def test_unary(lib: ctypes.CDLL, case: cases.Act) -> None:
    x = at_page_end(_samples(case[0]))
    y = Rows(1, x.size)
    f = abi.activation(*case)
    assert lib.ext_unary(f, x.size, x.ctypes.data, y.pointer) == 0
    want = reference.activate(case[0], x, *case[1:])
    with np.errstate(over="ignore"):
        want = np.where(np.abs(want) > 3.4028235e38, want.astype(np.float32), want)
    ulps, absolute = LIMITS.get(case[0], (0.5001, 0))
    # Below the smallest normal number an error of one subnormal step is fine.
    assert_close(y.view[0], want, ulps * _ulp(want).astype(np.float64) + absolute + 3e-45)
    y.check_gaps()
    assert lib.ext_unary(f, x.size, x.ctypes.data, x.ctypes.data) == 0
    np.testing.assert_array_equal(x, y.view[0])


def _run_unary(lib: ctypes.CDLL, kind: str, x: np.ndarray) -> np.ndarray:
    x = at_page_end(x)
    y = Rows(1, x.size)
    assert lib.ext_unary(abi.activation(kind), x.size, x.ctypes.data, y.pointer) == 0
    y.check_gaps()
    return y.view[0]


def _check_unary(lib: ctypes.CDLL, kind: str, x: np.ndarray) -> None:
    want = reference.activate(kind, x)
    limit = LIMITS[kind][0] * _ulp(want).astype(np.float64)
    assert_close(_run_unary(lib, kind, x), want, limit + 3e-45)


def _signs(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([sizes, -sizes]).astype(np.float32)


@every("kind", ["sin", "cos", "tan"])
def test_angles_near_quarter_turns(lib: ctypes.CDLL, kind: str) -> None:
    """Relative errors are hardest to bound there; among others the 4000 floats nearest to one."""
    exact = np.arange(1, 333_773) * (np.pi / 2)
    nearest = exact.astype(np.float32)
    hardest = nearest[np.argsort(np.abs(nearest - exact))[:4000]]
    chosen = np.concatenate([nearest[:4000], hardest])
    bits = chosen.view(np.int32) + np.arange(-2, 3, dtype=np.int32)[:, None]
    _check_unary(lib, kind, _signs(bits.view(np.float32).ravel()))


@every("kind", ["sin", "cos", "tan"])
def test_angles_of_every_size(lib: ctypes.CDLL, kind: str) -> None:
    """On both sides of 2^19, where another way is taken, and for angles of both in one vector."""
    rng = np.random.default_rng(9)
    border = np.float32(1 << 19).view(np.int32) + np.arange(-40, 41, dtype=np.int32)
    near, far = rng.uniform(0, 1 << 19, 20000), rng.uniform(1 << 19, 1e7, 20000)
    _check_unary(lib, kind, _signs(np.concatenate([near, border.view(np.float32), far])))
    one_far = near[:1000].astype(np.float32)
    one_far[3::37] = far[: one_far[3::37].size]
    one_far[40:43] = [3e38, np.inf, np.nan]
    _check_unary(lib, kind, one_far)
    # What is far among the neighbours leaves the others as they are.
    alone, among = _run_unary(lib, kind, near[:1000]), _run_unary(lib, kind, one_far)
    same = one_far == near[:1000].astype(np.float32)
    np.testing.assert_array_equal(alone[same], among[same])


@every("kind", ["atan", "asin", "acos"])
def test_inverses_near_their_bounds(lib: ctypes.CDLL, kind: str) -> None:
    """Around 1/2 and 1 the formula changes, or the function ends."""
    bits = np.float32([[0.5], [1.0]]).view(np.int32) + np.arange(-500, 501, dtype=np.int32)
    sizes = np.concatenate([bits.view(np.float32).ravel(), np.linspace(0, 1, 20011)])
    _check_unary(lib, kind, _signs(sizes.astype(np.float32)))


@every("kind", ["asinh", "acosh", "atanh", "expm1", "log1p"])
def test_digits_of_small_numbers(lib: ctypes.CDLL, kind: str) -> None:
    """Where 1 + x rounds, and below; acosh and log1p have their zero and their bound near by."""
    small = np.exp2(np.random.default_rng(3).uniform(-140, 1, 8000))
    x = _signs(small) + np.float32(kind == "acosh")
    _check_unary(lib, kind, np.concatenate([x, _signs(1 - small), _signs(20 + small)]).astype("f"))


def test_bounds_of_inverse_functions(lib: ctypes.CDLL) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([-inf, -2, -1, -0.0, 0.0, 1, 1e30, inf, nan] * 3, np.float32)
    want = {
        "log1p": [nan, nan, -inf, -0.0, 0.0, np.log(2), np.log(1e30), inf, nan],
        "expm1": [-1, np.expm1(-2), np.expm1(-1), -0.0, 0.0, np.expm1(1), inf, inf, nan],
        "atanh": [nan, nan, -inf, -0.0, 0.0, inf, nan, nan, nan],
        "trunc": [-inf, -2, -1, -0.0, 0.0, 1, 1e30, inf, nan],
    }
    for kind, values in want.items():
        found, expected = _run_unary(lib, kind, x), np.array(values * 3, np.float32)
        np.testing.assert_allclose(found, expected, rtol=2.4e-7, err_msg=kind)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def test_exact_angles(lib: ctypes.CDLL) -> None:
    """Zeros keep their sign, cos(0) is 1, and infinite angles have no sine."""
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, np.inf, -np.inf, np.nan] * 5, np.float32)
    quarter = np.float32(np.pi / 2)
    nothing = [np.nan] * 3
    want = {
        **{kind: [*x[:5], *nothing] for kind in ("sin", "tan", "asin")},
        "cos": [1.0] * 5 + nothing,
        "atan": [*x[:5], quarter, -quarter, np.nan],
        "acos": [quarter] * 5 + nothing,
    }
    for kind, values in want.items():
        found, expected = _run_unary(lib, kind, x), np.array(values * 5, np.float32)
        np.testing.assert_array_equal(found, expected, err_msg=kind)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


@every("n", [0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33])
def test_unary_lengths(lib: ctypes.CDLL, n: int) -> None:
    x = at_page_end(np.linspace(-2, 2, n))
    y = Rows(1, n)
    assert lib.ext_unary(abi.activation("sigmoid"), n, x.ctypes.data, y.pointer) == 0
    assert_close(y.view[0], reference.activate("sigmoid", x), 2e-7)
    y.check_gaps()


def _broadcast(
    rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...]
) -> np.ndarray:
    own = [1 if d in axes else size for d, size in enumerate(shape)]
    return np.broadcast_to(at_page_end(rng.uniform(0.5, 2, own)), shape)


def _element_strides(array: np.ndarray) -> list[int]:
    return [stride // 4 for stride in array.strides]


_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
    "mod": np.fmod,
}


def _run_binary(
    lib: ctypes.CDLL, kind: str, after: cases.Act, a: np.ndarray, b: np.ndarray, y: int
) -> None:
    p = abi.BinaryParams(abi.BINARY_KIND.index(kind), abi.activation(*after), a.ndim)
    p.shape[: a.ndim] = a.shape
    p.a_strides[: a.ndim] = _element_strides(a)
    p.b_strides[: a.ndim] = _element_strides(b)
    assert lib.ext_binary(p, a.ctypes.data, b.ctypes.data, y) == 0


@every("kind", _BINARY)
@every("case", cases.BINARY, ids=str)
def test_binary(
    lib: ctypes.CDLL, kind: str, case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
) -> None:
    shape, a_axes, b_axes = case
    rng = np.random.default_rng(5)
    a, b = _broadcast(rng, shape, a_axes), _broadcast(rng, shape, b_axes)
    y = Rows(1, a.size)
    for after in (cases.NONE, ("tanh", 0.0, 0.0)):
        _run_binary(lib, kind, after, a, b, y.pointer)
        want = _BINARY[kind](a.astype(np.float64), b.astype(np.float64))
        want = reference.activate(after[0], want)
        assert_close(y.view[0].reshape(shape), want, 4e-7 * np.abs(want))
        y.check_gaps()


@every("case", cases.BINARY, ids=str)
def test_multiply_add(
    lib: ctypes.CDLL, case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
) -> None:
    shape, *axes = case
    rng = np.random.default_rng(15)
    one, other = axes
    for chosen in ((one, other, ()), ((), one, other), (other, (), one), (one, other, one)):
        operands = [_broadcast(rng, shape, own) for own in chosen]
        sums = operands[0] * operands[1] + operands[2]  # rounded twice
        y = Rows(1, sums.size)
        for after in (cases.NONE, ("tanh", 0.0, 0.0)):
            _run_multiply_add(lib, after, operands, y.pointer)
            want = reference.activate(after[0], sums.astype(np.float64))
            limit = 0 if after == cases.NONE else 4e-7
            assert_close(y.view[0].reshape(shape), want, limit * np.abs(want))
            y.check_gaps()


def test_a_product_beyond_the_greatest_float_is_infinite(lib: ctypes.CDLL) -> None:
    operands = [np.array(v, np.float32) for v in ([3e38, 2, np.nan], [2, -3, 0], [-3e38, 7, 1])]
    y = np.empty(3, np.float32)
    _run_multiply_add(lib, cases.NONE, operands, y.ctypes.data)
    np.testing.assert_array_equal(y, np.array([np.inf, 1, np.nan], np.float32))


def _run_multiply_add(
    lib: ctypes.CDLL, after: cases.Act, operands: list[np.ndarray], y: int
) -> None:
    shape = operands[0].shape
    p = abi.MultiplyAddParams(abi.activation(*after), len(shape))
    p.shape[: len(shape)] = shape
    for name, operand in zip("abc", operands, strict=True):
        getattr(p, f"{name}_strides")[: len(shape)] = _element_strides(operand)
    assert lib.ext_multiply_add(p, *[operand.ctypes.data for operand in operands], y) == 0


@every("dtype", [np.int32, np.int64, np.int8, np.uint8])
def test_quotients_of_integers_are_cut_off(lib: ctypes.CDLL, dtype: type) -> None:
    """Of 0 they are 0; the lowest number by -1 is itself."""
    info = np.iinfo(dtype)
    own = [info.min, info.min + 1, info.max, 0, 1, 2, 7, 100, *((-1, -7) if info.min else ())]
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(*[np.array(own, dtype)] * 2))
    p = abi.BinaryParams(abi.BINARY_KIND.index("div"), abi.activation(*cases.NONE), 1)
    p.dtype = abi.DTYPE.index(np.dtype(dtype).name)
    p.shape[0], p.a_strides[0], p.b_strides[0] = a.size, 1, 1
    y = np.full_like(a, 77)
    assert lib.ext_binary(p, a.ctypes.data, b.ctypes.data, y.ctypes.data) == 0
    signs = np.sign(a.astype(object)) * np.sign(b.astype(object))
    exact = abs(a.astype(object)) // np.maximum(abs(b.astype(object)), 1) * signs
    wrapped = [(int(quotient) - info.min) % 2**info.bits + info.min for quotient in exact]
    np.testing.assert_array_equal(y, np.array(wrapped, dtype))


def test_binary_strided_and_in_place(lib: ctypes.CDLL) -> None:
    rng = np.random.default_rng(6)
    a = rng.uniform(-1, 1, (5, 6)).astype(np.float32)
    b = rng.uniform(-1, 1, (6, 5)).astype(np.float32).T
    want = a - b
    _run_binary(lib, "sub", cases.NONE, a, b, a.ctypes.data)
    np.testing.assert_array_equal(a, want)


@every("kind", ["max", "min"])
def test_binary_extremes_keep_nan(lib: ctypes.CDLL, kind: str) -> None:
    values = np.array([0, 1, np.nan, np.inf, -np.inf], np.float32)
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    y = np.empty_like(a)
    _run_binary(lib, kind, cases.NONE, a, b, y.ctypes.data)
    np.testing.assert_array_equal(y, _BINARY[kind](a, b))


@every("rare", [False, True])
def test_remainders_are_exact(lib: ctypes.CDLL, rare: bool) -> None:
    """Of quotients up to 2^28, and of all others; they have the sign of what is divided."""
    draw = np.random.default_rng(8)
    b = (draw.uniform(0.5, 2, 500) * 2.0 ** draw.integers(-20, 20, 500)).astype(np.float32)
    a = (b * draw.uniform(-(2.0**27), 2.0**27, 500)).astype(np.float32)
    near = np.arange(100) * b[:100]  # whole quotients, and the numbers beside them
    a[:300] = *near, *np.nextafter(near, np.inf), *np.nextafter(near, -np.inf)
    b[:300] = np.tile(b[:100], 3)
    if rare:
        odd = np.array([0, -0.0, 1e-45, 1, -3, 1e-30, 3e38, np.inf, -np.inf, np.nan], np.float32)
        a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(odd, odd))
    y = np.empty_like(a)
    _run_binary(lib, "mod", cases.NONE, a, b, y.ctypes.data)
    with np.errstate(all="ignore"):
        want = np.fmod(a, b)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(want[y == 0]))


@every("channels", [1, 2, 3, 5, 16])
def test_short_rows_share_an_operand(lib: ctypes.CDLL, channels: int) -> None:
    """As the means of an image's colours, channels last; more of them than a chunk holds."""
    a = at_page_end(np.random.default_rng(9).uniform(-1, 1, (3001, channels)))
    own = at_page_end(np.arange(1, channels + 1))
    b, y = np.broadcast_to(own, a.shape), Rows(1, a.size)
    for first, second in ((a, b), (b, a)):
        _run_binary(lib, "sub", cases.NONE, first, second, y.pointer)
        np.testing.assert_array_equal(y.view[0].reshape(a.shape), first - second)
    y.check_gaps()


def test_prelu_takes_the_slope_below_zero_only(lib: ctypes.CDLL) -> None:
    a = np.array([-2, -0.0, 0, 3, np.nan, -np.inf, np.inf] * 5, np.float32)
    b = np.full_like(a, 0.25)
    y = np.empty_like(a)
    _run_binary(lib, "prelu", cases.NONE, a, b, y.ctypes.data)
    np.testing.assert_array_equal(y, np.where(a < 0, a * b, a))


@every("exponent", [2, 3, -1, 0.5, 0, -2.5])
def test_powers_of_one_exponent(lib: ctypes.CDLL, exponent: float) -> None:
    a = at_page_end([*np.linspace(-3, 3, 37), 0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 3e38])
    b = np.broadcast_to(np.float32(exponent), a.shape)
    y = Rows(1, a.size)
    _run_binary(lib, "pow", cases.NONE, a, b, y.pointer)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b).astype(np.float32)
    assert_close(y.view[0], want, 3e-7 * np.nan_to_num(np.abs(want), posinf=0) + 3e-45)
    y.check_gaps()


@every("case", cases.COPY, ids=str)
@every("dtype", [np.uint8, np.uint16, np.int64])
def test_copy_of_other_sizes(
    lib: ctypes.CDLL,
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int],
    dtype: type,
) -> None:
    shape, order, broadcast, _ = case
    own = [1 if d in broadcast else size for d, size in enumerate(shape)]
    most = min(np.iinfo(dtype).max, 1 << 60)
    values = np.random.default_rng(7).integers(0, most, [own[d] for d in order])
    x = np.broadcast_to(at_page_end(values, dtype).transpose(np.argsort(order)), shape)
    y = at_page_end(np.zeros(shape), dtype)
    p = abi.CopyParams(len(shape), element_size=y.itemsize)
    p.shape[: x.ndim] = shape
    p.x_strides[: x.ndim] = [stride // y.itemsize for stride in x.strides]
    p.y_strides[: x.ndim] = [stride // y.itemsize for stride in y.strides]
    assert lib.ext_copy(p, x.ctypes.data, y.ctypes.data) == 0
    np.testing.assert_array_equal(y, x)


@every("case", cases.COPY, ids=str)
def test_copy(
    lib: ctypes.CDLL,
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int],
) -> None:
    shape, order, broadcast, gap = case
    rng = np.random.default_rng(7)
    own = [1 if d in broadcast else size for d, size in enumerate(shape)]
    memory = at_page_end(rng.standard_normal([own[d] for d in order]))
    x = np.broadcast_to(memory.transpose(np.argsort(order)), shape)
    rows = Rows(int(np.prod(shape[:-1], dtype=int)), shape[-1], shape[-1] + gap)
    p = abi.CopyParams(len(shape))
    p.shape[: x.ndim] = shape
    p.x_strides[: x.ndim] = _element_strides(x)
    step = 1
    for d in reversed(range(x.ndim)):
        p.y_strides[d] = step
        step = rows.stride if d == x.ndim - 1 else step * shape[d]
    assert lib.ext_copy(p, x.ctypes.data, rows.pointer) == 0
    np.testing.assert_array_equal(rows.view.reshape(shape), x)
    rows.check_gaps()


def test_copy_into_a_column_slice_of_a_transposed_output(lib: ctypes.CDLL) -> None:
    x = np.arange(35 * 20, dtype=np.float32).reshape(35, 20)
    y = np.full((20, 50), SENTINEL)
    p = abi.CopyParams(2)
    p.shape[:2], p.x_strides[:2], p.y_strides[:2] = (35, 20), (20, 1), (1, 50)
    assert lib.ext_copy(p, x.ctypes.data, y[:, 7:].ctypes.data) == 0
    np.testing.assert_array_equal(y[:, 7:42], x.T)
    assert (np.delete(y, np.s_[7:42], axis=1) == SENTINEL).all()


@every("ndim", [0, 9])
def test_rank_out_of_range_is_refused(lib: ctypes.CDLL, ndim: int) -> None:
    x = np.zeros(1, np.float32)
    assert lib.ext_copy(abi.CopyParams(ndim), x.ctypes.data, x.ctypes.data) == 2
    p = abi.BinaryParams(ndim=ndim)
    assert lib.ext_binary(p, x.ctypes.data, x.ctypes.data, x.ctypes.data) == 2
    p = abi.MultiplyAddParams(ndim=ndim)
    assert lib.ext_multiply_add(p, *[x.ctypes.data] * 4) == 2
