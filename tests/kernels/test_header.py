"""What Python reads in the C header of the kernels, against a C compiler; who else must agree."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import abi
from benchmarks.c_header import CType, Prototype, kernel_header, read
from codegen_cc.activations import ACTIVATIONS
from codegen_cc.errors import CodegenError, LibraryError
from codegen_cc.instruction_sets import table
from codegen_cc.libraries import registry
from codegen_cc.link import object_file
from codegen_cc.link.toolchain import compiler
from codegen_cc.link.weights import WeightBlob
from codegen_cc.operator import known_operators, operator_of
from codegen_cc.operators import packing
from codegen_cc.operators.sample import Sample
from codegen_cc.plan import memory, tensors
from codegen_cc.plan.builder import PlanBuilder
from codegen_cc.plan.call import Struct
from codegen_cc.region.graph import Region, RegionNode, Value
from codegen_cc.runtime_files import runtime_file

#: What a table may be told beside the fields of the block: sides that the block leaves out, as
#: they follow from the others.
BESIDE_THE_BLOCK = {
    "ext_conv2d_params": {"pad_bottom", "pad_right"},
    "ext_conv3d_params": {"pad_back", "pad_bottom", "pad_right"},
}


def _c(ctype: CType) -> str:
    return "const " * ctype.const + ctype.name + "*" * ctype.pointers


def _declared(name: str, function: Prototype) -> str:
    parameters = ", ".join(_c(ctype) for ctype in function.parameters.values()) or "void"
    return f"{_c(function.result)} {name}({parameters});"


def _prints() -> Iterator[str]:
    """C statements, each of which prints a name and its numbers."""
    header = kernel_header()
    for constant in header.constants:
        yield f'printf("{constant} %d\\n", {constant});'
    for names in header.enumerations.values():
        yield from (f'printf("{name} %d\\n", {name});' for name in names)
    for struct, fields in header.structures.items():
        yield f'printf("{struct} %zu\\n", sizeof({struct}));'
        for field in fields:
            sizes = f"offsetof({struct}, {field}), sizeof((({struct}*)0)->{field})"
            yield f'printf("{struct}.{field} %zu %zu\\n", {sizes});'


def _expected() -> Iterator[tuple[str, ...]]:
    """The same, as Python has it."""
    header = kernel_header()
    yield from ((name, str(value)) for name, value in header.constants.items())
    for names in header.enumerations.values():
        yield from ((name, str(value)) for name, value in names.items())
    for struct, fields in header.structures.items():
        found = abi.structure(struct)
        yield struct, str(ctypes.sizeof(found))
        for field in fields:
            place = getattr(found, field)
            yield f"{struct}.{field}", str(place.offset), str(place.size)


def test_a_compiler_reads_the_same(tmp_path: Path) -> None:
    """A second declaration of a function, and an initialiser of a field's type, must be equal."""
    header = kernel_header()
    lines = ['#include "ext_kernels.h"', "#include <stdio.h>"]
    lines += [_declared(name, function) for name, function in header.functions.items()]
    for struct, fields in header.structures.items():
        for field, ctype in fields.items():
            address = "" if ctype.length is not None else "&"
            lines.append(f"{_c(ctype)}* {struct}_{field}({struct}* p);")
            lines.append(
                f"{_c(ctype)}* {struct}_{field}({struct}* p) {{ return {address}p->{field}; }}"
            )
    lines += ["int main(void) {", *_prints(), "}", ""]
    source, program = tmp_path / "header.c", tmp_path / "header"
    source.write_text("\n".join(lines))
    folder = runtime_file("include/ext_kernels.h").parent
    command = [*compiler(), "-std=c11", "-Werror", f"-I{folder}", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [tuple(line.split()) for line in printed.splitlines()] == list(_expected())


def test_every_function_of_the_header_is_called_with_its_types() -> None:
    declared = set(kernel_header().functions)
    lib = abi.load()
    peaks = {f"ext_bench_{precision}_peak" for precision in ("fma", "bf16", "int8")}
    benches = {*peaks, "ext_bench_read"}
    assert declared | benches == set(abi.signatures())
    assert lib.ext_conv2d.argtypes[0] == ctypes.POINTER(abi.Conv2dParams)
    assert lib.ext_isa_name.restype is ctypes.c_char_p
    assert lib.ext_workspace_free.restype is None


def test_lists_of_the_product_are_those_of_the_header() -> None:
    assert ("identity", *ACTIVATIONS) == abi.UNARY_KIND
    assert tuple(row.name for row in table()) == tuple(
        name.removeprefix("EXT_ISA_") for name in kernel_header().enumerations["ext_isa"]
    )
    assert packing.PANEL == abi.PANEL
    assert tensors.MAX_AXES == abi.MAX_DIMS
    assert memory.ALIGNMENT == object_file.ALIGNMENT == abi.ALIGN


# ---------------------------------------------------------------- what is no C of ours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("typedef union { int a; } u;", "x.h:2: found 'union'; need a type of the header"),
        ("int f(unsigned n);", "x.h:2: found 'unsigned'; need a type of the header"),
        ("int f(int64_t n) { return 0; }", "x.h:2: found '{'; need ';'"),
        ("int f(int64_t);", r"x.h:2: found '\)'; need a name"),
        ("int f(int n[2]);", "x.h:2: found 'array n'; need a pointer as parameter"),
        ("typedef struct { int a : 3; } s;", "x.h:2: found ':'; need ';'"),
        ("typedef struct { int a[N]; } s;", "x.h:2: found 'N'; need an integer or a constant"),
        ("typedef struct { int a[2][2]; } s;", r"x.h:2: found '\['; need ';'"),
        ("typedef enum { A = -1 } e;", "x.h:2: found '-'; need an integer or a constant"),
        ("#define A (1 << 2)", r"x.h:2: found '#define A \(1 << 2\)'; need an integer"),
        ("#if 1\n#endif", "x.h:2: found '#if 1'; need #include, #define or #undef"),
        ("#ifdef NDEBUG\n#endif", "x.h:2: found '#ifdef NDEBUG'; need an include guard"),
        ("#ifndef X_H_", "x.h: found '#ifndef X_H_ without its end'; need #endif"),
        ("#define F(x) x\ntypedef enum { F(A, B) } e;", "x.h:3: found 'F of 2 arguments'; need 1"),
        ("#define F(x) x\ntypedef enum { F(A,", "x.h:3: .* need the whole call of a macro on"),
        ("typedef enum { A", "x.h:2: found ''; need ','"),
    ],
)
def test_other_c_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.h"
    path.write_text(f"/* one line */\n{text}")
    with pytest.raises(CodegenError, match=f"^{said}") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_header_reads_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("#ifndef A_H_\n#define A_H_\n#define FOUR 4\n#endif\n")
    (tmp_path / "b.h").write_text(
        '#include <stdint.h>\n#include "a.h"\n#include "a.h"\n'
        "#define EACH(ROW, ...) ROW(one, __VA_ARGS__) \\\n  ROW(two, __VA_ARGS__)\n"
        "#define NAMED(name, end) NAME_##name##_##end,\n"
        "typedef enum { EACH(NAMED, x) NAME_LAST = 7 } kind;\n#undef NAMED\n"
        "#ifdef __cplusplus\nclass { #endif\n#endif\n"
        "typedef struct { kind k, *at; const float x[FOUR]; } // a comment\n block;\n"
        "typedef int (*body)(void* context);\nvoid run(body f, const block* p);\nint now(void);\n"
    )
    header = read(tmp_path / "b.h")
    assert header.constants == {"FOUR": 4}
    assert header.enumerations == {"kind": {"NAME_one_x": 0, "NAME_two_x": 1, "NAME_LAST": 7}}
    fields = {"k": CType("kind"), "at": CType("kind", 1), "x": CType("float", 0, 4, const=True)}
    assert header.structures == {"block": fields}
    assert list(header.callbacks) == ["body"]
    parameters = {"f": CType("body"), "p": CType("block", 1, const=True)}
    assert header.functions["run"] == Prototype(CType("void"), parameters)
    assert header.functions["now"] == Prototype(CType("int"), {})


