"""What ``--emit standalone`` refuses, in one line, leaving nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from byoc.cli import main
from byoc.compiler.standalone import Standalone, compile_standalone
from byoc.errors import CompileError
from codegen_cc.errors import CodegenError, LibraryError
from codegen_cc.standalone import default_name, require_name
from codegen_cc.standalone.header import header_text
from codegen_cc.standalone.interface import Interface, TensorSpec
from codegen_cc.target import HOST
from models.builder import GraphBuilder
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.deploy.standalone_api import Instance
from tests.reference import assert_agrees, onnxruntime_outputs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_library"


def refused(model: onnx.ModelProto, folder: Path, **options: object) -> str:
    """The error of a compilation, after which there is nothing in the folder."""
    with pytest.raises((CompileError, CodegenError)) as caught:
        compile_standalone(model, folder / "model", **options)
    assert not list(folder.iterdir())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------ networks


def test_operators_left_to_tvm_are_counted_and_one_is_named(tmp_path: Path) -> None:
    said = refused(two_by_two(), tmp_path, skip_ops=["softmax", "sigmoid"])
    assert "2 of 7 operators stay with TVM, the first is sigmoid_0 (relax.sigmoid: skipped" in said
    assert "`byoc partition` lists them" in said


def test_an_output_that_no_kernel_computes(tmp_path: Path) -> None:
    graph = GraphBuilder("through", 1)
    x = graph.input("x", (1, 3, 16, 16))
    graph.output(graph.op("Relu", graph.conv(x, (3, 8), 3)), "y", (1, 8, 16, 16))
    graph.output(x, "same", (1, 3, 16, 16))
    assert "needs the whole network in one region" in refused(graph.build(), tmp_path)


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("resnet50", "resnet50"),
        ("squeezenet1.1-7", "squeezenet1_1_7"),
        ("3d net", "model_3d_net"),
        ("数", "model"),
        ("_x_", "x"),
        ("a" * 90, "a" * 40),
    ],
)
def test_names_from_files(stem: str, name: str) -> None:
    assert default_name(stem) == name
    require_name(name, [], HOST)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "need ASCII letters"),
        ("a-b", "need ASCII letters"),
        ("1st", "need ASCII letters"),
        ('x"; int y', "need ASCII letters"),
        ("a\n", "need ASCII letters"),
        ("é", "need ASCII letters"),
        ("a" * 41, "longer than 40"),
        ("ext_model", "begin with byoc, ext, tvm are taken"),
        ("byoc", "begin with"),
        ("timer", "have a function timer_create"),
        ("string", "has a header string.h"),
        ("m", "has a library libm"),
    ],
)
def test_names_that_are_taken(tmp_path: Path, name: str, reason: str) -> None:
    said = refused(two_by_two(), tmp_path, name=name)
    assert said.startswith("a model cannot be named") and reason in said
    assert said.endswith("give another with --name")


@pytest.mark.parametrize("name", ["int", "main", "class"])
def test_a_keyword_only_begins_names(tmp_path: Path, name: str) -> None:
    done = compile_standalone(two_by_two(), tmp_path / "model", name=name)
    with Instance(done.folder / "lib" / f"lib{name}.so", threads=1) as model:
        inputs = inputs_of_two_by_two(1)
        assert_agrees(model.answers(inputs), onnxruntime_outputs(two_by_two(), inputs))


def test_names_of_tensors_cannot_reach_c(tmp_path: Path) -> None:
    odd = '*/ "); system("x"); /* \\ \n ü ??/'
    x = helper.make_tensor_value_info(odd, TensorProto.FLOAT, [1, 64, 64])
    y = helper.make_tensor_value_info(odd + "y", TensorProto.FLOAT, [1, 64, 64])
    nodes = [
        helper.make_node("Relu", [odd], ["m"]),
        helper.make_node("Sigmoid", ["m"], [odd + "y"]),
    ]
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(helper.make_graph(nodes, "odd", [x], [y]), opset_imports=opset)
    done = compile_standalone(model, tmp_path / "model", name="odd")
    for path in (done.folder / "odd.c", done.folder / "include" / "odd.h"):
        text = path.read_text("ascii")
        assert 'system("x")' not in text
        assert text.count("/*") == text.count("*/")
    with Instance(done.folder / "lib" / "libodd.so", threads=1) as instance:
        assert instance.inputs[0].name.decode() == odd
        data = np.random.default_rng(0).standard_normal((1, 64, 64), np.float32)
        (found,) = instance.answers({odd: data}).values()
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.maximum(data, 0))), rtol=1e-5)


def test_the_header_lists_every_tensor() -> None:
    spec = TensorSpec("a b", "int64", (2, 3))
    text = header_text(Interface("net", (spec, spec), (TensorSpec("", "bool", ()),), (0, 1), (0,)))
    assert " *   1  a_b: int64 [2, 3]\n" in text and " *   0  _: bool []\n" in text
    assert "#define net_INPUT_1_ELEMENTS 6\n" in text
    assert "#define net_OUTPUT_0_ELEMENTS 1\n" in text


# ------------------------------------------------------------------ folders


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CompileError, match="it is a file; give a folder"):
        compile_standalone(two_by_two(), tmp_path / "file")
    with pytest.raises(CompileError, match="there is no folder"):
        compile_standalone(two_by_two(), tmp_path / "no" / "model")


def test_models_share_a_folder_and_are_replaced(tmp_path: Path) -> None:
    for name in ("first", "second", "first"):
        done = compile_standalone(two_by_two(), tmp_path / "model", name=name)
    assert sorted(path.name for path in (tmp_path / "model" / "lib").iterdir()) == [
        "libfirst.a",
        "libfirst.so",
        "libsecond.a",
        "libsecond.so",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [done.folder.name]
    twice = [(tmp_path / "model" / "lib" / f"lib{n}.a").stat().st_size for n in ("first", "second")]
    assert abs(twice[0] - twice[1]) < 4096


# ------------------------------------------------------------------ libraries


TABLE = """\
from pathlib import Path
from byoc.library import Kernel, Library, Link

