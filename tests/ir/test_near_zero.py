"""``log(1 + x)`` and ``exp(x) - 1`` are one kernel each, with all digits of a small ``x``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import byoc
from byoc.compiler.partition import partition_with_report

from .graphs import constant, regions, relax_module

FORMS = {
    "log1p": lambda emit, x: emit(op.log(emit(op.add(x, constant(1.0))))),
    "log1p_turned": lambda emit, x: emit(op.log(emit(op.add(constant(1.0), x)))),
    "expm1": lambda emit, x: emit(op.subtract(emit(op.exp(x)), constant(1.0))),
    "expm1_added": lambda emit, x: emit(op.add(constant(-1.0), emit(op.exp(x)))),
}
POWERS = 10.0 ** np.arange(-44, 3)
VALUES = np.array([*POWERS, *-POWERS[:-3], -1, -2, 0.0, -0.0, np.inf, -np.inf, np.nan], "float32")


@pytest.mark.parametrize("form", FORMS)
def test_small_numbers_keep_their_digits(form: str, tmp_path: Path) -> None:
    kind = form.partition("_")[0]
    mod = relax_module(FORMS[form], (tvm.tirx.Var("n", "int64"),))
    assert regions(partition_with_report(mod)[0]) == {"ext_main_0": [f"ext.{kind}"]}
    byoc.compile(mod, tmp_path / "m.so")
    with byoc.load(tmp_path / "m.so") as model, np.errstate(all="ignore"):
        for x in (VALUES, VALUES[:1], VALUES[:0]):
            want = getattr(np, kind)(x.astype("float64")).astype("float32")
            np.testing.assert_allclose(model(x), want, rtol=2.4e-7, atol=3e-45)


def test_others_are_not_taken() -> None:
    """Another number, and a sum that somebody else reads."""
    for build, kernels in (
        (lambda emit, x: emit(op.log(emit(op.add(x, constant(1.5))))), ["add", "log"]),
        (lambda emit, x: emit(op.subtract(constant(1.0), emit(op.exp(x)))), ["exp", "sub"]),
    ):
        out, _ = partition_with_report(relax_module(build, (64, 8)))
        assert regions(out) == {"ext_main_0": [f"ext.{kernel}" for kernel in kernels]}

    def shared(emit, x):
        more = emit(op.add(x, constant(1.0)))
        return relax.Tuple([emit(op.log(more)), more])

    out, _ = partition_with_report(relax_module(shared, (64, 8)))
    assert sorted(regions(out)["ext_main_0"]) == ["ext.add", "ext.log"]
