"""Further forms of prototypes: C types, ranks, attributes, operators, names, annotations."""

from __future__ import annotations

from pathlib import Path

import pytest

from byoc.extern.cases import draw_cases
from byoc.extern.generate import Generated, generate
from byoc.extern.header import read_header
from byoc.extern.roles import in_text
from codegen_cc.dtypes import KERNEL_NUMBERS
from tests.extern.folders import make, run_generated_tests, write

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")

HEADER = """\
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#define API __attribute__((visibility("default"))) extern
typedef float real_t;
typedef const real_t* tensor_t;
enum layout { ROW_MAJOR = 101 };
#ifdef __cplusplus
extern "C" {
#endif

// byoc: x=input[*outer,r,*inner] y=output[*outer,r,*inner] outer,r,inner=size axis=axis
// byoc: op=softmax
API int softmax(tensor_t x, real_t* restrict y, int64_t outer, unsigned r, long inner);

/* The operands are not in the operator's order.
 * byoc: b=rhs[*batch,k,n] a=lhs[*batch,m,k] c=output[*batch,m,n] batch,m,n,k=size op=matmul */
void batched(const float b[], const float* a, float c[], int batch, int m, int n, int k);

// byoc: x=input[*s] y=output[*s] s=size op=relax.nn.leakyrelu
// byoc: alpha=attr(0.1) reference="np.where(x > 0, x, alpha * x)"
void leaky(const float* x, float* y, int64_t s, double alpha);

/* A product as BLAS has it.
 * byoc: order=101 ta,tb=111 m=rows n=columns k=depth alpha=1 beta=0
 *       a=input[rows,depth] lda=depth b=weight[depth,columns] ldb=columns
 *       c=output[rows,columns] ldc=columns op=matmul */
void gemm(enum layout order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
          int lda, const float* b, int ldb, float beta, float* c, int ldc);

/* Names that Python has already, two results.
 * byoc: in=input[n,m] is=input[m] lambda=output[n,m] from=output[n] n,m=size
 *       scale=attr(0.5) shift=attr(3,-2) flip=attr(False,True)
 *       reference="(np.where(flip, -1, 1) * (in_ * scale + is_ + shift), in_.sum(axis=1))" */
int several(const double* in, const double* is, double* lambda, double* from, int n, int m,
            double scale, int8_t shift, bool flip);

/* byoc: x=input[n,c,h,w] weight=weight[o,c//groups,kh,kw] y=output[n,o,oh,ow]
 *       n,c,h,w,o,kh,kw=size pad=attr.padding stride=attr.strides groups=attr.groups
 *       oh=(h+2*pad-kh)//stride+1 ow=(w+2*pad-kw)//stride+1 op=conv2d */
int grouped(const float* x, const float* weight, float* y, int n, int c, int h, int w, int o,
            int kh, int kw, int oh, int ow, int pad, int stride, int groups);

/* byoc: x=input[n] y=output[m,2] m=n//step shape=shape(y) rank=rank(x) step=attr.steps[0]
 *       count=m*2
 *       reference="np.stack([x[::steps[0]][:x.shape[0]//steps[0]],
 *                            0*x[:x.shape[0]//steps[0]] + steps[0]], 1)" */
int8_t thinned(const int32_t* x, int32_t* y, const int64_t* shape, int rank, int m, int count,
               int step);
#ifdef __cplusplus
}
#endif
"""
CODE = """\
int softmax(tensor_t x, real_t* restrict y, int64_t outer, unsigned r, long inner) {
  for (int64_t i = 0; i < outer * inner; ++i) {
    const int64_t at = i / inner * r * inner + i % inner;
    float most = -INFINITY, sum = 0;
    for (unsigned j = 0; j < r; ++j) most = fmaxf(most, x[at + j * inner]);
    for (unsigned j = 0; j < r; ++j) sum += y[at + j * inner] = expf(x[at + j * inner] - most);
    for (unsigned j = 0; j < r; ++j) y[at + j * inner] /= sum;
  }
  return 0;
}
void batched(const float b[], const float* a, float c[], int batch, int m, int n, int k) {
  for (int i = 0; i < batch * m * n; ++i) {
    float sum = 0;
    for (int p = 0; p < k; ++p) sum += a[i / n * k + p] * b[(i / n / m * k + p) * n + i % n];
    c[i] = sum;
  }
}
void leaky(const float* x, float* y, int64_t s, double alpha) {
  for (int64_t i = 0; i < s; ++i) y[i] = x[i] > 0 ? x[i] : (float)alpha * x[i];
}
void gemm(enum layout order, int ta, int tb, int m, int n, int k, float alpha, const float* a,
          int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  if (order != ROW_MAJOR || ta != 111 || tb != 111 || alpha != 1 || beta != 0) return;
  for (int i = 0; i < m * n; ++i) {
    float sum = 0;
    for (int p = 0; p < k; ++p) sum += a[i / n * lda + p] * b[p * ldb + i % n];
    c[i / n * ldc + i % n] = sum;
  }
}
int several(const double* in, const double* is, double* lambda, double* from, int n, int m,
            double scale, int8_t shift, bool flip) {
  for (int i = 0; i < n; ++i) from[i] = 0;
  for (int i = 0; i < n * m; ++i) {
    from[i / m] += in[i];
    lambda[i] = (flip ? -1 : 1) * (in[i] * scale + is[i % m] + shift);
  }
  return 0;
}
int grouped(const float* x, const float* weight, float* y, int n, int c, int h, int w, int o,
            int kh, int kw, int oh, int ow, int pad, int stride, int groups) {
  const int taken = c / groups, given = o / groups;
  for (int i = 0; i < n * o * oh * ow; ++i) {
    const int image = i / ow / oh / o, f = i / ow / oh % o, row = i / ow % oh, column = i % ow;
    float sum = 0;
    for (int t = 0; t < taken * kh * kw; ++t) {
      const int d = f / given * taken + t / kw / kh;
      const int r = row * stride + t / kw % kh - pad, q = column * stride + t % kw - pad;
      if (r < 0 || r >= h || q < 0 || q >= w) continue;
      sum += x[((image * c + d) * h + r) * w + q] * weight[f * taken * kh * kw + t];
    }
    y[i] = sum;
  }
  return 0;
}
int8_t thinned(const int32_t* x, int32_t* y, const int64_t* shape, int rank, int m, int count,
               int step) {
  if (shape[0] != m || shape[1] * m != count || rank != 1) return 9;
  for (int i = 0; i < count; ++i) y[i] = i % 2 ? step : x[i / 2 * step];
  return 0;
}
"""
FUNCTIONS = ("softmax", "batched", "leaky", "gemm", "several", "grouped", "thinned")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prototypes")
    header, code = write(path, HEADER, CODE)
    generate(header, path / "out", links=[code])
    return path / "out"


