"""Steps element by element: activations, arithmetic, comparisons, casts, and the idioms of them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import FLOATS, INTEGERS, Draft
from tests.fuzz.steps import partner, require, source, step

RANKS = range(7)
NUMBERS = ("float32", "float32", "int64", "int32", "float64", "float16")

UNARY = {
    "Relu": 7, "Sigmoid": 7, "Tanh": 7, "Abs": 7, "Neg": 7, "Exp": 7, "Erf": 9, "Softplus": 7,
    "Identity": 7, "Softsign": 7, "HardSwish": 14, "Mish": 18, "Sin": 7, "Cos": 7, "Tan": 7,
    "Sinh": 9, "Cosh": 9, "Asinh": 9, "Atan": 7, "Floor": 7, "Ceil": 7, "Round": 11, "Sign": 9,
    "Selu": 7, "Elu": 7, "HardSigmoid": 7, "LeakyRelu": 7, "ThresholdedRelu": 10, "Reciprocal": 7,
    "Sqrt": 7, "Log": 7, "Acosh": 9, "Atanh": 9, "Acos": 7, "Asin": 7, "Shrink": 9, "Gelu": 20,
    "Celu": 12,
}  # fmt: skip
#: Defined for a part of the numbers; what they read is brought there.
POSITIVE = ("Sqrt", "Log", "Reciprocal")
BELOW_ONE = ("Atanh", "Acos", "Asin")
PARAMETERS = {
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Shrink": ("lambd", "bias"),
}


@step(5)
def unary(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float64", "float16"), RANKS)
    return activation(draft, x, str(draft.pick([k for k, v in UNARY.items() if v <= draft.opset])))


def activation(draft: Draft, x: str, kind: str) -> str:
    """An operator of ``UNARY``, with parameters now and then."""
    attributes: dict[str, object] = {}
    if kind in PARAMETERS and draft.chance(0.6):
        attributes = {name: float(draft.rng.uniform(0.05, 1.5)) for name in PARAMETERS[kind]}
    if kind == "Gelu" and draft.chance(0.5):
        attributes["approximate"] = "tanh"
    if kind in POSITIVE and not draft.special:
        one = draft.constant(np.asarray(0.25, draft.dtype(x)))
        x = draft.op("Add", [draft.op("Abs", [x]), one])
    if kind == "Acosh" and not draft.special:
        one = draft.constant(np.asarray(1, draft.dtype(x)))
        x = draft.op("Add", [draft.op("Abs", [x]), one])
    if kind in BELOW_ONE and not draft.special:
        x = draft.op(
            "Mul", [draft.op("Tanh", [x]), draft.constant(np.asarray(0.9, draft.dtype(x)))]
        )
    return draft.op(kind, [x], **attributes)


@step(5)
def binary(draft: Draft, x: str) -> str:
    x = source(draft, x, NUMBERS, RANKS)
    kind = str(draft.pick(("Add", "Sub", "Mul", "Div", "Add", "Mul")))
    other = partner(draft, x)
    if kind == "Div":
        other = _no_zero(draft, other)
    pair = [x, other] if kind == "Div" or draft.chance(0.6) else [other, x]
    return draft.op(kind, pair)


def _no_zero(draft: Draft, x: str) -> str:
    if draft.special and draft.dtype(x) in FLOATS:
        return x
    one = draft.constant(np.asarray(1, draft.dtype(x)))
    return draft.op("Add", [draft.op("Abs", [x]), one])


@step(2)
def several(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float64", "int32", "int64"), RANKS)
    kind = str(draft.pick(("Sum", "Mean", "Max", "Min", "Max", "Min")))
    return draft.op(kind, [x, *(partner(draft, x) for _ in range(draft.between(0, 3)))])


@step(1.5)
def power(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float32", "int32", "int64"), RANKS)
    if draft.dtype(x) not in FLOATS:
        dtype = draft.pick((draft.dtype(x), "float32", "int64", "int32"))
        return draft.op("Pow", [x, draft.constant(np.asarray(draft.between(0, 3), dtype))])
    if draft.chance(0.7):
        exponent = draft.pick((2.0, 3.0, 2.0, 0.5, -1.0, 0.0, 1.0, -2.0, 1.5))
        if exponent not in (2.0, 3.0, 0.0, 1.0):
            x = _no_zero(draft, x)
        dtype = (
            draft.pick(("float32", "float32", "int64", "int32")) if draft.opset >= 12 else "float32"
        )
        if exponent == int(exponent) or dtype == "float32":
            return draft.op("Pow", [x, draft.constant(np.asarray(exponent, dtype))])
    return draft.op("Pow", [_no_zero(draft, x), partner(draft, x)])


@step(1)
def modulo(draft: Draft, x: str) -> str:
    require(draft.opset >= 10, "Mod is of opset 10")
    x = source(draft, x, ("int64", "int32", "float32", "uint8", "int8"), RANKS)
    fmod = 1 if draft.dtype(x) in FLOATS or draft.chance(0.4) else None
    other = partner(draft, x)
    if draft.dtype(x) in FLOATS or draft.chance(0.5):
        other = _no_zero(draft, other)
    else:  # divisors of both signs
        shape = draft.shape(other)
        values = draft.rng.choice([-3, -2, 2, 5] if draft.dtype(x)[0] == "i" else [2, 5], shape)
        require(draft.is_fixed(other), "a constant has one shape")
        other = draft.constant(np.asarray(values, draft.dtype(x)), fixed=False)
    return draft.op("Mod", [x, other], fmod=fmod)


@step(2)
def integers(draft: Draft, x: str) -> str:
    x = source(draft, x, ("int64", "int32", "int64", "int32", "int8", "uint8"), RANKS)
    dtype = draft.dtype(x)
    kinds = ["Abs", "Neg", "Sign", "Relu", "Clip", "Div", "Sub", "Max"]
    if draft.opset >= 18:
        kinds += ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"]
    if draft.opset >= 11 and dtype[0] == "u":
        kinds += ["BitShift"] * 3
    kind = str(draft.pick(kinds))
    if kind in ("Abs", "Neg", "Sign", "Relu", "BitwiseNot"):
        return draft.op(kind, [x])
    if kind == "Clip":
        require(draft.opset >= 12, "Clip of integers is of opset 12")
        bounds = [draft.constant(np.asarray(b, dtype)) for b in (1, 3)]
        return draft.op("Clip", [x, *draft.pick((bounds, bounds[:1], ["", bounds[1]]))])
    if kind == "BitShift":
        amount = draft.constant(draft.rng.integers(0, 7, ()).astype(dtype))
        return draft.op(kind, [x, amount], direction=draft.pick(("LEFT", "RIGHT")))
    other = partner(draft, x)
    return draft.op(kind, [x, _no_zero(draft, other) if kind == "Div" else other])


@step(2)
def clip(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32", "float32", "float64"), RANKS)
    low, high = sorted(float(v) for v in draft.rng.uniform(-1, 1, 2))
    if draft.opset < 11:
        return draft.op("Clip", [x], **draft.pick(({"min": low, "max": high}, {"max": high}, {})))
    bounds = [draft.constant(np.asarray(b, draft.dtype(x)), fixed=False) for b in (low, high)]
    return draft.op("Clip", [x, *draft.pick((bounds, bounds, bounds[:1], ["", bounds[1]], []))])


@step(2)
def cast(draft: Draft, x: str) -> str:
    if draft.dtype(x) in FLOATS and draft.chance(0.3):
        scale = draft.constant(np.asarray(draft.pick((3, 10, 40)), draft.dtype(x)))
        x = draft.op("Mul", [x, scale])
    targets = [*FLOATS, *INTEGERS, "bool", "float32", "float32", "int64", "int32"]
    to = str(draft.pick(targets))
    if to.startswith("u") and draft.dtype(x) not in (*INTEGERS, "bool"):
        x = draft.op("Abs", [x])  # a negative number has no defined result
    kind = np.dtype(to)
    code = _code(kind)
    if draft.opset >= 15 and draft.chance(0.2):
        return draft.op("CastLike", [x, draft.constant(np.zeros(1, kind))])
    return draft.op("Cast", [x], to=code)


def _code(dtype: np.dtype) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(dtype)


@step(3)
def comparison(draft: Draft, x: str) -> str:
    x = source(draft, x, NUMBERS, RANKS)
    kinds = ["Less", "Greater", "Equal"]
    if draft.opset >= 12:
        kinds += ["LessOrEqual", "GreaterOrEqual"]
    y = draft.op(str(draft.pick(kinds)), [x, partner(draft, x)])
    for _ in range(draft.between(0, 2)):
        if draft.chance(0.3):
            y = draft.op("Not", [y])
        else:
            y = draft.op(str(draft.pick(("And", "Or", "Xor"))), [y, partner(draft, y)])
    return y


@step(3)
def where(draft: Draft, x: str) -> str:
    require(draft.opset >= 9, "Where is of opset 9")
    x = source(draft, x, ("float32", "float32", "int64", "int32", "bool"), RANKS)
    flags = [n for n in draft.candidates(("bool",)) if draft.shape(n) == draft.shape(x)]
    if flags and draft.chance(0.8):
        flag = draft.pick(flags)
    else:
        base = x if draft.dtype(x) != "bool" else draft.op("Cast", [x], to=1)
        flag = draft.op("Greater", [base, partner(draft, base)])
    other = partner(draft, x)
    if draft.dtype(x) == "float32" and draft.chance(0.2):
        other = draft.constant(np.float32(draft.pick((0.0, -1.0, -100.0))))
    return draft.op("Where", [flag, *((x, other) if draft.chance(0.5) else (other, x))])


@step(1)
def prelu(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), range(1, 6))
    shape = draft.shape(x)
    slope = draft.pick(([1], [1] * len(shape), [1, *shape[1:2], *[1] * max(0, len(shape) - 2)]))
    if len(shape) > 1 and draft.chance(0.5):
        slope = [shape[1], *[1] * (len(shape) - 2)]
    return draft.op("PRelu", [x, draft.weight(slope)])


@step(0.7)
def predicates(draft: Draft, x: str) -> str:
    x = source(draft, x, ("float32",), RANKS)
    if draft.chance(0.5):
        require(draft.opset >= 9, "IsNaN is of opset 9")
        return draft.op("IsNaN", [x])
    require(draft.opset >= 10, "IsInf is of opset 10")
    one_side = {draft.pick(("detect_negative", "detect_positive")): 0} if draft.chance(0.5) else {}
    return draft.op("IsInf", [x], **one_side)


@step(3)
def idiom(draft: Draft, x: str) -> str:
    """Activations as exporters write them out: SiLU, GELU, HardSwish, ReLU6, Mish."""
    x = source(draft, x, ("float32",), RANKS)
    constant = lambda value: draft.constant(np.float32(value))  # noqa: E731
    kind = draft.pick(("silu", "gelu", "tanh_gelu", "hard_swish", "relu6", "mish"))
    if kind == "silu":
        return draft.op("Mul", [x, draft.op("Sigmoid", [x])])
    if kind == "gelu":
        require(draft.opset >= 9, "Erf is of opset 9")
        inner = draft.op("Erf", [draft.op("Div", [x, constant(2**0.5)])])
        product = draft.op("Mul", [x, draft.op("Add", [inner, constant(1)])])
        return draft.op("Mul", [product, constant(0.5)])
    if kind == "tanh_gelu":
        cube = draft.op("Mul", [draft.op("Pow", [x, constant(3)]), constant(0.044715)])
        inner = draft.op("Mul", [draft.op("Add", [x, cube]), constant(0.7978846)])
        outer = draft.op("Add", [draft.op("Tanh", [inner]), constant(1)])
        return draft.op("Mul", [draft.op("Mul", [x, constant(0.5)]), outer])
    if kind == "mish":
        return draft.op("Mul", [x, draft.op("Tanh", [draft.op("Softplus", [x])])])
    if draft.opset < 11:
        clipped = draft.op("Clip", [draft.op("Add", [x, constant(3)])], min=0.0, max=6.0)
    else:
        bounds = [constant(0), constant(6)]
        clipped = draft.op("Clip", [draft.op("Add", [x, constant(3)]), *bounds])
    if kind == "relu6":
        return clipped
    return draft.op("Div", [draft.op("Mul", [x, clipped]), constant(6)])
