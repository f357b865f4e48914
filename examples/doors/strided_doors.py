"""The doors that ``08_strides.py`` tries: each gives a function of x and y that sets y = 2 x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.s_tir import Schedule, TensorIntrin
from tvm.script import tirx as T

import byoc
from build import FOLDER, build, view

SHAPE = ROWS, COLUMNS = 8, 16
Call = Callable[[Any, Any], None]


def python_view() -> Call:
    """Door 1, on the memory itself."""
    tvm_ffi.register_global_func("doors.view", lambda x, y: view(y).__setitem__(..., 2 * view(x)))
    return tvm_ffi.get_global_func("doors.view")


def python_copy() -> Call:
    """Door 1, as it is usually written."""
    tvm_ffi.register_global_func("doors.copy", lambda x, y: y.copyfrom(2 * x.numpy()))
    return tvm_ffi.get_global_func("doors.copy")


def packed(source: str, name: str) -> Call:
    """Door 2: C reads strides, C++ checks for them."""
    tvm_ffi.load_module(build(source, shared=True))
    function = tvm_ffi.get_global_func(name)
    return lambda x, y: function(x, 2.0, y)


def te_extern() -> Call:
    """Door 3."""
    x = te.placeholder(SHAPE, "float32", "x")
    y = te.extern(
        SHAPE, [x], lambda i, o: tirx.call_packed("doors.scale", i[0], T.float32(2), o[0])
    )
    return tvm.compile(te.create_prim_func([x, y]), "llvm")


def te_extern_with_strides() -> Call:
    """Door 3 with buffers that declare strides."""
    x = te.placeholder(SHAPE, "float32", "x")
    buffers = [
        tirx.decl_buffer(x.shape, "float32", strides=[tirx.Var("row", "int32"), 1]) for _ in "xy"
    ]
    te.extern(
        SHAPE,
        [x],
        lambda i, o: tirx.call_packed("doors.scale", i[0], T.float32(2), o[0]),
        in_buffers=buffers[:1],
        out_buffers=buffers[1:],
    )
    raise AssertionError("te.extern takes strides now; see what it does with them")


def layouts(declare: bool) -> list[tuple[Any, Any]]:
    """Strides and offset of x and y: variables that TVM binds at the call, or the usual form.

    The variables have the dtype of the shape, or TVM fails in its own pass.
    """
    if not declare:
        return [(None, None)] * 2
    return [([tirx.Var(f"{n}_row", "int32"), 1], tirx.Var(f"{n}_offset", "int32")) for n in "xy"]


def call_extern(declare: bool) -> tirx.PrimFunc:
    """Door 4: y = x b, by one call."""
    (x_strides, x_offset), (y_strides, y_offset) = layouts(declare)
    x_row, y_row = (s[0] if s else COLUMNS for s in (x_strides, y_strides))

    @T.prim_func(s_tir=True)
    def main(x: T.handle, b: T.handle, y: T.handle):
        X = T.match_buffer(x, (8, 16), "float32", strides=x_strides, elem_offset=x_offset)
        B = T.match_buffer(b, (16, 16), "float32")
        Y = T.match_buffer(y, (8, 16), "float32", strides=y_strides, elem_offset=y_offset)
        with T.sblock("gemm"):
            T.reads(X[0:8, 0:16], B[0:16, 0:16])
            T.writes(Y[0:8, 0:16])
            status: T.let[T.int32] = T.call_extern(
                "int32", "doors_gemm", X.access_ptr("r"), x_row, B.access_ptr("r"), 16,
                Y.access_ptr("w"), y_row, 8, 16, 16, 0,
            )  # fmt: skip
            assert status == 0, "doors_gemm failed"

    return main


def loop(declare: bool) -> tirx.PrimFunc:
    """Door 7: y = x b, in loops."""
    (x_strides, x_offset), (y_strides, y_offset) = layouts(declare)

    @T.prim_func(s_tir=True)
    def main(x: T.handle, b: T.handle, y: T.handle):
        X = T.match_buffer(x, (8, 16), "float32", strides=x_strides, elem_offset=x_offset)
        B = T.match_buffer(b, (16, 16), "float32")
        Y = T.match_buffer(y, (8, 16), "float32", strides=y_strides, elem_offset=y_offset)
        for i, j, k in T.grid(8, 16, 16):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * B[vk, vj]

    return main


@T.prim_func(s_tir=True)
def tile(x: T.handle, b: T.handle, y: T.handle):
    X = T.match_buffer(x, (4, 16), "float32", offset_factor=1)
    B = T.match_buffer(b, (16, 8), "float32", offset_factor=1)
    Y = T.match_buffer(y, (4, 8), "float32", offset_factor=1)
    with T.sblock("root"):
        T.reads(Y[0:4, 0:8], X[0:4, 0:16], B[0:16, 0:8])
        T.writes(Y[0:4, 0:8])
        for i, j, k in T.grid(4, 8, 16):
            with T.sblock("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                Y[vi, vj] = Y[vi, vj] + X[vi, vk] * B[vk, vj]


@T.prim_func(s_tir=True)
def tile_call(x: T.handle, b: T.handle, y: T.handle):
    x_row, b_row, y_row = T.int32(), T.int32(), T.int32()
    X = T.match_buffer(x, (4, 16), "float32", offset_factor=1, strides=[x_row, 1])
    B = T.match_buffer(b, (16, 8), "float32", offset_factor=1, strides=[b_row, 1])
    Y = T.match_buffer(y, (4, 8), "float32", offset_factor=1, strides=[y_row, 1])
    with T.sblock("root"):
        T.reads(Y[0:4, 0:8], X[0:4, 0:16], B[0:16, 0:8])
        T.writes(Y[0:4, 0:8])
        status: T.let[T.int32] = T.call_extern(
            "int32", "doors_gemm", X.access_ptr("r"), x_row, B.access_ptr("r"), b_row,
            Y.access_ptr("rw"), y_row, 4, 8, 16, 1,
        )  # fmt: skip
        assert status == 0, "doors_gemm failed"


def tensorised(declare: bool) -> tirx.PrimFunc:
    """Door 5: the loops of door 7, the inner ones replaced."""
    TensorIntrin.register("doors.tile", tile, tile_call, override=True)
    schedule = Schedule(loop(declare))
    block = schedule.get_sblock("product")
    i, j, k = schedule.get_loops(block)
    (i, rows), (j, columns) = schedule.split(i, [None, 4]), schedule.split(j, [None, 8])
    schedule.reorder(i, j, rows, columns, k)
    schedule.decompose_reduction(block, rows)
    schedule.tensorize(rows, "doors.tile")
    return schedule.mod["main"]


def linked(function: tirx.PrimFunc) -> Call:
    """Compile, link ``gemm.c`` and load."""
    library = FOLDER / f"strided{len(list(FOLDER.iterdir()))}.so"
    addons = [str(build("gemm.c", shared=False))]
    tvm.compile(function, "llvm").export_library(str(library), addons=addons)
    main = tvm.runtime.load_module(str(library))["main"]
    twice = tvm.runtime.tensor(2 * np.eye(COLUMNS, dtype=np.float32))
    return lambda x, y: main(x, twice, y)


class Machine:
    """A Relax module that computes y = 2 x and allocates y: ``call`` in the middle of it."""

    allocates = True

    def __init__(self, module: tvm.IRModule) -> None:
        self._main = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())["main"]

    def __call__(self, x: Any, y: Any) -> Any:
        return self._main(x)


def network(*steps: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    """A Relax module that applies the steps to x, in order."""
    builder = relax.BlockBuilder()
    x = value = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            for step in steps:
                value = builder.emit(step(value))
            y = builder.emit_output(value)
        builder.emit_func_output(y)
    return builder.get()


def double(x: relax.Expr) -> relax.Expr:
    """Twice x, by TVM or by a region."""
    return op.multiply(x, relax.const(2.0, "float32"))


def static_object() -> Machine:
    """Door 6: relu, which leaves x alone, in a static library; TVM doubles it afterwards."""
    path = build("06_static.c", shared=False)
    static = tvm.runtime.module.load_static_library(str(path), ["doors_relu"])
    type_of_y = relax.TensorType(SHAPE, "float32")
    module = network(lambda x: op.call_dps_packed("doors_relu", (x,), type_of_y), double)
    return Machine(module.with_attrs({"external_mods": [static]}))


def region() -> Machine:
    """Door 10: a region of this project."""
    module = byoc.partition_for_ext(network(op.nn.relu, double), min_bytes=0)
    return Machine(relax.transform.RunCodegen()(module))
