"""Every kind of function that a module may have: right, or left to TVM with a reason.

Each module goes through ``partition_for_ext``, ``RunCodegen`` and ``tvm.compile``, in a process of
its own where plain TVM would end it, and its results are compared with plain TVM's.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from byoc.compiler.partition import partition_with_report

SIZE = 16


def compiled(mod: tvm.IRModule) -> relax.VirtualMachine:
    """A module in a virtual machine."""
    return relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())


def check(mod: tvm.IRModule, name: str, *arguments: np.ndarray, regions: int) -> list[str]:
    """Compare one function with plain TVM's; the reasons for what stays."""
    before = tvm.ir.save_json(mod)
    partitioned, report = partition_with_report(mod, min_bytes=0)
    assert len(report.regions) == regions
    assert relax.analysis.check_well_formed(partitioned)
    assert tvm.ir.save_json(mod) == before
    ours = compiled(relax.transform.RunCodegen()(partitioned))
    tensors = [tvm.runtime.tensor(argument) for argument in arguments]
    want = compiled(mod)[name](*tensors).numpy()
    np.testing.assert_allclose(ours[name](*tensors).numpy(), want, rtol=1e-4, atol=1e-4)
    return [entry.reason for entry in report.left]


def square(seed: int = 0) -> np.ndarray:
    """A matrix whose powers stay small."""
    values = np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype("float32")
    return values / np.float32(SIZE)


@I.ir_module
class PrivateFunction:
    @R.function(private=True)
    def block(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        with R.dataflow():
            y = R.matmul(x, x)
            gv = R.nn.relu(y)
            R.output(gv)
        return gv

    @R.function(private=True)
    def two_blocks(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        cls = PrivateFunction
        a = cls.block(x)
        b = cls.block(a)
        return b

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        cls = PrivateFunction
        a = cls.two_blocks(x)
        b = R.matmul(a, x)
        c = cls.block(b)
        return c


@I.ir_module
class UnusedPrivateFunction:
    @R.function(private=True)
    def unused(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.matmul(x, x)
        return y

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.matmul(x, x)
        return y


@I.ir_module
class OnlyPrivateFunction:
    @R.function(private=True)
    def alone(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.matmul(x, x)
        return y


@I.ir_module
class FunctionAsValue:
    @R.function(private=True)
    def block(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.matmul(x, x)
        return y

    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        cls = FunctionAsValue
        f = cls.block
        y = f(x)
        return y


@I.ir_module
class WithoutMain:
    @R.function
    def one(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        y = R.matmul(x, x)
        return y

    @R.function
    def two(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        cls = WithoutMain
        y = cls.one(x)
        z = R.matmul(y, x)
        return z


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((16, 16), "float32")) -> R.Tensor(
        (16, 16), "float32"
    ):
        a = R.matmul(x, x)
        if c:
            b = R.matmul(a, x)
            r = R.nn.relu(b)
        else:
            r = R.exp(a)
        z = R.matmul(r, r)
        return z


@I.ir_module
class CallsItself:
    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor((16, 16), "float32")) -> R.Tensor(
        (16, 16), "float32"
    ):
        cls = CallsItself
        y = R.matmul(x, x)
        z = R.nn.relu(y)
        last = R.less(n, R.const(1, "int64"))
        if last:
            r = R.add(z, z)
        else:
            m = R.subtract(n, R.const(1, "int64"))
            r = cls.main(m, z)
        return r


@I.ir_module
class CallEachOther:
    @R.function(private=True)
    def odd(n: R.Tensor((), "int64"), x: R.Tensor((16, 16), "float32")) -> R.Tensor(
        (16, 16), "float32"
    ):
        cls = CallEachOther
        y = R.matmul(x, x)
        last = R.less(n, R.const(1, "int64"))
        if last:
            r = y
        else:
            m = R.subtract(n, R.const(1, "int64"))
            r = cls.even(m, y)
        return r

    @R.function(private=True)
    def even(n: R.Tensor((), "int64"), x: R.Tensor((16, 16), "float32")) -> R.Tensor(
        (16, 16), "float32"
    ):
        cls = CallEachOther
        y = R.nn.relu(x)
        last = R.less(n, R.const(1, "int64"))
        if last:
            r = y
        else:
            m = R.subtract(n, R.const(1, "int64"))
            r = cls.odd(m, y)
        return r

    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor((16, 16), "float32")) -> R.Tensor(
        (16, 16), "float32"
    ):
        cls = CallEachOther
        r = cls.even(n, x)
        z = R.matmul(r, x)
        return z


@I.ir_module
class LocalFunction:
    @R.function
    def main(x: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        @R.function
        def inner(y: R.Tensor((16, 16), "float32")) -> R.Tensor((16, 16), "float32"):
            z = R.matmul(y, x)
            return z

        a = R.matmul(x, x)
        b = inner(a)
        return b


@pytest.mark.slow
def test_private_functions_get_regions_that_run():
    assert check(PrivateFunction, "main", square(), regions=2) == []
    assert check(UnusedPrivateFunction, "main", square(), regions=2) == []
    assert check(OnlyPrivateFunction, "alone", square(), regions=1) == []
    assert check(FunctionAsValue, "main", square(), regions=1) == []


def test_a_module_without_main_is_like_any_other():
    assert check(WithoutMain, "one", square(), regions=2) == []
    assert check(WithoutMain, "two", square(), regions=2) == []


def test_branches_stay_with_tvm_and_say_so():
    reasons = check(Branches, "main", np.array(True), square(), regions=2)
    assert reasons == [
        f"relax.{name} is inside a branch; need straight-line code"
        for name in ("matmul", "nn.relu", "exp")
    ]


@pytest.mark.parametrize(("mod", "regions"), [(CallsItself, 1), (CallEachOther, 3)])
def test_recursive_functions_get_regions_that_run(mod: tvm.IRModule, regions: int):
    check(mod, "main", np.array(3, "int64"), square(), regions=regions)


def test_a_local_function_stays_with_tvm_and_says_so():
    """TVM compiles local functions after ``LambdaLift`` alone, which makes them global ones."""
    report = partition_with_report(LocalFunction, min_bytes=0)[1]
    need = "relax.matmul is inside a local function; need a function of the module"
    assert [entry.reason for entry in report.left] == [need]
    lifted = relax.transform.LambdaLift()(LocalFunction)
    check(lifted, "main", square(), regions=2)
