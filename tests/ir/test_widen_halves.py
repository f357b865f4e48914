"""Relax modules in 16 bits: computed in float32 wherever that is only another dtype."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from byoc.canonicalise.widen_halves import has_half, widen_halves
from byoc.compiler.partition import partition_with_report
from codegen_cc.dtypes import KERNEL_HALVES
from tests.ir.graphs import random
from tests.report.modules import floats, typed_module


def types_inside(mod: tvm.IRModule) -> list[tvm.ir.Type]:
    """Of all that is bound in ``main``, but for casts back to 16 bits and tuples."""
    assert relax.analysis.check_well_formed(mod)
    return [
        binding.var.ty
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if not isinstance(binding.var.ty, relax.TupleType)
        and getattr(getattr(binding.value, "op", None), "name", "") != "relax.astype"
    ]


def halves(*shape: int | str, dtype: str = "float16") -> relax.Type:
    return floats(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", KERNEL_HALVES)
def test_operators_that_name_a_dtype(dtype: str) -> None:
    def build(x: relax.Expr) -> relax.Expr:
        one = relax.const(1, dtype)
        weight = relax.const(random(4, 4).astype(dtype), dtype)
        results = [
            *(op.zeros([2, 4], dtype), op.ones_like(x), op.full([2, 4], one, dtype)),
            *(op.full_like(x, one), op.arange(0, 4, 1, dtype), op.matmul(x, weight, dtype)),
            *(op.cumsum(x, 1), op.topk(x, 2)[0], op.split(x, 2, 1)[1], op.clip(x, 0, 1)),
            *(op.nn.softmax(x), op.sum(x, [1]), op.image.resize2d(images(x), (4, 4))),
            *(op.matmul(x, weight, "float32"), op.astype(op.astype(x, "float32"), dtype)),
            *(op.less(x, one), op.argmax(x, 1), op.astype(x, "int32"), op.isnan(x)),
        ]
        if dtype == "float16":  # the other one has none in TVM
            scale, zero = relax.const(0.5, "float32"), relax.const(0, "int8")
            results.append(op.quantize(x, scale, zero, 0, "int8"))
        return relax.Tuple(results)

    def images(x: relax.Expr) -> relax.Expr:
        return op.reshape(x, [1, 1, 2, 4])

    mod = typed_module(build, halves(2, 4, dtype=dtype))
    wide = widen_halves(mod)
    assert not any(map(has_half, types_inside(wide)))
    tvm.ir.assert_structural_equal(wide["main"].ty, mod["main"].ty)


def test_a_module_of_other_dtypes_stays_as_it_is() -> None:
    mod = typed_module(lambda x: op.add(x, x), floats(2, 3))
    tvm.ir.assert_structural_equal(widen_halves(mod), mod)


def test_constants_keep_their_values_and_are_shared() -> None:
    weight = relax.const(random(4, 4).astype("float16"), "float16")
    mod = typed_module(lambda x: op.matmul(op.matmul(x, weight), weight), halves(4, 4))
    found = []
    for block in widen_halves(mod)["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and len(binding.value.args) == 2:
                found.append(binding.value.args[1])
    assert len(found) == 2 and found[0].same_as(found[1])
    np.testing.assert_array_equal(found[0].value.numpy(), weight.value.numpy().astype("float32"))


@pytest.mark.parametrize("shape", [("n", 4), ("n", "m")], ids=str)
def test_symbolic_shapes(shape: tuple[int | str, ...]) -> None:
    mod = typed_module(lambda x: op.nn.softmax(op.add(x, x)), halves(*shape))
    assert not any(map(has_half, types_inside(widen_halves(mod))))


def test_values_without_a_known_shape_stay() -> None:
    """TVM could not compile a cast of them."""
    ty = relax.TensorType(dtype="float16", ndim=2)
    mod = typed_module(lambda x: op.nn.relu(op.add(x, x)), ty)
    tvm.ir.assert_structural_equal(widen_halves(mod), mod)

    def unique(x: relax.Expr) -> relax.Expr:
        return op.unique(op.add(x, x), True, False, False, False)

    inside = [
        ty for ty in types_inside(widen_halves(typed_module(unique, halves(6)))) if has_half(ty)
    ]
    assert len(inside) == 1 and inside[0].shape is None


@I.ir_module
class Mixed:
    @T.prim_func(private=True, s_tir=True)
    def doubled(a: T.Buffer((4, 4), "float16"), b: T.Buffer((4, 4), "float16")):
        for i, j in T.grid(4, 4):
            with T.sblock("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + a[vi, vj]

    @R.function(private=True)
    def inner(x: R.Tensor((4, 4), "float16")) -> R.Tensor((4, 4), "float16"):
        with R.dataflow():
            a = R.matmul(x, x)
            gv = R.nn.relu(a)
            R.output(gv)
        return gv

    @R.function
    def main(
        x: R.Tensor((4, 4), "float16"), y: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")
    ):
        cls = Mixed
        with R.dataflow():
            a = R.matmul(x, x)
            b = R.call_tir(cls.doubled, (a,), out_ty=R.Tensor((4, 4), "float16"))
            d = R.add(b, R.astype(y, "float16"))
            e = cls.inner(d)
            f = R.match_cast(e, R.Tensor((4, 4), "float16"))
            gv = R.multiply(f, a)
            R.output(gv)
        if c:
            h = R.exp(gv)
            r = R.add(h, gv)
        else:
            h = R.nn.relu(gv)
            r = R.subtract(h, gv)
        with R.dataflow():
            s = R.add(r, x)
            w = R.astype(s, "float32")
            gv1 = (s, w)
            R.output(gv1)
        return gv1


@pytest.mark.parametrize("condition", [True, False])
def test_functions_loop_nests_and_branches_are_right(condition: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mod, report = partition_with_report(Mixed, min_bytes=0)
    assert report.offloaded_macs == report.macs == 2 * 4**3
    kept = mod["main"]
    assert [str(p.ty.dtype) for p in kept.params] == ["float16", "float32", "bool"]
    built = tvm.compile(relax.transform.RunCodegen()(mod), "llvm")
    x, y = (0.5 * random(4, 4, seed=seed).astype("float32") for seed in (1, 2))
    x = x.astype("float16")
    arguments = [tvm.runtime.tensor(v) for v in (x, y, np.array(condition))]
    got = relax.VirtualMachine(built, tvm.cpu())["main"](*arguments)
    wide = x.astype("float32")
    a = wide @ wide
    d = 2 * a + y
    value = np.maximum(d @ d, 0) * a
    value = np.exp(value) + value if condition else np.maximum(value, 0) - value
    for result, dtype in zip(got, ("float16", "float32"), strict=True):
        assert str(result.dtype) == dtype
        np.testing.assert_allclose(result.numpy(), value + wide, rtol=2e-2, atol=2e-2)


def test_what_users_registered_is_computed_in_its_dtype() -> None:
    """``call_pure_packed`` may do anything with the bytes that it is given."""

    @tvm.register_global_func("tests.bits_of_halves", override=True)
    def bits(x: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        assert str(x.dtype) == "float16"
        return tvm.runtime.tensor(x.numpy().view(np.uint16))

    def build(x: relax.Expr) -> relax.Expr:
        ty = relax.TensorType((2, 2), "uint16")
        return op.call_pure_packed("tests.bits_of_halves", op.add(x, x), ty_args=[ty])

    mod = partition_with_report(typed_module(build, halves(2, 2)), min_bytes=0)[0]
    built = tvm.compile(relax.transform.RunCodegen()(mod), "llvm")
    x = np.float16([[1, 2], [3, -4]])
    got = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(got.numpy(), (2 * x).view(np.uint16))
