"""The adapter ``cblas``: products and convolutions of every form on the BLAS of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc.frontends.onnx.measured_model import draw_inputs
from byoc.library import LibraryError, Node, Operand, Step
from codegen_cc.dim import symbol
from codegen_cc.libraries import blas, registry
from codegen_cc.link.toolchain import compiler
from models.builder import GraphBuilder
from models.resnet import resnet50
from models.zoo import ZOO
from tests.conftest import SHORTENED
from tests.ir.interpret import apply_node
from tests.ir.regions import RegionBuilder
from tests.ir.run_regions import CompiledRegions
from tests.libraries.sample import two_products
from tests.reference import assert_agrees, onnxruntime_outputs

try:
    LIBRARY = registry.library("cblas")
except LibraryError as error:
    pytest.skip(str(error), allow_module_level=True)

FULL = (Step("bias"), Step("tanh"), Step("residual"), Step("relu"))


def matmul(*shapes, steps=(), constant=True, turn=()):
    """A product of [.., m, k] and [.., k, n]; sides in ``turn`` are transposed views."""

    def build(b: RegionBuilder):
        sides = {}
        for role, shape in zip(("lhs", "rhs"), shapes, strict=True):
            stored = (*shape[:-2], shape[-1], shape[-2]) if role in turn else shape
            is_constant = constant and role == "rhs"
            value = b.constant(*stored) if is_constant else b.input(*stored, name=role)
            if role in turn:
                axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
                value = b.add("permute", {"input": value}, shape, axes=axes)
            sides[role] = value
        shape = (*np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])
        if "bias" in [step.kind for step in steps]:
            sides["bias"] = b.constant(shape[-1])
        if "residual" in [step.kind for step in steps]:
            sides["residual"] = b.input(*shape, name="residual")
        return b.add("matmul", sides, shape, steps)

    return build


def repeated_rows(b: RegionBuilder):
    """A left side of stride 0, which no BLAS reads."""
    row = b.add("broadcast_to", {"input": b.input(1, 5)}, (3, 5))
    return b.add("matmul", {"lhs": row, "rhs": b.input(5, 4, name="rhs")}, (3, 4))


def symbolic(b: RegionBuilder):
    n = symbol("n")
    return b.add("matmul", {"lhs": b.input(n, 5), "rhs": b.constant(5, 4)}, (n, 4))


def convolution(image, outputs, kernel, steps=(), **attrs):
    plain = {"strides": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    attrs = plain | attrs

    def build(b: RegionBuilder):
        operands = {"input": b.input(*image)}
        operands["weight"] = b.constant(outputs, image[1] // attrs["groups"], *kernel)
        sizes = []
        for i in range(2):
            window = (kernel[i] - 1) * attrs["dilation"][i] + 1
            padded = image[2 + i] + attrs["padding"][i] + attrs["padding"][2 + i]
            sizes.append((padded - window) // attrs["strides"][i] + 1)
        shape = (image[0], outputs, *sizes)
        kinds = [step.kind for step in steps]
        if "bias" in kinds:
            operands["bias"] = b.constant(outputs)
        if "residual" in kinds:
            operands["residual"] = b.input(*shape, name="residual")
        return b.add("conv2d", operands, shape, steps, **attrs)

    return build


CASES = {
    "plain": matmul((6, 5), (5, 4)),
    "computed": matmul((6, 5), (5, 4), constant=False),
    "one_row": matmul((1, 5), (5, 4), steps=FULL),
    "one_column": matmul((6, 5), (5, 1), constant=False, steps=FULL),
    "one_deep": matmul((6, 1), (1, 4), constant=False),
    "no_depth": matmul((6, 0), (0, 4), constant=False, steps=(Step("sigmoid"),)),
    "no_rows": matmul((0, 5), (5, 4)),
    "rows_of_batches": matmul((2, 3, 6, 5), (5, 4), steps=FULL),
    "batches": matmul((2, 3, 6, 5), (2, 3, 5, 4), constant=False, steps=FULL),
    "constant_batches": matmul((3, 6, 5), (3, 5, 4)),
    "one_of_many": matmul((3, 1, 6, 5), (2, 5, 4), constant=False),
    "left_turned": matmul((2, 6, 5), (2, 5, 4), constant=False, turn=("lhs",)),
    "right_turned": matmul((2, 6, 5), (2, 5, 4), constant=False, turn=("rhs",)),
    "both_turned": matmul((6, 5), (5, 4), constant=False, turn=("lhs", "rhs")),
    "repeated_rows": repeated_rows,
    "symbolic": symbolic,
    "wide": matmul((70, 130), (130, 90), steps=FULL),
    "pixels": convolution((2, 6, 5, 4), 8, (1, 1), FULL),
    "windows": convolution((2, 6, 7, 9), 8, (3, 2), FULL, padding=[1, 0, 2, 1], strides=[2, 1]),
    "dilated": convolution((1, 6, 9, 9), 8, (3, 3), dilation=[2, 3], padding=[2, 3, 2, 3]),
    "grouped": convolution((2, 6, 5, 5), 9, (3, 3), FULL, groups=3, padding=[1] * 4),
    "strided_pixels": convolution((1, 6, 5, 5), 8, (1, 1), (Step("gelu"),), strides=[2, 2]),
    "grouped_pixels": convolution((2, 6, 5, 5), 4, (1, 1), groups=2),
    "in_parts": convolution((1, 64, 48, 48), 8, (3, 3), FULL, padding=[1] * 4),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledRegions:
    regions = []
    for name, build in CASES.items():
        b = RegionBuilder(f"r_{name}")
        regions.append(b.done(build(b)))
        last = regions[-1].nodes[-1]
        last.node = replace(last.node, library="cblas")
    return CompiledRegions(regions, tmp_path_factory.mktemp("cblas"), (LIBRARY,))


@pytest.mark.parametrize("name", CASES)
def test_numbers(compiled: CompiledRegions, name: str) -> None:
    region = compiled.regions[f"r_{name}"]
    assert f"ext_cblas_{region.nodes[-1].node.op}" in compiled.functions[region.symbol]
    draw = np.random.default_rng(8)
    shapes = [[7 if not isinstance(d, int) else d for d in v.shape] for v in region.inputs]
    inputs = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    values = dict(zip(region.inputs, inputs, strict=True))
    for node in region.nodes:
        descriptor = node.node
        operands = [values[v] if v.data is None else v.data for v in node.inputs]
        if name == "symbolic":
            lhs, rhs = descriptor.operands
            descriptor = replace(
                descriptor, operands=(replace(lhs, shape=(7, 5)), rhs), shape=(7, 4)
            )
        values[node.output] = apply_node(descriptor, operands)
    (found,) = compiled.run(region.symbol, *inputs, **({"n": 7} if name == "symbolic" else {}))
    np.testing.assert_allclose(found, values[region.outputs[0]], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["left_turned", "right_turned", "both_turned", "batches"])
def test_nothing_is_copied(compiled: CompiledRegions, name: str) -> None:
    assert compiled.functions[f"r_{name}"] == ["ext_cblas_matmul"]


def test_a_large_convolution_is_computed_in_parts() -> None:
    b = RegionBuilder()
    CASES["in_parts"](b)
    assert 48 * 48 * 9 * 64 * 4 > 4 << 20, "it fits at once: the test shows nothing"


def of(op: str, *shapes, epilogue=(), **attrs) -> Node:
    roles = {"conv2d": ("input", "weight"), "matmul": ("lhs", "rhs")}.get(op, ("input",))
    operands = tuple(
        Operand(role, shape, "float32", role == "weight")
        for role, shape in zip(roles, shapes, strict=True)
    )
    plain = {"strides": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    shape = (1, shapes[-1][0], 5, 5) if op == "conv2d" else shapes[0]
    return Node(op, operands, shape, "float32", plain | attrs, epilogue)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (of("softmax", (3, 4), axis=1), "operator softmax; need matmul or conv2d"),
        (of("conv2d", (1, 8, 5, 5), (8, 1, 3, 3), groups=8), "groups=8 of one channel; need a pro"),
        (of("matmul", (4,), (4, 4)), "ranks 1 and 2; need at least 2"),
        (of("conv2d", (1, 8, 5), (8, 8, 3)), "ranks 3 and 3; need 4 and 4"),
        (of("matmul", (4, 4), (4, 4), epilogue=(Step("square"),)), "epilogue 'square' of matmul"),
    ],
)
def test_refused(node: Node, reason: str) -> None:
    assert reason in str(LIBRARY.supports(node))


def test_a_network_and_its_report(tmp_path: Path) -> None:
    graph = GraphBuilder("block", seed=3)
    x = graph.op("Relu", graph.conv(graph.input("x", (1, 4, 9, 8)), (4, 8), 3))
    graph.output(graph.op("MaxPool", x, kernel_shape=[3, 2]), "y", (1, 8, 7, 7))
    model = graph.build()
    compiled = byoc.compile(model, tmp_path / "m.so", libraries="cblas,builtin")
    keys = ("composite", "library", "algorithm")
    nodes = [tuple(node[key] for key in keys) for node in compiled.report.to_json()["nodes"]]
    assert nodes == [
        ("ext.conv2d_bias_relu", "cblas", "im2col + sgemm"),
        ("ext.max_pool2d", "builtin", "max_pool2d"),
    ]
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 4, 9, 8), dtype=np.float32)}
    assert_agrees(byoc.load(tmp_path / "m.so").run(inputs), onnxruntime_outputs(model, inputs))


NETWORKS = {
    "small resnet50": (lambda: resnet50(size=64), {"conv2d": 53, "matmul": 1}),
    "small bert": (ZOO["bert_small"].build, {"matmul": 19}),
    "resnet50": (ZOO["resnet50"].build, {"conv2d": 53, "matmul": 1}),
    "bert": (SHORTENED["bert"], {"matmul": 13}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if " " not in n else ()) for n in NETWORKS]
)
def test_whole_networks(name: str, tmp_path: Path) -> None:
    build, expected = NETWORKS[name]
    model = build()
    report = byoc.compile(model, tmp_path / "m.so", libraries="cblas,builtin").report
    nodes = [n["composite"] for n in report.to_json()["nodes"] if n["library"] == "cblas"]
    count = {op: sum(node.startswith(f"ext.{op}") for node in nodes) for op in expected}
    assert (count, report.left, len(report.regions)) == (expected, (), 1)
    inputs = draw_inputs(model)
    loaded = byoc.load(tmp_path / "m.so")
    assert_agrees(loaded.run(inputs), onnxruntime_outputs(model, inputs))


@pytest.mark.skipif(LIBRARY.threads is None, reason="this BLAS has no function for its threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_the_pools(tmp_path: Path, threads: int) -> None:
    byoc.compile(two_products(), tmp_path / "m.so", libraries="cblas,builtin")
    script = (
        "import sys, byoc, numpy as np\n"
        "model = byoc.load(sys.argv[1], threads=int(sys.argv[2]))\n"
        "model(np.ones((5, 32), np.float32))\n"
        "print(model.function('byoc_threads_cblas')(), model.thread_mismatches())\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "m.so"), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [str(threads), "[]\n"]


# ---------------------------------------------------------------- which BLAS

NAIVE = """\
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  (void)order, (void)beta;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p)
        sum += a[ta == 111 ? i * lda + p : p * lda + i] * b[tb == 111 ? p * ldb + j : j * ldb + p];
      c[i * ldc + j] = alpha * sum;
    }
}
"""


def naive_blas(folder: Path, name: str, source: str = NAIVE) -> Path:
    """A BLAS of one function, static or shared as the name says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "naive.c").write_text(source)
    made = ["-shared"] if name.endswith(".so") else ["-c"]
    target = folder / (name if name.endswith(".so") else "naive.o")
    subprocess.run([*compiler(), "-fPIC", *made, folder / "naive.c", "-o", target], check=True)
    if name.endswith(".a"):
        subprocess.run(["ar", "rcs", folder / name, target], check=True)
    return folder / name


