"""Every operator of the tables on NaN, infinities, zeros of both signs, subnormal and huge numbers.

Each case is a small graph with inputs, which `joined_cases.joined` puts into one model.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from tests.conformance.joined_cases import Case

NAN, INF = np.nan, np.inf
X86 = platform.machine() == "x86_64"
#: What flows through functions of one number.
VALUES = np.array(
    [
        *(NAN, INF, -INF, 0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, -1.1754944e-38),
        *(3e38, -3e38, 3.4028235e38, -3.4028235e38, 1e20, -1e20),
        *(88.5, 89.0, -88.5, -103.0, -104.5),  # where exponentials overflow and underflow
        *(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1.0, -1.0, 2.0, -3.0, 6.5, 20.5, -20.5, 8388609.0),
    ],
    np.float32,
)
#: For functions of two numbers, all pairs.
FEW = np.array(
    [NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1.0, -1.0, 2.0, 3.0, -2.0, 0.5, -2.5],
    np.float32,
)


# ------------------------------------------------------------------ the cases


def _tiled(count: int = 75) -> np.ndarray:
    """Each value at least twice: in a full vector, and among what is left over."""
    return np.resize(VALUES, count)


def _case(name: str, *arrays: np.ndarray) -> tuple[Case, list[str]]:
    inputs = {f"{name}_x{i}": array for i, array in enumerate(arrays)}
    return Case(name, inputs), list(inputs)


_UNARY: dict[str, tuple[str, dict[str, float]]] = {
    **{
        kind.lower(): (kind, {})
        for kind in ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Erf", "Sqrt", "Abs", "Neg", "Floor")
    },
    **{
        kind.lower(): (kind, {})
        for kind in ("Ceil", "Round", "Sin", "Cos", "Tan", "Sign", "Reciprocal", "Softplus")
    },
    **{kind.lower(): (kind, {}) for kind in ("Mish", "HardSwish", "Selu", "Gelu")},
    "elu": ("Elu", {"alpha": 1.5}),
    "thresholded_relu": ("ThresholdedRelu", {"alpha": 0.5}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.1}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
}


def _unary() -> Iterator[Case]:
    for name, (kind, attributes) in _UNARY.items():
        case, (x,) = _case(name, _tiled())
        case.op(kind, x, **attributes)
        yield case
    case, (x,) = _case("gelu_tanh", _tiled())
    case.op("Gelu", x, approximate="tanh")
    yield case
    case, (x,) = _case("silu", _tiled())
    case.op("Mul", x, case.op("Sigmoid", x))
    yield case
    for name, bounds in (("clip", (-1, 6)), ("clip_low", (0,)), ("clip_crossed", (2, -2))):
        case, (x,) = _case(name, _tiled())
        case.op("Clip", x, *(np.float32(bound) for bound in bounds))
        if name == "clip_low":
            case.decide("no upper bound is infinity, not the greatest number", _np_relu(_tiled()))
        yield case
    case, (x,) = _case("rsqrt", _tiled())
    case.op("Reciprocal", case.op("Sqrt", x))
    yield case
    case, (x,) = _case("is_nan", _tiled())
    case.op("IsNaN", x)
    yield case


def _np_relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def _binary() -> Iterator[Case]:
    left, right = (side.reshape(-1) for side in np.meshgrid(FEW, FEW))
    for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", *_COMPARISONS):
        case, (a, b) = _case(kind.lower(), left, right)
        case.op(kind, a, b)
        yield case
    for kind in ("Max", "Min"):
        for bound in (0.0, NAN):
            case, (a,) = _case(f"{kind.lower()}_of_{'nan' if bound != bound else 0}", _tiled())
            case.op(kind, a, np.full(1, bound, np.float32))
            yield case
        case, (a, b, c) = _case(f"{kind.lower()}_of_3", left, right, np.resize(FEW[::-1], 256))
        case.op(kind, a, b, c)
        yield case
    for exponent in (2.0, 3.0, 0.5, -1.0, -0.5, 0.0, 1.0):
        case, (a,) = _case(f"pow_{exponent}".replace("-", "m").replace(".", "_"), _tiled())
        case.op("Pow", a, np.float32(exponent))
        yield case
    case, (a, b) = _case("where", left, right)
    case.op("Where", case.op("Less", a, b), a, b)
    case.decide("a zero keeps its sign", np.where(left < right, left, right))
    yield case
    case, (a, b) = _case("add_relu", left, right)
    case.op("Relu", case.op("Add", a, b))
    yield case


def _rows() -> np.ndarray:
    """Rows of 37: each has some special values among ordinary ones, at places of all kinds."""
    few = [(NAN,), (INF,), (-INF,), (NAN, INF), (INF, -INF), (3e38, 3e38), (1e38, -1e38, 1e38)]
    few += [(-3e38,) * 3, (1e-40,), (-0.0, 0.0), (0.0, -0.0), (INF, INF), (100.0,), (), (0.0, INF)]
    rows = np.random.default_rng(0).uniform(-2, 2, (2 * len(few) + 4, 37)).astype(np.float32)
    for i, values in enumerate(few):
        for j, value in enumerate(values):
            rows[2 * i, 3 + 5 * j] = value
            rows[2 * i + 1, 36 - 2 * j] = value
    rows[-1], rows[-2], rows[-3], rows[-4] = -INF, INF, NAN, 3e38
    return rows


_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
_REDUCTIONS += ("ReduceLogSumExp", "ReduceSumSquare", "ReduceL1")


_NAN_WINS = "a NaN wins, wherever it stands"


def _decide_nan_wins(case: Case, kind: str, data: np.ndarray, axis: int) -> None:
    functions = {"ReduceMax": np.max, "ReduceMin": np.min, "ArgMax": np.argmax, "ArgMin": np.argmin}
    if kind in functions:
        case.decide(_NAN_WINS, functions[kind](data, axis=axis))


def _np_sorted(data: np.ndarray, axis: int, kind: str) -> np.ndarray:
    missing = np.isnan(data)
    numbers = np.where(missing, 0, data)
    keys = (numbers, missing) if kind == "least" else (-numbers, ~missing)
    return np.take_along_axis(data, np.lexsort(keys, axis=axis), axis)


def _reductions() -> Iterator[Case]:
    rows = _rows()
    for axis, data, suffix in ((1, rows, "rows"), (0, np.ascontiguousarray(rows.T), "columns")):
        for kind in _REDUCTIONS:
            case, (x,) = _case(f"{kind.lower()}_{suffix}", data)
            case.op(kind, x, np.array([axis]), keepdims=0)
            _decide_nan_wins(case, kind, data, axis)
            yield case
        for kind in ("ArgMax", "ArgMin"):
            case, (x,) = _case(f"{kind.lower()}_{suffix}", data)
            case.op(kind, x, axis=axis, keepdims=0)
            _decide_nan_wins(case, kind, data, axis)
            yield case
        for kind in ("Softmax", "LogSoftmax"):
            case, (x,) = _case(f"{kind.lower()}_{suffix}", data)
            case.op(kind, x, axis=axis)
            yield case
        case, (x,) = _case(f"cumsum_{suffix}", data)
        case.op("CumSum", x, np.array(axis))
        yield case
        for kind in ("greatest", "least"):
            case, (x,) = _case(f"topk_{kind}_{suffix}", data)
            every = np.array([data.shape[axis]])
            case.op("TopK", x, every, axis=axis, largest=int(kind == "greatest"))
            case.nodes[-1].output.append(f"{case.name}_places")
            case.decide("a NaN is above every number", _np_sorted(data, axis, kind))
            yield case
    case, (x,) = _case("layer_norm", rows)
    scale = np.linspace(0.5, 1.5, 37, dtype=np.float32)
    case.op("LayerNormalization", x, scale, scale[::-1].copy())
    case.decide("the sum of a row may overflow in fp32", _np_layer_norm(rows, scale))
    yield case
    case, (x,) = _case("rms_norm", rows)
    mean = case.op("ReduceMean", case.op("Mul", x, x), np.array([1]), keepdims=1)
    root = case.op("Sqrt", case.op("Add", mean, np.float32(1e-5)))
    case.op("Mul", case.op("Div", x, root), scale)
    yield case


def _np_layer_norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        apart = x - x.mean(1, keepdims=True, dtype=np.float32)
        variance = np.square(apart).mean(1, keepdims=True, dtype=np.float32)
        return apart / np.sqrt(variance + np.float32(1e-5)) * scale + scale[::-1]


def _np_max_pool(x: np.ndarray, size: int, stride: int, pad: int) -> np.ndarray:
    least = np.finfo(np.float32).min
    wide = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=least)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), (2, 3))
    return np.maximum(windows[:, :, ::stride, ::stride].max((-2, -1)), least)


def _images() -> np.ndarray:
    """Two images of 19 channels, one special value in each channel's middle or corner."""
    x = np.random.default_rng(1).uniform(-1, 1, (2, 19, 12, 12)).astype(np.float32)
    for channel, value in enumerate(FEW):
        x[0, channel, 5, 6] = value
        x[1, channel, 0, 0] = value
    return x