LIBRARY = Library(
    {name!r},
    version="1",
    abi=1,
    link=Link(
        headers=("my_library.h",),
        include_dirs=(Path({example!r}),),
        sources=(Path({source!r}),),
    ),
    status_text="my_status",
    kernels=[
        Kernel(
            "matmul",
            function="my_gemm",
            arguments=("lhs", "rhs", "bias", "relu", "output", "m", "n", "k"),
            epilogue=("bias", "relu"),
        ),
    ],
)
"""


def product() -> onnx.ModelProto:
    """A matrix product with a bias."""
    graph = GraphBuilder("product", 1)
    x = graph.input("x", (1, 40, 64))
    graph.output(graph.linear(x, (64, 48)), "y", (1, 40, 48))
    return graph.build()


def compile_with(library: Path, folder: Path) -> Standalone:
    """Compile ``product`` with a library that computes the matrix product."""
    return compile_standalone(
        product(), folder / "model", name="product", libraries=f"{library},builtin"
    )


def table(folder: Path, name: str, source: Path) -> Path:
    """A table for the library of examples/my_library."""
    path = folder / f"{name}.py"
    path.write_text(TABLE.format(name=name, example=str(EXAMPLE), source=str(source)))
    return path


def test_a_library_of_ones_own(tmp_path: Path) -> None:
    done = compile_with(table(tmp_path, "mine", EXAMPLE / "my_library.c"), tmp_path)
    assert [use.library for use in done.report.kernels] == ["mine"]
    inputs = {"x": np.random.default_rng(2).standard_normal((1, 40, 64), np.float32)}
    with Instance(done.folder / "lib" / "libproduct.so", threads=2) as model:
        assert_agrees(model.answers(inputs), onnxruntime_outputs(product(), inputs))


def test_a_library_that_calls_tvm(tmp_path: Path) -> None:
    source = tmp_path / "raises.c"
    source.write_text(
        '#include "my_library.h"\n'
        "#include <tvm/ffi/c_api.h>\n"
        "int my_gemm(const float* a, const float* b, const float* c, int r, float* y, int64_t m,\n"
        "            int64_t n, int64_t k) {\n"
        "  (void)a, (void)b, (void)c, (void)r, (void)y, (void)m, (void)n, (void)k;\n"
        '  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "no");\n'
        "  return 1;\n"
        "}\n"
        'const char* my_status(int status) { return status ? "bad" : "good"; }\n'
    )
    with pytest.raises(LibraryError) as caught:
        compile_with(table(tmp_path, "raises", source), tmp_path)
    assert str(caught.value).startswith("libproduct.so cannot be linked: TVMFFIErrorSetRaised")
    assert "does not fit the standalone form" in str(caught.value)
    assert not (tmp_path / "model").exists()


# ------------------------------------------------------------------ the command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_by_two(), tmp_path / "two-by-two.onnx")
    command = ["compile", str(tmp_path / "two-by-two.onnx"), "-o", str(tmp_path / "model")]
    assert main([*command, "--name", "x"]) == 2
    assert "--name goes with --emit standalone" in capsys.readouterr().err
    command += ["--emit", "standalone"]
    assert main([*command, "--dump-code", str(tmp_path)]) == 2
    assert main([*command, "--skip-op", "softmax"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: the standalone form needs the whole network in one region")
    assert not (tmp_path / "model").exists()
    assert main([*command, "--threads", "2"]) == 0
    said = capsys.readouterr().out
    assert "C library two_by_two" in said and "1 region" in said
    text = (tmp_path / "model" / "two_by_two.c").read_text()
    assert ".threads = 2," in text
    with Instance(tmp_path / "model" / "lib" / "libtwo_by_two.so") as model:
        inputs = inputs_of_two_by_two(3)
        assert_agrees(model.answers(inputs), onnxruntime_outputs(two_by_two(), inputs))