@pytest.mark.slow
def test_generated_tests_pass(folder: Path) -> None:
    make(folder)
    last = run_generated_tests([folder])
    with_row = ("softmax", "batched", "gemm", "grouped")
    with_operator = (*with_row, "leaky")
    count = sum(1 + 4 * (3 + (name in with_operator) + (name in with_row)) for name in FUNCTIONS)
    assert last.startswith(f"{count} passed"), last


def line_with(path: Path, words: str) -> str:
    return next(line.strip() for line in path.read_text().splitlines() if words in line)


def test_names_that_python_has_are_spelled_with_an_underscore(folder: Path) -> None:
    assert line_with(folder / "several_te.py", "def infer").startswith("def infer(in_: Shape,")
    assert '"in", "float64", kDLFloat' in (folder / "several_packed.c").read_text()


def test_defaults(folder: Path) -> None:
    text = (folder / "several_te.py").read_text()
    for parameter in ("scale: float = 0.5", "shift: int = 3", "flip: bool = False"):
        assert parameter in text
    assert (
        "padding: int = 0, strides: int = 1, groups: int = 1"
        in (folder / "grouped_te.py").read_text()
    )


def test_library_rows(folder: Path) -> None:
    row = line_with(folder / "softmax_library.py", "arguments=")
    assert row == 'arguments=("input", "output", "outer", "reduce", "inner"),'
    row = line_with(folder / "batched_library.py", "arguments=")
    assert row == 'arguments=("rhs", "lhs", "output", "batch", "m", "n", "k"),'
    row = line_with(folder / "gemm_library.py", "arguments=")
    words = '"m", "n", "k", 1, "lhs", "k", "rhs", "n", 0, "output", "n"'
    assert row == f"arguments=(101, 111, 111, {words}),"
    assert (
        'attributes={"padding": ..., "strides": ...}' in (folder / "grouped_library.py").read_text()
    )


@pytest.mark.parametrize(
    ("roles", "prototype", "reason"),
    [
        (
            "a=input[n,n] b=weight[n,n] c=output[n,n] n=size",
            "void f(const float* a, const float* b, float* c, int n);",
            "a[n, n] demands that m equals k, which no table can say",
        ),
        (
            "a=input[m,k] b=weight[k,n] c=output[m,n] m,n,k=size area=m*n",
            "void f(const float* a, const float* b, float* c, int m, int n, int k, int area);",
            "the library table has no word for area=m * n",
        ),
        (
            "a=input[m,k] b=weight[k,n] c=output[m,n] s=shape(a)",
            "void f(const float* a, const float* b, float* c, const int64_t* s);",
            "the library table has no word for shape(a)",
        ),
        (
            "a=input[m,k] b=weight[k,n] c=output[m,n] m,n,k=size",
            "void f(const double* a, const double* b, double* c, int m, int n, int k);",
            f"a is float64; regions have {', '.join(KERNEL_NUMBERS)}",
        ),
        (
            "a=input[g,m,k] b=weight[k,n] c=output[g,m,n] g,m,n,k=size",
            "void f(const float* a, const float* b, float* c, int g, int m, int n, int k);",
            "a[g, m, k]: the library table has [m, k] or [*batch, m, k]",
        ),
    ],
)
def test_no_library_row(tmp_path: Path, roles: str, prototype: str, reason: str) -> None:
    text = f"#include <stdint.h>\n// byoc: {roles} op=matmul\n{prototype}\n"
    path, _ = write(tmp_path, text)
    (generated,) = generate(path, tmp_path / "out")
    assert generated.no_row == reason


