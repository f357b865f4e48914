"""Support vector machines of ai.onnx.ml, as ONNX Runtime computes them: in float32.

LINEAR x v;  POLY (g x v + c)^d;  SIGMOID tanh(g x v + c);  RBF exp(-g |x - v|^2)
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call
from byoc.frontends.onnx.bodies.linear import OF_SEVERAL, become, by_rows, rows_of, transform_of
from byoc.frontends.onnx.honoured import OWN, PAIR_COUPLING

_INT64 = onnx.TensorProto.INT64

#: A score from which on the second of two classes has weights that are none below 0.
_EVEN = 0.5

#: Probabilities of pairs are this far from 0 and 1 at least.
_LEAST = np.float32(1e-7)

#: What a score is multiplied by, and what is added to it: the less, the likelier the first class.
_BY_SCORE = ("prob_a", "prob_b")


def svm_regressor(call: Call) -> bool:
    """k(x, vectors) w + b, [N, 1]; its sign as 1 or -1 for one class."""
    weights = np.array(call.attrs.get("coefficients", ()), np.float32)
    rho = list(call.attrs.get("rho", ()))
    if len(rho) != 1 or not len(weights) or transform_of(call) != "NONE":
        return False
    count = call.attrs.get("n_supports", 0)
    x = rows_of(call, len(weights) if not count else _width(call, count))
    if x is None or (count and count != len(weights)):
        return False
    if count:
        x = _kernel(call, x, count)
        if x is None:
            return False
    product = call.op("MatMul", x, call.constant(weights[:, None], np.float32))
    y = call.op("Add", product, call.constant(rho[0], np.float32))
    if call.attrs.get("one_class", 0):
        above = call.op("Greater", y, call.constant(0, np.float32))
        y = call.op("Where", above, *(call.constant(n, np.float32) for n in (1, -1)))
    call.give(0, y)
    return True


def svm_classifier(call: Call) -> bool:
    """Labels, and a score of each pair of classes, or of each class where there are no vectors.

    Each pair votes for one of its classes. Two classes have both scores of their pair. Where there
    are ``prob_a`` and ``prob_b``, the scores are probabilities of the classes.
    """
    labels = list(call.attrs.get("classlabels_ints", ()))
    if len(labels) < 2 or call.attrs.get("classlabels_strings"):
        call.refuse(f"{len(labels)} labels that are numbers; need two or more, and no texts")
    if transform_of(call) not in OF_SEVERAL:
        call.refuse(f"post_transform {transform_of(call)}; need one of {', '.join(OF_SEVERAL)}")
    supports = [int(count) for count in call.attrs.get("vectors_per_class", ())]
    found = _by_pairs(call, supports, len(labels)) if sum(supports) else _linear(call, len(labels))
    if found is None:
        call.refuse("coefficients that do not go together with rows and vectors; export it again")
    place, scores = found
    call.give(0, call.op("Gather", call.constant(labels, np.int64), place, axis=0))
    call.give(1, scores)
    return True


def _linear(call: Call, classes: int) -> tuple[str, str] | None:
    """The place of the greatest score of a class, and the scores."""
    weights = np.array(call.attrs.get("coefficients", ()), np.float32)
    rho = list(call.attrs.get("rho", ()))
    if not len(weights) or len(weights) % classes or not rho:
        return None
    product = by_rows(call, weights.reshape(classes, -1))
    if product is None:
        return None
    scores = call.op("Add", product, call.constant(rho[0], np.float32))
    place = call.op("ArgMax", scores, axis=1, keepdims=0)
    if classes == 2 and not call.attrs.get("prob_a"):
        greatest = call.over("ReduceMax", scores, [1], keepdims=0)
        least = call.constant(_EVEN if (weights >= 0).all() else 0, np.float32)
        above = "Less" if (weights >= 0).all() else "Greater"
        second = call.op(above, greatest, least)
        if above == "Less":
            second = call.op("Not", second)
        place = call.op("Where", second, call.constant(1, np.int64), place)
    return place, become(call, scores, transform_of(call))


def _by_pairs(call: Call, supports: list[int], classes: int) -> tuple[str, str] | None:
    """The place of the class with the most votes, the first of several, and the scores."""
    count, pairs = sum(supports), list(combinations(range(classes), 2))
    weights = np.array(call.attrs.get("coefficients", ()), np.float32)
    rho = np.array(call.attrs.get("rho", ()), np.float32)
    if len(supports) != classes or len(rho) < len(pairs) or len(weights) < (classes - 1) * count:
        return None
    weights = weights[: (classes - 1) * count].reshape(classes - 1, count)
    x = rows_of(call, _width(call, count))
    kernels = None if x is None else _kernel(call, x, count)
    if kernels is None:
        return None
    first = np.cumsum([0, *supports])
    of_pairs = np.zeros((count, len(pairs)), np.float32)
    for_first, for_second = np.zeros((2, len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        own, other = slice(first[i], first[i + 1]), slice(first[j], first[j + 1])
        of_pairs[own, number], of_pairs[other, number] = weights[j - 1, own], weights[i, other]
        for_first[number, i] = for_second[number, j] = 1
    product = call.op("MatMul", kernels, call.constant(of_pairs, np.float32))
    scores = call.op("Add", product, call.constant(rho[: len(pairs)], np.float32))
    above = call.op("Greater", scores, call.constant(0, np.float32))
    won = call.op("Cast", above, to=onnx.TensorProto.FLOAT)
    # Each pair has a vote: that of the second class, and what winning moves to the first.
    moved = call.op("MatMul", won, call.constant(for_first - for_second, np.float32))
    votes = call.op("Add", moved, call.constant(for_second.sum(0), np.float32))
    place = call.op("ArgMax", votes, axis=1, keepdims=0)
    transform = transform_of(call)
    if call.attrs.get("prob_a"):
        likely = _probabilities(call, scores, len(pairs), classes)
        return None if likely is None else (place, become(call, likely, transform))
    if len(pairs) > 1:
        return place, become(call, scores, transform)
    other = call.op("Neg", scores)
    if transform == "SOFTMAX":
        other = call.op("Sub", call.constant(1, np.float32), scores)
    both = call.op("Concat", other, scores, axis=1)
    return place, call.op("Sigmoid", both) if transform == "LOGISTIC" else both


def _probabilities(call: Call, scores: str, pairs: int, classes: int) -> str | None:
    """Probabilities of classes, [N, classes], by those of each pair's first class."""
    factors, terms = (np.array(call.attrs.get(name, ()), np.float32) for name in _BY_SCORE)
    if len(factors) != len(terms) or len(factors) < pairs:
        return None
    scaled = call.op("Mul", scores, call.constant(-factors[:pairs], np.float32))
    moved = call.op("Sub", scaled, call.constant(terms[:pairs], np.float32))
    least = call.constant(_LEAST, np.float32)
    most = call.constant(1 - _LEAST, np.float32)
    cut = call.op("Min", call.op("Max", call.op("Sigmoid", moved), least), most)
    return call.op(PAIR_COUPLING, cut, domain=OWN, classes=classes)