@pytest.fixture
def no_blas_known():
    blas.find_blas.cache_clear()
    yield
    blas.find_blas.cache_clear()


@pytest.mark.parametrize("where", ["file", "folder", "lib"])
def test_root_names_a_file_or_a_folder(where, tmp_path, monkeypatch, no_blas_known) -> None:
    folder = tmp_path / "lib" if where == "lib" else tmp_path
    path = naive_blas(folder, "libopenblas.so")
    monkeypatch.setenv("CBLAS_ROOT", str(path if where == "file" else tmp_path))
    found = blas.find_blas()
    assert (found.path, found.prefix, found.family) == (path, "", None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int x;", "has no cblas_sgemm; need one with 32-bit sizes; name a BLAS"),
        (NAIVE.replace("sgemm", "sgemm64_"), "has cblas_sgemm with 64-bit sizes only; need one"),
    ],
)
def test_root_that_is_no_blas(source, message, tmp_path, monkeypatch, no_blas_known) -> None:
    path = naive_blas(tmp_path, "libopenblas.so", source)
    monkeypatch.setenv("CBLAS_ROOT", str(path))
    with pytest.raises(LibraryError) as error:
        blas.find_blas()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_root_that_is_empty(tmp_path, monkeypatch, no_blas_known) -> None:
    monkeypatch.setenv("CBLAS_ROOT", str(tmp_path))
    with pytest.raises(LibraryError, match="there is no such library or folder with one"):
        blas.find_blas()


