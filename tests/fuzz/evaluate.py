"""What a graph's results should be: ONNX Runtime, and two ways to doubt it.

Results of ONNX Runtime are taken as right, unless a rounding error in an input would change them
(``is_unstable``) or the ONNX reference evaluator agrees with the other side.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from byoc.accuracy import share_of_range
from byoc.frontends.onnx.exact_reference import exact_session

IR_VERSION = 10

#: Greatest |error| as a share of the largest magnitude of an output, or of 1 if that is greater.
LIMITS = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}

#: Relative changes of the inputs that ``is_unstable`` tries, about a rounding of each dtype.
NUDGES = {"float64": 3e-7, "float32": 3e-7, "float16": 1e-3}

#: Greatest relative error of a number that products read, by precision.
ROUNDINGS = {"fp32": 0.0, "bf16": 2.0**-8, "bf16x3": 2.0**-16, "int8-data": 2.0**-7}

#: Inputs and weights that ``is_sensitive`` draws, and how often it takes a number to be rounded.
NEIGHBOURS, OFTEN = 6, 8

Arrays = dict[str, np.ndarray]

onnxruntime.set_default_logger_severity(4)


class Unrunnable(Exception):
    """ONNX Runtime refuses a model, or inputs of this size."""


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime without its optimiser, which has errors of its own. Raises ``Unrunnable``."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        return exact_session(model, options)
    except Exception as error:
        raise Unrunnable(str(error).splitlines()[0]) from error


def expected(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """ONNX Runtime's outputs by name. Raises ``Unrunnable``."""
    run = session(model)
    names = [output.name for output in run.get_outputs()]
    try:
        return dict(zip(names, run.run(names, feeds), strict=True))
    except Exception as error:
        raise Unrunnable(str(error).splitlines()[0]) from error


def survives(model: onnx.ModelProto, feeds: Arrays) -> bool:
    """Whether a process that runs the model goes on: of no elements, some operators end it."""
    child = os.fork()
    if child == 0:
        os.close(2)  # what the C++ runtime says last
        with contextlib.suppress(Unrunnable):
            expected(model, feeds)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def difference(got: np.ndarray, want: np.ndarray, coarse: float = 0.0) -> str | None:
    """None if two results agree, else how they differ; by ``coarse`` of the range at most.

    Without that share, the limit is one of the largest magnitude.
    """
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind != "f":
        wrong = int((got != want).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else None
    ordinary = np.isfinite(want) & np.isfinite(got)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return "NaN at other places"
    if not np.array_equal(got[~ordinary], want[~ordinary], equal_nan=True):
        return "infinity at other places"
    a, b = got[ordinary].astype("float64"), want[ordinary].astype("float64")
    if coarse:
        share = share_of_range(a, b)
        return f"error {share:.3g} of the range, limit {coarse:.3g}" if share > coarse else None
    limit = LIMITS[str(want.dtype)] * max(1.0, float(np.abs(b).max(initial=0.0)))
    error = float(np.abs(a - b).max(initial=0.0))
    return f"error {error:.3g}, limit {limit:.3g}" if error > limit else None


def differences(
    got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], coarse: float = 0.0
) -> dict[str, str]:
    """How outputs differ, by name; those that agree are left out."""
    found = {name: difference(np.asarray(got[name]), want[name], coarse) for name in want}
    return {name: text for name, text in found.items() if text}


def is_sensitive(model: onnx.ModelProto, feeds: Arrays, got: Arrays, rounding: float) -> bool:
    """Whether a coarse rounding of inputs and weights moves results about as far as ``got`` is off.

    What is computed of them is rounded as well, and often, so that ``OFTEN`` times as far will do.
    """
    rng = np.random.default_rng(0)
    want = expected(model, feeds)
    left = set(got)

    def near(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            return x
        return np.asarray(x * (1 + rounding * rng.uniform(-1, 1, x.shape)), x.dtype)

    for _ in range(NEIGHBOURS):
        other = onnx.ModelProto.FromString(model.SerializeToString())
        for tensor in other.graph.initializer:
            if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
                array = near(numpy_helper.to_array(tensor))
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        fed = {name: near(x) for name, x in feeds.items()}
        try:
            found = expected(other, fed)
        except Unrunnable:  # a weight that has to be a certain number
            found = expected(model, fed)
        left -= {n for n in left if _moves(found[n], got[n], want[n])}
    return not left


def _moves(near: np.ndarray, got: np.ndarray, want: np.ndarray) -> bool:
    """Whether ``near`` is off by what may explain that ``got`` is."""
    if want.dtype.kind != "f":
        return bool((near != want).any())
    off, moved = share_of_range(got, want), share_of_range(near, want)
    return bool(OFTEN * moved >= off)  # infinite where NaN, or infinity, is at other places


def is_unstable(model: onnx.ModelProto, feeds: Arrays, names: set[str]) -> bool:
    """Whether some of the outputs change by more than the limit when inputs do by a rounding."""
    want = expected(model, feeds)
    for share in (1, -1, 3, -3):
        near = {
            name: np.asarray(x * (1 + share * NUDGES[str(x.dtype)]), x.dtype)
            if str(x.dtype) in NUDGES
            else x
            for name, x in feeds.items()
        }
        moved = differences(expected(model, near), want)
        if names <= set(moved):
            return True
    return False


def by_reference(model: onnx.ModelProto, feeds: Arrays) -> Arrays | None:
    """The outputs by the ONNX reference evaluator; None if that fails."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # it has no error class of its own
        return None
    return {value.name: np.asarray(x) for value, x in zip(model.graph.output, values, strict=True)}