def _width(call: Call, count: int) -> int:
    """How many numbers a support vector has."""
    return len(call.attrs.get("support_vectors", ())) // count


def _kernel(call: Call, x: str, count: int) -> str | None:
    """k(x, v) of each row and support vector, [N, vectors]; None for an unknown kernel."""
    vectors = np.array(call.attrs["support_vectors"], np.float32).reshape(count, -1)
    gamma, offset, degree = [*call.attrs.get("kernel_params", ()), 0, 0, 0][:3]
    kind = call.attrs.get("kernel_type", b"LINEAR").decode()

    def number(value: float) -> str:
        return call.constant(value, np.float32)

    if kind == "RBF":
        # The differences themselves: squares of long rows that are near to each other cancel out.
        wide = call.over("Unsqueeze", x, [1])
        apart = call.op("Sub", wide, call.constant(vectors[None], np.float32))
        squares = call.over("ReduceSumSquare", apart, [2], keepdims=0)
        return call.op("Exp", call.op("Mul", squares, number(-gamma)))
    product = call.op("MatMul", x, call.constant(vectors.T, np.float32))
    if kind == "LINEAR":
        return product
    moved = call.op("Add", call.op("Mul", product, number(gamma)), number(offset))
    if kind == "SIGMOID":
        return call.op("Tanh", moved)
    return call.op("Pow", moved, number(degree)) if kind == "POLY" else None
