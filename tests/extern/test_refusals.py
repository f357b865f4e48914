"""Prototypes and annotations that cannot be served: one line each, with place and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from byoc.errors import ExternError
from byoc.extern.generate import generate
from tests.extern.folders import write

pytest.importorskip("pycparser", reason="the extra 'extern' is not installed")

#: Ends most annotations below: a tested function needs something to be compared with.
SUM = 'reference="a + a"'


def header(roles: str, prototype: str) -> str:
    """An annotated prototype whose declaration is on line 4, its annotation on line 3."""
    return f"#include <stdint.h>\n#include <stddef.h>\n// byoc: {roles}\n{prototype}\n"


def refusal(folder: Path, text: str, **options: object) -> str:
    """The error for a header, after which nothing has been written."""
    path, _ = write(folder, text)
    with pytest.raises(ExternError) as caught:
        generate(path, folder / "out", **options)
    assert sorted(item.name for item in folder.iterdir()) == ["k.c", "k.h"]
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("roles", "prototype", "message"),
    [
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const float* a, float* y, int n, ...);",
            "k.h:4: f: is variadic (...); declare a function with fixed arguments",
        ),
        (
            f"a=input[n] y=output[n] n=size done=attr {SUM}",
            "void f(const float* a, float* y, int n, void (*done)(int));",
            "k.h:4: f: done is 'void (*done)(int)', a callback; TVM cannot pass one, so hide it in"
            " a C function",
        ),
        (
            f"a=input[n] y=output[n] s=attr {SUM}",
            "struct shape { int n; };\nvoid f(const float* a, float* y, struct shape s);",
            "k.h:5: f: s is 'struct shape s', a struct; pass its fields one by one",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const float** a, float* y, int n);",
            "k.h:4: f: a is 'const float **a', a pointer to pointers; a tensor needs a plain"
            " pointer",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const long double* a, float* y, int n);",
            "k.h:4: f: a is 'const long double *a', a pointer to long double; known are float,"
            " double, bool, int, size_t, intN_t and uintN_t",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const long* a, float* y, int n);",
            "k.h:3: f: const long *a: its element type has another width or sign elsewhere; use"
            " int64_t",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "float f(const float* a, float* y, int n);",
            "k.h:4: f: returns float; need void, or an integer status that is 0 on success",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "float* f(const float* a, float* y, int n);",
            "k.h:4: f: returns float *; need void, or an integer status that is 0 on success",
        ),
        (
            f"a=input[n] n=size {SUM}",
            "void f(const float* a, int n);",
            "k.h:4: f: no output: no argument is output[...]; a kernel fills its results",
        ),
        (
            f"y=output[n] n=size {SUM}",
            "void f(float* y, int n);",
            "k.h:4: f: no input: no argument is input[...], and sizes come from inputs",
        ),
        (
            f"a=input[n] y=output[n] {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: argument n (int n) has no role; add n=... to the annotation",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const float* a, float*, int n);",
            "k.h:4: f: argument 2 has no name; name it in the prototype",
        ),
        (
            f"a=input[n] y=output[m] n,m=size {SUM}",
            "void f(const float* a, float* y, int n, int m);",
            "k.h:3: f: nothing determines the size m: no input's shape has it alone; say how it"
            " follows from others, as in m=(h-kh)//stride+1",
        ),
        (
            f"a=input[2*n] y=output[n] n=size {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:3: f: nothing determines the size n: no input's shape has it alone; say how it"
            " follows from others, as in n=(h-kh)//stride+1",
        ),
        (
            f"a=input[n] y=output[n] n=size b=input[n] {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:3: f: the annotation names b, which the prototype does not have; it has a, y, n",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(float* a, float* y, int n);",
            "k.h:3: f: float *a may be written, but a is an input, which TVM may share; declare it"
            " const, or make it an output",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const float* a, const float* y, int n);",
            "k.h:3: f: const float *y is const, but y is an output; drop const",
        ),
        (
            f"a=input[n] y=output[n] n=size {SUM}",
            "void f(const float* a, float* y, float n);",
            "k.h:3: f: float n cannot take a size; need an integer",
        ),
        (
            f"a=input[n] y=output[n] n=input[n] {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:3: f: int n is no pointer, but n is input",
        ),
        (
            f"a=input[n] y=output[n] n=attr {SUM}",
            "void f(const float* a, float* y, const float* n);",
            "k.h:3: f: const float *n is a pointer, but its role is that of a number",
        ),
        (
            f"a=input[*s] y=output[*s] s=shape(a) {SUM}",
            "void f(const float* a, float* y, const int* s);",
            "k.h:3: f: const int *s cannot take a shape; need const int64_t*",
        ),
        (
            f"a=input[*o,n,*i] y=output[*o,n,*i] {SUM}",
            "void f(const float* a, float* y);",
            "k.h:4: f: a shape has two runs of axes, but no argument has the role axis",
        ),
        (
            f"a=input[n] y=output[n//n] n=size {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: division by n; divide by a number or an attribute",
        ),
        (
            f"a=input[n] y=output[n*s] s=attr {SUM}",
            "void f(const float* a, float* y, float s);",
            "k.h:3: f: s is no whole number, but n * s needs one",
        ),
        (
            f"a=input[n] y=output[n] s=attr.scale t=attr.scale {SUM}",
            "void f(const float* a, float* y, float s, int t);",
            "k.h:3: f: s and t are one attribute of two C types",
        ),
        (
            f"a=input[n] y=output[n] n=size m=attr.n {SUM}",
            "void f(const float* a, float* y, int n, int m);",
            "k.h:3: f: attribute n has the name of a size or tensor; rename that",
        ),
        (
            f"a=input[a] y=output[a] {SUM}",
            "void f(const float* a, float* y);",
            "k.h:3: f: a is a tensor; call a size something else",
        ),
        (
            "a=input[n] y=output[n] n=size",
            "void f(const float* a, float* y, int n);",
            'k.h:4: f: no reference to test against; add reference="..." with a NumPy expression,'
            " or op= with one of matmul, conv2d, concat, softmax",
        ),
        (
            "a=input[n] y=output[n] n=size reference=\"__import__('os').getcwd()\"",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: reference: .getcwd is not among the methods for references",
        ),
        (
            "a=input[n] y=output[n] n=size reference=\"np.fromfile('x')\"",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: reference: np.fromfile is not among the functions for references",
        ),
        (
            "a=input[m,k] b=input[k,n] c=output[m,n] m,n,k=size alpha=attr op=matmul",
            "void f(const float* a, const float* b, float* c, int m, int n, int k, float alpha);",
            "k.h:3: f: op matmul has no attribute alpha; it has no attributes",
        ),
        (
            "a=input[n] y=output[n] n=size op=matmul",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: op matmul has the operands lhs, rhs and one result; the annotation has 1"
            " inputs and 1 outputs",
        ),
        (
            "a=input[n] y=output[n] n=size op=gemm",
            "void f(const float* a, float* y, int n);",
            "k.h:4: f: op=gemm is not known; known are matmul, conv2d, concat, softmax, and any"
            " Relax operator by its full name, such as relax.nn.relu",
        ),
        (
            f"a=input[n] y=output[n] n=size op=relax.nn.nothing {SUM}",
            "void f(const float* a, float* y, int n);",
            "k.h:3: f: op=relax.nn.nothing is no operator of Relax",
        ),
        (
            "x=input.NHWC[n,h,w,c] w=weight[o,c,kh,kw] y=output[n,o,oh,ow] n=size"
            " s=attr.strides[0] oh=h-kh+1 ow=w-kw+1 op=conv2d",
            "void f(const float* x, const float* w, float* y, int n, int s);",
            "k.h:4: f: attribute strides lacks attr.strides[1]; name each entry (what C does not"
            " take may have a name of its own)",
        ),
        (
            "x=input.NHW[n,h,w] w=weight[o,c,kh,kw] y=output[n,o,oh,ow] op=conv2d",
            "void f(const float* x, const float* w, float* y);",
            "k.h:3: f: layout NHW of x; need an order of NCHW",
        ),
        (
            "a=input[n] y=output[n] n=0//0 op=relax.exp reference=a",
            "void f(const float* a, float* y, int n);",
            'k.h:3: reference needs quotes, as in reference="a @ b"',
        ),
    ],
)
def test_refused(tmp_path: Path, roles: str, prototype: str, message: str) -> None:
    assert refusal(tmp_path, header(roles, prototype)) == message


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ("a=input[n", "k.h:3: a: cannot read 'input[n'"),
        ("a=input", "k.h:3: a: input has no shape; write input[...] with its sizes"),
        ("a=input[n/2]", "k.h:3: a: operator in 'n / 2'; write //"),
        ("a=input[n**2]", "k.h:3: a: operator in 'n ** 2'; known are + - * //"),
        ("a=input[f(n)]", "k.h:3: a: 'f(n)' is no name, number or + - * //"),
        ("a=input[1.5]", "k.h:3: a: 1.5 in an expression; need whole numbers"),
        ("a=input[n=3]", "k.h:3: a: cannot read the shape [n=3]"),
        ("a=input[*(n+1)]", "k.h:3: a: *n + 1 in a shape; a run of axes needs a name"),
        ("a=input[*p,*q,*r]", "k.h:3: a: shape [*p,*q,*r] has more than two runs of axes"),
        ("a=attr(x)", "k.h:3: a: attr(x) needs numbers, True or False"),
        ("a", "k.h:3: cannot read 'a'; need NAME=ROLE"),
        ("a=size a=attr", "k.h:3: a has two roles; give it one"),
        ("op=matmul op=concat", "k.h:3: op is given twice; give it once"),
        ("op=a;b", "k.h:3: cannot read op=a;b; need a name such as matmul"),
    ],
)
def test_unreadable_annotation(tmp_path: Path, roles: str, message: str) -> None:
    assert refusal(tmp_path, header(roles, "void f(const float* a);")) == message


def test_a_line_of_its_own_in_a_long_annotation(tmp_path: Path) -> None:
    text = "/* What it does.\n *\n * byoc: a=input[n]\n *       y=output[n] n=how?\n */\n"
    assert refusal(tmp_path, f"{text}void f(const float* a, float* y, int n);") == (
        "k.h:4: n: cannot read 'how?'"
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "void f(void);",
            {},
            "k.h: no function is annotated; write 'byoc: a=input[m,k] ...' into a comment before a"
            " prototype, or give --roles",
        ),
        (
            "void f(void);",
            {"functions": ["f"]},
            "k.h:1: f has no annotation; write 'byoc: ...' into a comment before it, or give"
            " --roles",
        ),
        ("void f(void);", {"functions": ["g"]}, "k.h: k.h declares no function g; it has f"),
        ("void f(void);\n// byoc: a=size\n", {}, "k.h:2: no prototype follows this annotation"),
        (
            "void f(void);",
            {"roles": "a=size"},
            "--roles:1: cannot read 'a=size'; roles begin with the name of a function, as in"
            " my_gemm: a=input[m,k]",
        ),
        (
            "void f(void);",
            {"roles": "g: a=size"},
            "--roles:1: k.h declares no function g; it has f",
        ),
        (
            "void f(void);",
            {"roles": "nowhere.txt"},
            "--roles nowhere.txt: no such file; give one, or NAME: ARGUMENT=ROLE ...",
        ),
        (
            "int f(;\n",
            {},
            "k.h:1: C that pycparser cannot read (before: ;); give a header with the"
            " prototype only",
        ),
        (
            "void f(void);",
            {"links": [Path("kernel.so")]},
            "cannot link kernel.so; need a file .c, .o, .a",
        ),
        ("void f(void);", {"links": [Path("k2.c")]}, "cannot link k2.c: no such file"),
    ],
)
def test_refused_as_a_whole(
    tmp_path: Path, text: str, options: dict[str, object], message: str
) -> None:
    assert refusal(tmp_path, text, **options) == message


def test_a_missing_include(tmp_path: Path) -> None:
    message = refusal(tmp_path, "\n#include <nowhere.h>\n")
    assert message.startswith("k.h:2: ")
    assert "nowhere.h" in message
    assert message.endswith("; --include-dir names folders")


def test_an_error_of_the_header_itself(tmp_path: Path) -> None:
    message = refusal(tmp_path, "#error not for you\n")
    assert message.startswith("k.h:1: ")
    assert message.endswith("not for you")


def test_no_sizes_fit(tmp_path: Path) -> None:
    roles = f"a=input[n] y=output[n-100] n=size {SUM}"
    assert refusal(tmp_path, header(roles, "void f(const float* a, float* y, int n);")) == (
        "k.h:4: f: no small sizes fit all shapes of the annotation; check its expressions, or give"
        " attributes values, as in attr(1,2)"
    )


def test_a_name_that_c_text_could_not_hold(tmp_path: Path) -> None:
    (tmp_path / 'k"x.h').write_text("void f(void);")
    with pytest.raises(ExternError, match="need a name of letters, digits"):
        generate(tmp_path / 'k"x.h', tmp_path / "out")


def test_an_error_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    good = header(
        f"a=input[n] y=output[n] n=size {SUM}", "void f(const float* a, float* y, int n);"
    )
    path, code = write(tmp_path, good)
    generate(path, tmp_path / "out", links=[code])
    before = {item.name: item.read_text() for item in (tmp_path / "out").iterdir()}
    path.write_text(good.replace("const ", ""))
    with pytest.raises(ExternError, match="may be written"):
        generate(path, tmp_path / "out", links=[code])
    assert {item.name: item.read_text() for item in (tmp_path / "out").iterdir()} == before
