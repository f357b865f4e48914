"""Strange but legal Relax: right, or left to TVM with a reason; never an exception of Python's.

What is compared with is plain TVM, by ``tests.tvm_modules.check``.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from byoc.compiler.partition import partition_for_ext, partition_with_report
from byoc.partition import convert_to_dataflow
from tests.report.modules import typed_module
from tests.tvm_modules.check import EQUAL, Verdict, check


def verdict(mod: tvm.IRModule) -> Verdict:
    """The module beside plain TVM."""
    assert relax.analysis.check_well_formed(mod)
    return check(mod, lambda stage: None)


@I.ir_module
class WithoutShapes:
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2), y: R.Tensor(dtype="float32"), z: R.Tensor):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.add(y, y)
            c = R.nn.softmax(x)
            d = R.matmul(x, x)
            e = R.permute_dims(z)
            f = R.reshape(x, R.shape([16]))
            g = R.concat((x, a), axis=0)
            gv = (a, b, c, d, e, f, g)
            R.output(gv)
        return gv


@I.ir_module
class NestedTuples:
    @R.function
    def main(
        t: R.Tuple(
            R.Tensor((4, 4), "float32"),
            R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")),
        ),
    ):
        with R.dataflow():
            a = t[0]
            u = t[1]
            b = u[0]
            c = u[1]
            d = R.matmul(a, b)
            e = (d, (c, d))
            f = e[1]
            g = f[0]
            h = R.nn.relu(R.add(g, f[1]))
            w = R.concat(u, axis=0)
            gv = (h, (e, t), (), w)
            R.output(gv)
        return gv


@I.ir_module
class SymbolsOfAShape:
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), s: R.Shape(["n", "m"])) -> R.Tensor(
        ("n", "m"), "float32"
    ):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.reshape(R.matmul(x, R.permute_dims(x)), R.shape([16]))
            z = R.broadcast_to(R.sum(y), R.shape([n, m]))
            w = R.nn.relu(z)
            gv = R.add(w, w)
            R.output(gv)
        return gv


@I.ir_module
class ShapeInAVariable:
    @R.function
    def main(x: R.Tensor((4, 6), "float32"), s: R.Shape([3, 8])):
        shape = R.shape([2, 12])
        with R.dataflow():
            y = R.reshape(x, shape)
            z = R.reshape(R.add(y, y), s)
            gv = R.nn.softmax(z)
            R.output(gv)
        return gv


@I.ir_module
class Casts:
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2)):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.match_cast(x, R.Tensor((n, m), "float32"))
            z = R.matmul(y, R.permute_dims(y))
            w = R.nn.relu(z)
            gv = R.add(w, w)
            R.output(gv)
        return gv


@I.ir_module
class ResultsOfAllKinds:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), y: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = x
            b = R.add(a, y)
            c = b
            d = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
            R.output(a, c, d)
        return (x, a, c, c, d, R.shape([4, 2]), R.prim_value(3), R.str("s"), R.const(3.0))


@I.ir_module
class Effects:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 4), "float32")):
        y = R.matmul(x, x)
        R.assert_op(R.const(True), format="never")
        z = R.nn.relu(y)
        R.assert_op(R.const(True), format="never")
        q = R.matmul(z, y)
        return q


@I.ir_module
class NameOfARegion:
    @R.function
    def ext_main_0(x: R.Tensor((4, 4), "float32")):
        y = R.matmul(x, x)
        return y

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        cls = NameOfARegion
        y = R.matmul(x, x)
        z = cls.ext_main_0(y)
        return z


@I.ir_module
class Devices:
    I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1)]})

    @R.function
    def main(x: R.Tensor((4, 4), "float32", "llvm:0"), y: R.Tensor((4, 4), "float32", "llvm:0")):
        with R.dataflow():
            z = R.matmul(x, y)
            gv = R.nn.relu(z)
            R.output(gv)
        return gv


DISTRIBUTED = tvm.script.from_source("""
# from tvm.script import ir as I
# from tvm.script import tirx as T
# from tvm.script import relax as R

