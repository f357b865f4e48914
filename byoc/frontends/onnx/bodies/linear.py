"""Linear models of ai.onnx.ml, and categories as columns.

They compute in float32 whatever they are given, and what the standard leaves open is as in ONNX
Runtime.  Labels are integers: texts have no body.
"""

from __future__ import annotations

import numpy as np
import onnx

from byoc.frontends.onnx.bodies.call import Call

_FLOAT = onnx.TensorProto.FLOAT
_INT64 = onnx.TensorProto.INT64

#: What several scores of a row become.
OF_SEVERAL = {"NONE": "", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}


def linear_regressor(call: Call) -> bool:
    """x w^T + b, [N, targets]; a single target is given as it is, whatever it should become."""
    targets = call.attrs.get("targets", 1)
    scores = _scores(call, targets)
    if scores is None:
        return False
    call.give(0, scores if targets == 1 else become(call, scores, transform_of(call)))
    return True


def linear_classifier(call: Call) -> bool:
    """Labels of the greatest scores, and the scores or what they become.

    One score decides between two labels, and is given as two where these are named.
    """
    labels = list(call.attrs.get("classlabels_ints", ()))
    classes = len(call.attrs.get("intercepts", ()))
    named = len(labels) in (0, 2) if classes == 1 else len(labels) == classes
    if call.attrs.get("classlabels_strings") or not classes or not named:
        return False
    scores = _scores(call, classes)
    if scores is None:
        return False
    if classes > 1:
        place = call.op("ArgMax", scores, axis=1, keepdims=0)
        call.give(1, become(call, scores, transform_of(call)))
    else:
        above = call.op("Greater", scores, call.constant(0, np.float32))
        place = call.over("Squeeze", call.op("Cast", above, to=_INT64), [1])
        call.give(1, _of_two(call, scores) if labels else scores)
    table = call.constant(labels or [0, 1], np.int64)
    call.give(0, call.op("Gather", table, place, axis=0))
    return True


def one_hot_encoder(call: Call) -> bool:
    """1 in the column of the category that is equal, else 0: [..., categories] of float32.

    Numbers with a fraction lose it. What is no category has 0 in every column, where
    ``zeros = 0`` asks for an error as well.
    """
    categories = list(call.attrs.get("cats_int64s", ()))
    if not categories or call.shape() is None:
        return False
    x = call.input(0)
    if call.dtype() != np.int64:
        x = call.op("Cast", x, to=_INT64)
    wide = call.over("Unsqueeze", x, [len(call.shape())])
    found = call.op("Equal", wide, call.constant(categories, np.int64))
    call.give(0, call.op("Cast", found, to=_FLOAT))
    return True


def _scores(call: Call, targets: int) -> str | None:
    """x w^T + b of this many rows of coefficients; None where they do not go together."""
    weights = np.array(call.attrs.get("coefficients", ()), np.float32)
    intercepts = list(call.attrs.get("intercepts", ()))
    if not len(weights) or len(weights) % targets or len(intercepts) not in (0, targets):
        return None
    if transform_of(call) not in OF_SEVERAL:
        return None
    product = by_rows(call, weights.reshape(targets, -1))
    if product is None or not intercepts:
        return product
    return call.op("Add", product, call.constant(intercepts, np.float32))


def by_rows(call: Call, weights: np.ndarray) -> str | None:
    """x w^T for rows of coefficients; None where rows of the input have another length."""
    x = rows_of(call, weights.shape[1])
    return None if x is None else call.op("MatMul", x, call.constant(weights.T, np.float32))


def rows_of(call: Call, features: int) -> str | None:
    """The input as rows of float32; None where they have another length."""
    shape, x = call.shape(), call.input(0)
    if not shape or len(shape) > 2 or shape[-1] != features:
        return None
    if len(shape) == 1:
        x = call.over("Unsqueeze", x, [0])
    return x if call.dtype() == np.float32 else call.op("Cast", x, to=_FLOAT)


def become(call: Call, scores: str, transform: str) -> str:
    """What several scores of a row become, by a name of ``OF_SEVERAL``."""
    operator = OF_SEVERAL[transform]
    axis = {"axis": 1} if operator == "Softmax" else {}
    return call.op(operator, scores, **axis) if operator else scores


def transform_of(call: Call) -> str:
    """What scores become, by name."""
    return call.attrs.get("post_transform", b"NONE").decode()


def _of_two(call: Call, score: str) -> str:
    """The scores of two classes from the one of the second."""
    if call.attrs.get("post_transform", b"NONE") == b"LOGISTIC":
        both = call.op("Concat", call.op("Neg", score), score, axis=1)
        return call.op("Sigmoid", both)
    other = call.op("Sub", call.constant(1, np.float32), score)
    return call.op("Concat", other, score, axis=1)