def _pools() -> Iterator[Case]:
    plain = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    for kind in ("MaxPool", "AveragePool"):
        case, (x,) = _case(f"{kind.lower()}", _images())
        case.op(kind, x, **plain)
        if kind == "MaxPool":
            case.decide(_NAN_WINS, _np_max_pool(_images(), 3, 2, 1))
        yield case
    case, (x,) = _case("averagepool_with_padding", _images())
    case.op("AveragePool", x, count_include_pad=1, **plain)
    yield case
    for kind in ("GlobalAveragePool", "GlobalMaxPool"):
        case, (x,) = _case(kind.lower(), _images())
        case.op(kind, x)
        if kind == "GlobalMaxPool":
            case.decide(_NAN_WINS, _images().max((2, 3), keepdims=True))
        yield case
    # A window of padding alone: dilated taps step over the image's one row.
    case, (x,) = _case("maxpool_of_padding", np.full((1, 19, 1, 1), -2.5, np.float32))
    case.op("MaxPool", x, kernel_shape=[2, 2], pads=[1, 1, 1, 1], dilations=[2, 2])
    yield case
    case, (x,) = _case("maxpool_of_minus_infinity", np.full((1, 19, 4, 4), -INF, np.float32))
    case.op("MaxPool", x, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    least = np.full((1, 19, 5, 5), np.finfo(np.float32).min)
    case.decide("a maximum begins with the lowest number; ONNX Runtime's in some windows", least)
    yield case
    for mode in ("nearest", "linear", "cubic"):
        case, (x,) = _case(f"resize_{mode}", _images())
        case.op(
            "Resize", x, np.array([], np.float32), np.array([1, 1, 2, 1.5], np.float32), mode=mode
        )
        yield case
    for mode in ("constant", "reflect", "edge"):
        case, (x,) = _case(f"pad_{mode}", _images())
        pads = np.array([0, 0, 1, 2, 0, 0, 2, 1])
        case.op("Pad", x, pads, *([np.float32(NAN)] if mode == "constant" else []), mode=mode)
        yield case


def _weights(*shape: int) -> np.ndarray:
    """Ordinary numbers and zeros, which times infinity are NaN."""
    draw = np.random.default_rng(2)
    w = draw.uniform(-0.5, 0.5, shape).astype(np.float32)
    w[draw.uniform(size=shape) < 0.2] = 0
    return w


def _contractions() -> Iterator[Case]:
    rows = np.clip(_rows(), -1e38, 1e38, where=np.isfinite(_rows()), out=_rows())
    bias = np.linspace(-1, 1, 21, dtype=np.float32)
    for suffix, data in (("", rows), ("_one_row", rows[:1]), ("_huge", rows[10:12])):
        case, (x,) = _case(f"matmul{suffix}", data)
        case.op("MatMul", x, _weights(37, 21))
        yield case
    # Products of huge numbers overflow with FMA later than without, and sums of them cancel out.
    rows = np.clip(rows, -3, 3, where=np.isfinite(rows), out=rows.copy())
    case, (a, b) = _case("matmul_of_two", rows, np.ascontiguousarray(rows.T))
    case.op("MatMul", a, b)
    if X86:  # subnormals are 0 in products: infinity times one is NaN
        kept = np.where(np.abs(rows) < np.finfo(np.float32).tiny, 0, rows).astype(np.float64)
        with np.errstate(invalid="ignore"):
            case.expected = (kept @ kept.T).astype(np.float32)
    yield case
    for kind, attributes in (("Relu", {}), ("Sigmoid", {}), ("LeakyRelu", {"alpha": 0.1})):
        case, (x,) = _case(f"gemm_{kind.lower()}", rows)
        case.op(kind, case.op("Gemm", x, _weights(37, 21), bias), **attributes)
        yield case
    case, (x,) = _case("gemm_clip", rows)
    case.op("Clip", case.op("Gemm", x, _weights(37, 21), bias), np.float32(0), np.float32(6))
    yield case
    case, (x, y) = _case("gemm_residual_relu", rows, np.resize(FEW, (len(rows), 21)))
    case.op("Relu", case.op("Add", case.op("Gemm", x, _weights(37, 21), bias), y))
    yield case


def _convolutions() -> Iterator[Case]:
    x = np.random.default_rng(3).uniform(-1, 1, (len(FEW), 8, 9, 9)).astype(np.float32)
    x[np.arange(len(FEW)), 3, 4, 4] = FEW
    same = {"pads": [1, 1, 1, 1]}
    layouts = {
        "conv_1x1": (_weights(21, 8, 1, 1), {}),
        "conv_strided": (_weights(21, 8, 3, 3), {"strides": [2, 2], **same}),
        "conv_depthwise": (_weights(8, 1, 3, 3), {"group": 8, **same}),
        "conv_grouped": (_weights(16, 4, 3, 3), {"group": 2, **same}),
    }
    for name, (weight, attributes) in layouts.items():
        case, (image,) = _case(name, x)
        case.op("Conv", image, weight, **attributes)
        yield case
        case, (image,) = _case(f"{name}_relu6", x)
        case.op("Clip", case.op("Conv", image, weight, **attributes), np.float32(0), np.float32(6))
        yield case
    case, (image,) = _case("conv_transposed", x)
    case.op("ConvTranspose", image, _weights(8, 5, 3, 3), strides=[2, 2])
    yield case
    volumes = np.stack([x, x[::-1]], 2)[:8].copy()
    case, (image,) = _case("conv_3d", volumes)
    case.op("Conv", image, _weights(5, 8, 2, 3, 3))
    yield case


def winograd() -> Case:
    """A 3 x 3 convolution with as many channels as its fast algorithm needs to be worth it."""
    x = np.random.default_rng(4).uniform(-1, 1, (len(FEW), 64, 20, 20)).astype(np.float32)
    x[np.arange(len(FEW)), 3, 9, 9] = FEW
    case, (image,) = _case("conv_3x3", x)
    case.op("Conv", image, _weights(64, 64, 3, 3) / 64, pads=[1, 1, 1, 1])
    return case


def _attention() -> Iterator[Case]:
    draw = np.random.default_rng(5)
    q, k, v = (draw.uniform(-1, 1, (1, 2, 19, 16)).astype(np.float32) for _ in range(3))
    mask = np.zeros((1, 1, 19, 19), np.float32)
    mask[0, 0, 1, 1:], mask[0, 0, 2], mask[0, 0, 4, 5] = -INF, -INF, INF
    mask[0, 0, 6], mask[0, 0, 7, 3] = -3.4028235e38, NAN
    special = q.copy()
    special[0, 0, 3, 3], special[0, 1, 8, 2], special[0, 1, 9, 2] = NAN, INF, 3e38
    for name, first, values in (("mask", q, v), ("queries", special, v), ("values", q, special)):
        case, (a, b, c) = _case(f"attention_{name}", first, k, values)
        scores = case.op("MatMul", a, case.op("Transpose", b, perm=[0, 1, 3, 2]))
        scores = case.op("Mul", scores, np.float32(0.25))
        if name == "mask":
            scores = case.op("Add", scores, mask)
        case.op("MatMul", case.op("Softmax", scores, axis=3), c)
        yield case


def attention_of_huge_values() -> Case:
    """Sums of values overflow that are averages in the end."""
    draw = np.random.default_rng(6)
    q, k = (draw.uniform(-1, 1, (1, 2, 19, 16)).astype(np.float32) for _ in range(2))
    v = np.full((1, 2, 19, 16), 1e38, np.float32)
    case, (a, b, c) = _case("attention_of_huge_values", q, k, v)
    scores = case.op("MatMul", a, case.op("Transpose", b, perm=[0, 1, 3, 2]))
    case.op("MatMul", case.op("Softmax", scores, axis=3), c)
    return case


def _others() -> Iterator[Case]:
    finite = [0.0, -0.0, 1e-40, 0.5, 1.5, -0.5, -1.5, 2.75, 2147483520.0, -2147483648.0, 16777217.0]
    inside = np.resize(np.array(finite, np.float32), 40)
    beyond = np.resize(np.array([NAN, INF, -INF, 2147483648.0, 1e10, -9e18], np.float32), 40)
    for name, data in (("inside", inside), ("beyond", beyond)):
        for kind in ("INT32", "INT64", "BOOL"):
            case, (x,) = _case(f"cast_{name}_{kind.lower()}", data)
            case.op("Cast", x, to=getattr(TensorProto, kind))
            if name == "beyond" and kind != "BOOL":
                case.decide("what is not finite is 0, the rest wraps around", _np_cast(data, kind))
            yield case
    large = np.array([2**53 + 1, -(2**62), 2**31, -1, 0, 2**63 - 1, 16777217], np.int64)
    for kind in ("FLOAT", "INT32", "BOOL"):
        case, (x,) = _case(f"cast_int64_{kind.lower()}", np.resize(large, 40))
        case.op("Cast", x, to=getattr(TensorProto, kind))
        yield case
    case, (x,) = _case("gather", _rows())
    case.op("Gather", x, np.array([3, -1, 0, -4]), axis=0)
    yield case
    case, (x,) = _case("transpose", _rows())
    case.op("Transpose", x, perm=[1, 0])
    yield case
    for kind in ("Add", "Sub", "Mul", "Max", "Min"):
        ends = np.array([2**31 - 1, -(2**31), 0, -1, 1, 7], np.int32)
        left, right = (side.reshape(-1) for side in np.meshgrid(ends, ends))
        case, (a, b) = _case(f"int32_{kind.lower()}", left, right)
        case.op(kind, a, b)
        yield case


def _np_cast(data: np.ndarray, kind: str) -> np.ndarray:
    finite = np.where(np.isfinite(data), data, 0).astype(np.int64)
    return finite.astype(np.int32) if kind == "INT32" else finite


def cases() -> list[Case]:
    """All of them but ``winograd``."""
    groups = (_unary, _binary, _reductions, _pools, _contractions, _convolutions, _attention)
    return [case for group in (*groups, _others) for case in group()]