def test_without_a_blas_the_error_says_what_to_install(monkeypatch, no_blas_known) -> None:
    monkeypatch.setattr(blas, "_candidates", lambda: iter(()))
    with pytest.raises(LibraryError, match=r"no BLAS was found; pip install 'tvm-byoc-ext\[cblas"):
        blas.find_blas()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "count"), [("mkl", "int"), ("blis", "int64_t")], ids=["MKL", "BLIS"]
)
def test_other_families(family, count, tmp_path, monkeypatch, no_blas_known) -> None:
    """Their functions for threads, on a BLAS that has these names."""
    names = {
        "mkl": ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
        "blis": ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
    }[family]
    threads = (
        f"\n#include <stdint.h>\nstatic {count} now = 99;\n"
        f"void {names[0]}({count} n) {{ now = n; }}\n{count} {names[1]}(void) {{ return now; }}\n"
    )
    naive_blas(tmp_path, "libopenblas.so", NAIVE + threads)
    done = _compile_and_run(tmp_path, CBLAS_ROOT=str(tmp_path))
    assert done.splitlines()[0] == "2 []"


@pytest.mark.slow
def test_a_static_blas_becomes_part_of_the_model(tmp_path: Path) -> None:
    path = naive_blas(tmp_path, "libopenblas.a")
    done = _compile_and_run(tmp_path, CBLAS_ROOT=str(path))
    assert "cblas" in done and "opens" not in done, done


def _compile_and_run(folder: Path, **environment: str) -> str:
    """Agreement with builtin; threads and mismatches if it has any, then how it is linked."""
    script = (
        "import sys, byoc, numpy as np\n"
        "from tests.libraries.sample import two_products\n"
        "for name in ('cblas', 'builtin'):\n"
        "    path = f'{sys.argv[1]}/{name}.so'\n"
        "    byoc.compile(two_products(), path, libraries=[name, 'builtin'])\n"
        "models = [byoc.load(f'{sys.argv[1]}/{n}.so', threads=2) for n in ('cblas', 'builtin')]\n"
        "x = np.random.default_rng(1).standard_normal((5, 32)).astype(np.float32)\n"
        "np.testing.assert_allclose(models[0](x), models[1](x), rtol=1e-4, atol=1e-5)\n"
        "try: print(models[0].function('byoc_threads_cblas')(), models[0].thread_mismatches())\n"
        "except byoc.ByocError: print('its own threads')\n"
        "print(models[0].libraries)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        env=os.environ | environment | {"PYTHONPATH": str(Path(byoc.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