def generated_from(folder: Path, text: str, **options: object) -> Generated:
    path, _ = write(folder, text)
    (generated,) = generate(path, folder / "out", **options)
    return generated


PLAIN = "void f(const float* a, float* y, int n);\nvoid g(const float* a, float* y, int n);\n"
ROLES = 'a=input[n] y=output[n] n=size reference="a"'


@pytest.mark.parametrize(
    "roles",
    [f"f: {ROLES}", f"  f:\n    {ROLES}  # a comment\n"],
)
def test_roles_as_text_or_in_a_file(tmp_path: Path, roles: str) -> None:
    from_text = generated_from(tmp_path / "text", PLAIN, roles=roles)
    (tmp_path / "f.roles").write_text(roles)
    from_file = generated_from(tmp_path / "file", PLAIN, roles=str(tmp_path / "f.roles"))
    assert from_text == from_file
    assert from_text.signature.title == "y[n] = f(a[n])"


def test_one_function_needs_no_name_in_its_roles(tmp_path: Path) -> None:
    assert generated_from(tmp_path, PLAIN, roles=ROLES, functions=["g"]).signature.name == "g"


def test_given_roles_win_over_a_comment(tmp_path: Path) -> None:
    text = f"// byoc: {ROLES}\n{PLAIN}"
    roles = f"f: {ROLES.replace('[n]', '[*n]')}"
    assert generated_from(tmp_path, text, roles=roles).signature.title == "y[*n] = f(a[*n])"


def test_lines_of_roles() -> None:
    found = in_text("x", "# first\nf: a=size\n   b=size\n\ng:\n a=input[m,\n  k] op=matmul\n")
    assert found["f"].lines == {"a": 2, "b": 3}
    assert (found["g"].line, found["g"].lines, found["g"].op) == (5, {"a": 6}, "matmul")


def test_types_behind_typedefs_macros_and_includes(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "types.h").write_text("typedef short elements_t;\nvoid other(void);\n")
    text = (
        "#include <types.h>\n#define OUT(type, name) type* __restrict__ name\n"
        "typedef elements_t const* view;\nextern __attribute__((cold)) int f(view a,\n"
        "    OUT(unsigned long long, y), size_t n, long double* __restrict);\n"
    )
    path, _ = write(
        tmp_path, "#include <stddef.h>\n" + text.replace(", long double* __restrict", "")
    )
    header = read_header(path, [tmp_path / "include"])
    assert list(header.declarations) == ["f"]
    prototype = header.prototype("f")
    found = [(p.name, p.scalar.dtype, p.pointer, p.const) for p in prototype.parameters]
    assert found == [
        ("a", "int16", True, True),
        ("y", "uint64", True, False),
        ("n", "uint64", False, False),
    ]
    assert (prototype.line, prototype.returns) == (5, "status")


def test_a_header_of_a_large_library(tmp_path: Path) -> None:
    blas = pytest.importorskip("scipy_openblas32", reason="the extra 'cblas' is not installed")
    path = Path(blas.get_include_dir(), "cblas.h")
    roles = (
        "scipy_cblas_sgemm: Order=101 TransA,TransB=111 M=m N=n K=k alpha=1 beta=0"
        " A=input[m,k] lda=k B=weight[k,n] ldb=n C=output[m,n] ldc=n op=matmul"
    )
    (generated,) = generate(path, tmp_path / "out", roles=roles)
    assert generated.no_row is None
    assert len(read_header(path).declarations) > 100


def test_cases_are_small_distinct_and_the_same_every_time(tmp_path: Path) -> None:
    path, _ = write(tmp_path, HEADER, CODE)
    generated = generate(path, tmp_path / "out", functions=["grouped", "softmax"])
    for item in generated:
        cases = draw_cases(item.signature)
        assert cases == draw_cases(item.signature)
        assert len(cases) == 4
        for case in cases:
            assert all(1 <= n <= 20 for shape in case.shapes.values() for n in shape)
    (grouped, _) = generated
    for case in draw_cases(grouped.signature):
        channels, groups = case.shapes["x"][1], case.attributes["groups"]
        assert case.shapes["weight"][1] * groups == channels