@I.ir_module
class Module:
    I.module_attrs({"device_num": 4})
    I.module_global_infos({"mesh": [R.device_mesh((4,), I.Range(0, 4))]})

    @T.prim_func(s_tir=True)
    def double(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.sblock("compute"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(A: R.DTensor((8, 4), "float32", "mesh[0]", "S[0]")):
        cls = Module
        B = R.dist.call_tir(
            cls.double, (A,), out_ty=R.DTensor((8, 4), "float32", "mesh[0]", "S[0]")
        )
        return B
""")


def shared_constant() -> tvm.IRModule:
    """Three functions that multiply by the same constant object, twice each."""
    builder = relax.BlockBuilder()
    weight = relax.const(np.random.default_rng(0).random((16, 16), "float32"))
    for name in ("a", "b", "main"):
        x = relax.Var("x", relax.TensorType((16, 16), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                product = relax.op.matmul(relax.op.matmul(x, weight), weight)
                result = builder.emit_output(product)
            builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("mod", "regions"),
    [
        pytest.param(NestedTuples, 1, id="nested tuples"),
        pytest.param(SymbolsOfAShape, 1, id="symbols that only a shape tells"),
        pytest.param(Casts, 1, id="casts"),
        pytest.param(ResultsOfAllKinds, 1, id="results of all kinds"),
        pytest.param(Effects, 3, id="effects"),
        pytest.param(NameOfARegion, 2, id="a function with the name of a region"),
        pytest.param(Devices, 1, id="devices"),
        pytest.param(shared_constant(), 3, id="a constant of several functions"),
    ],
)
def test_strange_modules_compute_what_plain_tvm_computes(mod: tvm.IRModule, regions: int):
    assert verdict(mod) == Verdict(EQUAL, "", regions)


def test_shapes_in_variables():
    """Plain TVM reshapes to shapes that stand in the call alone, so numpy is the judge."""
    partitioned, report = partition_with_report(ShapeInAVariable, min_bytes=0)
    assert not report.left
    assert relax.analysis.check_well_formed(partitioned)
    x = np.random.default_rng(0).random((4, 6), "float32")
    generated = relax.transform.RunCodegen()(partitioned)
    machine = relax.VirtualMachine(tvm.compile(generated, target="llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x), tvm.runtime.ShapeTuple([3, 8])).numpy()
    powers = np.exp(2 * x.reshape(3, 8).astype("float64"))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_what_has_no_shape_stays_with_tvm():
    mod, report = partition_with_report(WithoutShapes, min_bytes=0)
    assert not report.regions
    assert {entry.reason for entry in report.left} == {
        f"{role} is float32[?]; need a known shape" for role in ("input", "lhs", "input0")
    }
    assert relax.analysis.check_well_formed(mod)


def test_regions_of_other_backends_are_no_business_of_ours():
    """Neither those that are functions already, nor composites that are yet to be merged."""
    patterns = [("other.relu", relax.dpl.is_op("relax.nn.relu")(relax.dpl.wildcard()))]
    fuse = relax.transform.FuseOpsByPattern

    def block(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = builder.emit(relax.op.nn.relu(relax.op.matmul(x, x)))
        return builder.emit_output(relax.op.matmul(y, x))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = block(builder, x)
        builder.emit_func_output(result)
    for annotate_codegen in (True, False):
        mod = fuse(patterns, annotate_codegen=annotate_codegen)(builder.get())
        theirs = [gvar.name_hint for gvar in mod.get_global_vars() if gvar.name_hint != "main"]
        out, report = partition_with_report(mod, min_bytes=0)
        assert [region.operators for region in report.regions] == [1, 1]
        assert [region.name for region in report.planned(out).regions] == [
            "ext_main_0",
            "ext_main_1",
        ]
        assert {name for name in theirs if out[name].same_as(mod[name])} == set(theirs)


def test_a_partitioned_module_can_be_partitioned_again():
    """By another library first, say; what it took stays, whatever the second one would prune."""
    mod = shared_constant()
    once = partition_for_ext(mod, only=["matmul"], min_bytes=0)
    twice, report = partition_with_report(once, min_bytes=10**9)
    assert len(report.regions) == 3
    machine = relax.VirtualMachine(
        tvm.compile(relax.transform.RunCodegen()(twice), target="llvm"), tvm.cpu()
    )
    x = np.random.default_rng(1).random((16, 16), "float32")
    plain = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    want = plain["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(x)).numpy(), want, rtol=1e-5)


def test_code_that_tvm_cannot_put_into_dataflow_blocks_stays_as_it_is():
    """TVM's pass drops the bindings of operators on distributed tensors and keeps their uses."""
    assert convert_to_dataflow(DISTRIBUTED).same_as(DISTRIBUTED)
    mod, report = partition_with_report(DISTRIBUTED)
    assert relax.analysis.check_well_formed(mod)
    assert [entry.reason for entry in report.left] == [
        "relax.call_tir(double) is outside of a dataflow block; need one"
    ]


def test_types_that_nobody_inferred():
    """Code written by hand may lack them; TVM's own build infers them as well."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    y = relax.Var("y")
    z = relax.Var("z", relax.TensorType((4, 4), "float32"))
    bindings = [
        relax.VarBinding(y, relax.Tuple([relax.op.add(x, x)])),
        relax.VarBinding(z, relax.TupleGetItem(y, 0)),
    ]
    body = relax.SeqExpr([relax.BindingBlock(bindings)], z)
    func = relax.Function([x], body, z.ty).with_attr("global_symbol", "main")
    mod = tvm.IRModule({"main": func})
    assert not relax.analysis.check_well_formed(mod)
    assert check(mod, lambda stage: None) == Verdict(EQUAL, "", 1)


def test_a_loop_nest_that_only_another_one_calls_stays():
    @I.ir_module(s_tir=True)
    class Subroutine:
        @T.prim_func(private=True)
        def sum_of(x: T.float32, y: T.float32) -> T.float32:
            return x + y

        @T.prim_func(private=True, s_tir=True)
        def sums(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.handle):
            C = T.match_buffer(c, (4,), "float32")
            for i in range(4):
                C[i] = Subroutine.sum_of(a[i], b[i])

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            cls = Subroutine
            y = R.call_tir(cls.sums, (x, w), out_ty=R.Tensor((4,), "float32"))
            return y

    names = {gvar.name_hint for gvar in partition_for_ext(Subroutine).get_global_vars()}
    assert {"sum_of", "sums", "main"} <= names


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2", "int4", "int8", "uint8"],
)
def test_every_dtype_is_left_or_right(dtype: str):
    """No builder, rule or report meets a dtype that it does not know; nothing is compiled."""

    def build(x: relax.Expr, y: relax.Expr) -> list[relax.Expr]:
        op = relax.op
        results = [
            *(op.reshape(x, [16]), op.permute_dims(x), op.concat([x, y]), op.split(x, 2)[0]),
            *(op.strided_slice(x, [0], [0], [2]), op.tril(x), op.flip(x, 0), op.tile(x, [2, 1])),
            *(op.broadcast_to(x, [2, 4, 4]), op.where(op.less(x, y), x, y), op.stack([x, y])),
            *(op.astype(x, "float32"), op.astype(op.astype(x, "float32"), dtype), op.abs(x)),
            *(op.add(x, y), op.maximum(x, y), op.sum(x, [0]), op.max(x, [0]), op.argmax(x, 0)),
            op.take(x, relax.const(np.array([0, 1], "int64")), 0),
        ]
        if dtype in ("float16", "bfloat16", "float64"):
            results += [op.nn.softmax(x), op.nn.gelu(x), op.matmul(x, op.permute_dims(y))]
        if dtype in ("int8", "uint8", "float8_e4m3fn", "float8_e5m2"):
            scale = relax.const(np.float32(0.5))
            zero = relax.const(np.zeros((), "int8" if "int" in dtype else "float16"))
            real = op.astype(x, "float32")
            results.append(op.quantize(real, scale, zero, 0, dtype))
            results.append(op.dequantize(x, scale, zero, 0))
        return results

    ty = relax.TensorType((4, 4), dtype)
    mod = typed_module(lambda x, y: relax.Tuple(build(x, y)), ty, ty)
    out, report = partition_with_report(mod, min_bytes=0)
    report.planned(out)
    json.dumps(report.to_json())
    assert report.to_html() and all(entry.reason for entry in report.left)
