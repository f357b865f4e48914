"""That the comparison with plain TVM can fail."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.report.modules import floats, typed_module
from tests.tvm_modules import check as checked
from tests.tvm_modules.check import DIFFERENT, EQUAL, UNCHANGED, check, difference

ONES = np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (ONES * 1.001, ONES),
        (ONES.T, ONES),
        (ONES.astype("float64"), ONES),
        (np.where(np.eye(2, 3) > 0, np.nan, ONES), ONES.astype("float64")),
        (ONES, np.where(np.eye(2, 3) > 0, np.inf, ONES).astype("float32")),
        (np.arange(3), np.arange(3)[::-1]),
        ([ONES], [ONES, ONES]),
        (3, 4),
    ],
)
def test_differences_are_found(found: object, wanted: object):
    assert difference(found, wanted) is not None
    assert difference(wanted, wanted) is None


def test_a_wrong_rewrite_is_found(monkeypatch: pytest.MonkeyPatch):
    good = typed_module(lambda x: op.exp(op.exp(x)), floats(4, 8))
    bad = typed_module(lambda x: op.exp(x), floats(4, 8))
    assert check(good, lambda stage: None).kind == EQUAL
    partition = checked.partition_for_ext
    monkeypatch.setattr(checked, "partition_for_ext", lambda mod, **rules: partition(bad, **rules))
    assert check(good, lambda stage: None).kind == DIFFERENT


def test_an_error_of_ours_is_a_difference(monkeypatch: pytest.MonkeyPatch):
    def fail(mod: tvm.IRModule, **rules: object) -> tvm.IRModule:
        raise KeyError("float16")

    mod = typed_module(lambda x: op.exp(x), floats(4, 8))
    monkeypatch.setattr(checked, "partition_for_ext", fail)
    assert check(mod, lambda stage: None).why == "KeyError: 'float16'"


def test_what_stays_as_it_is_is_not_compiled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tvm, "compile", None)
    mod = typed_module(lambda x: op.tan(x), relax.TensorType((4, 8), "float64"))
    assert check(mod, lambda stage: None).kind == UNCHANGED