# ---------------------------------------------------------------- parameter blocks


def _lowered(sample: Sample, library: str) -> PlanBuilder | None:
    """The builder after a library has lowered a sample; None where it refuses it."""
    found = registry.library(library)
    if found.supports(sample.node) is not None:
        return None
    values = [
        Value(o.role, o.shape, o.dtype, np.ones(o.shape, o.dtype) if o.constant else None)
        for o in sample.node.operands
    ]
    results = [Value("output", r.shape, r.dtype) for r in sample.node.results]
    node = RegionNode(sample.node, values, results)
    region = Region("ext_main_0", [v for v in values if v.data is None], results, [node])
    builder = PlanBuilder(region, WeightBlob(region.symbol))
    builder.library, builder.composite = library, sample.node.composite
    found.lower(node, builder)
    return builder


def _blocks(arguments: list[object]) -> Iterator[Struct]:
    for item in arguments:
        if isinstance(item, Struct):
            yield item
            yield from _blocks(list(item.fields.values()))


@pytest.mark.parametrize("library", registry.SHIPPED)
def test_blocks_have_the_fields_of_the_header(library: str) -> None:
    try:
        registry.library(library)
    except LibraryError as error:
        pytest.skip(str(error))
    structures = kernel_header().structures
    seen = set()
    records = known_operators().values()
    for sample in (plain.of("float32") for record in records for plain in record.samples()):
        builder = _lowered(sample, library)
        for call in builder.plan.calls if builder is not None else []:
            for block in _blocks(call.arguments):
                where = f"{sample.node.composite} {sample.variant}: {block.ctype}"
                assert block.ctype in structures, where
                assert set(block.fields) <= set(structures[block.ctype]), where
                seen.add(block.ctype)
    assert {"ext_activation", "ext_epilogue", "ext_matmul_params"} <= seen


@pytest.mark.parametrize(
    "op", [op for op, record in known_operators().items() if record.facts.params]
)
def test_tables_are_told_fields_of_the_block(op: str) -> None:
    facts = operator_of(op).facts
    fields = set(kernel_header().structures[facts.params])
    extra = set(facts.names) - fields
    assert extra == BESIDE_THE_BLOCK.get(facts.params, set()) & set(facts.names)
