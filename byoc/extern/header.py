"""A C header, read with pycparser: the prototypes in it and their types.

The C preprocessor runs first, with stand-ins for the headers of the C library, so that macros and
the user's own includes mean what they mean to the compiler, and pycparser sees plain C with the
lines of the header.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.errors import ExternError
from byoc.extern.scalar import ENUMERATION, SCALARS, Scalar
from codegen_cc.link.toolchain import compiler

if TYPE_CHECKING:
    from pycparser import c_ast

_FIXED = "".join(
    f"typedef signed {c} int{bits}_t; typedef unsigned {c} uint{bits}_t;\n"
    for bits, c in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
)
_SIZES = "typedef unsigned long size_t; typedef long ptrdiff_t;\n"
#: What the headers with types that matter here are replaced with.
_STAND_INS = {
    "stddef.h": f"{_SIZES}#define NULL ((void*)0)\n",
    "stdint.h": f"{_FIXED}typedef long intptr_t; typedef unsigned long uintptr_t;\n",
    "inttypes.h": "#include <stdint.h>\n",
    "stdbool.h": "#define bool _Bool\n#define true 1\n#define false 0\n",
    "complex.h": "#define complex _Complex\n",
    "sys/types.h": "#include <stddef.h>\n#include <stdint.h>\ntypedef long ssize_t;\n",
}
#: Names of types in other headers of the system, which become types without content.
_TYPE_NAMES = re.compile(
    r"^(?:typedef\b|\})[^;]*?\b(\w+)\s*(?:\[[^]]*\])?\s*;", re.MULTILINE | re.ASCII
)

#: What compilers add to C and pycparser does not know; none of it changes a call.
_REMOVED = ("__attribute__(x)=", "__extension__=", "__inline=inline", "__restrict=restrict")
_REMOVED += ("__inline__=inline", "__restrict__=restrict", "__const=const", "__asm__(x)=")


@dataclass(frozen=True)
class Parameter:
    """One argument of a prototype; ``pointer`` with ``const`` tells about what it points to."""

    name: str
    text: str
    scalar: Scalar
    pointer: bool
    const: bool


@dataclass(frozen=True)
class Prototype:
    """A function that can be called: ``returns`` is ``void`` or ``status``."""

    name: str
    line: int
    text: str
    returns: str
    parameters: tuple[Parameter, ...]


@dataclass
class Header:
    """A parsed header.  ``declarations`` are its own functions, in order."""

    path: Path
    text: str
    declarations: dict[str, c_ast.Decl] = field(default_factory=dict)
    typedefs: dict[str, c_ast.Node] = field(default_factory=dict)

    def line_of(self, function: str) -> int:
        """The line on which a function is declared."""
        return int(self.declarations[function].coord.line)

    def prototype(self, function: str) -> Prototype:
        """The types of one function.  Raises ``ExternError`` for what no call from TVM can give."""
        declaration = self.declarations[function]
        kind = declaration.type
        line = self.line_of(function)
        try:
            parameters = tuple(self._parameters(kind))
            returns = self._returns(kind.type)
        except _Unfit as error:
            raise ExternError(f"{self.path.name}:{line}: {function}: {error}") from None
        return Prototype(function, line, _text(declaration), returns, parameters)

    def _returns(self, kind: c_ast.Node) -> str:
        from pycparser import c_ast

        found = self._resolve(kind)
        if isinstance(found, c_ast.TypeDecl):
            if _words(found) == "void":
                return "void"
            scalar = self._scalar(found)
            if scalar is not None and scalar.kind == "int":
                return "status"
        raise _Unfit(f"returns {_text(kind)}; need void, or an integer status that is 0 on success")

    def _parameters(self, function: c_ast.FuncDecl) -> Iterator[Parameter]:
        from pycparser import c_ast

        items = function.args.params if function.args is not None else []
        for position, item in enumerate(items, 1):
            if isinstance(item, c_ast.EllipsisParam):
                raise _Unfit("is variadic (...); declare a function with fixed arguments")
            if isinstance(item.type, c_ast.TypeDecl) and _words(item.type) == "void":
                return
            if getattr(item, "name", None) is None:
                raise _Unfit(f"argument {position} has no name; name it in the prototype")
            yield self._parameter(item)

    def _parameter(self, item: c_ast.Decl) -> Parameter:
        from pycparser import c_ast

        what = f"{item.name} is {_text(item)!r}"
        found = self._resolve(item.type)
        pointer = isinstance(found, c_ast.PtrDecl | c_ast.ArrayDecl)
        if pointer:
            found = self._resolve(found.type)
        if isinstance(found, c_ast.FuncDecl):
            raise _Unfit(f"{what}, a callback; TVM cannot pass one, so hide it in a C function")
        if isinstance(found, c_ast.PtrDecl | c_ast.ArrayDecl):
            raise _Unfit(f"{what}, a pointer to pointers; a tensor needs a plain pointer")
        scalar = self._scalar(found)
        if scalar is None:
            inner = "" if not pointer else "a pointer to "
            if isinstance(found.type, c_ast.Struct | c_ast.Union):
                raise _Unfit(f"{what}, {inner}a struct; pass its fields one by one")
            raise _Unfit(f"{what}, {inner}{_words(found)}; known are {_KNOWN}")
        return Parameter(item.name, _text(item), scalar, pointer, "const" in found.quals)

    def _scalar(self, kind: c_ast.TypeDecl) -> Scalar | None:
        from pycparser import c_ast

        if isinstance(kind.type, c_ast.Enum):
            return ENUMERATION
        return SCALARS.get(_key(kind))

    def _resolve(self, kind: c_ast.Node) -> c_ast.Node:
        """Follow typedefs to a type of ``SCALARS``, or as far as they go."""
        from pycparser import c_ast

        while isinstance(kind, c_ast.TypeDecl):
            words = _words(kind)
            if _key(kind) in SCALARS or words not in self.typedefs:
                break
            target = self.typedefs[words]
            if isinstance(target, c_ast.TypeDecl):
                quals = [*target.quals, *kind.quals]
                target = c_ast.TypeDecl(target.declname, quals, None, target.type)
            kind = target
        return kind


_KNOWN = "float, double, bool, int, size_t, intN_t and uintN_t"


class _Unfit(Exception):
    """Why a prototype cannot be served."""


def read_header(path: Path, include_dirs: Sequence[Path] = ()) -> Header:
    """Parse a header and what it includes.

    Raises ``ExternError`` with file and line where it cannot be read, and ``ToolchainError``
    where there is no C compiler.
    """
    try:
        from pycparser import c_ast, c_parser
    except ImportError:
        raise ExternError(
            "reading a header needs pycparser, which is not installed; "
            "pip install 'tvm-byoc-ext[extern]'"
        ) from None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExternError(f"cannot read header {path}: {error}") from error
    try:
        tree = c_parser.CParser().parse(_preprocess(path, include_dirs), path.name)
    except c_parser.ParseError as error:
        # "gemm.h:3:13: before: a" -> "gemm.h:3: C that pycparser cannot read, before 'a'"
        place, _, rest = str(error).partition(": ")
        place = ":".join(place.split(":")[:2])
        raise ExternError(
            f"{place}: C that pycparser cannot read ({rest}); give a header with the prototype only"
        ) from None
    header = Header(path, text)
    for item in tree.ext:
        if isinstance(item, c_ast.Typedef):
            header.typedefs[item.name] = item.type
        declaration = item.decl if isinstance(item, c_ast.FuncDef) else item
        if isinstance(getattr(declaration, "type", None), c_ast.FuncDecl) and (
            str(declaration.coord.file) == path.name
        ):
            header.declarations.setdefault(declaration.name, declaration)
    return header


def _preprocess(path: Path, include_dirs: Sequence[Path]) -> str:
    """The header after ``cc -E``, with the markers that keep its lines."""
    with tempfile.TemporaryDirectory(prefix="byoc_") as folder:
        for name, content in _STAND_INS.items():
            _stand_in(Path(folder, name), content)
        command = [*compiler(), "-E", "-std=c11", "-nostdinc", "-xc"]
        command += [f"-D{macro}" for macro in _REMOVED]
        command += [f"-I{include.resolve()}" for include in include_dirs]
        command += [f"-isystem{folder}", path.name]
        for _ in range(_MOST_HEADERS):
            done = _run(command, path.resolve().parent)
            missing = _MISSING.search(done.stderr)
            content = _of_system(missing[1]) if done.returncode and missing else None
            if content is None:
                break
            _stand_in(Path(folder, missing[1]), content)
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.splitlines()
    first = next((line for line in lines if "error" in line), "no message")
    match = re.match(r"(.+?):(\d+):(?:\d+:)?\s*(?:fatal )?error:\s*(.*)", first)
    where = f"{match[1]}:{match[2]}: {match[3]}" if match else f"{path.name}: {first}"
    raise ExternError(f"{where}{'; --include-dir names folders' if missing else ''}")


#: Which file a compiler misses, in the words of GCC and of Clang.
_MISSING = re.compile(r"error: '?([\w./+-]+)'?(?:: No such file| file not found)")
_MOST_HEADERS = 200


def _stand_in(target: Path, content: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"#pragma once\n{content}", encoding="ascii")


def _of_system(name: str) -> str | None:
    """What stands in for a header of the system: its names of types. None if there is none."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        return None
    done = _run([*compiler(), "-E", "-P", "-xc", "-"], Path.cwd(), f"#include <{name}>\n")
    if done.returncode != 0:
        return None
    names = dict.fromkeys(_TYPE_NAMES.findall(done.stdout))
    known = "#include <sys/types.h>\n"
    return known + "".join(f"typedef struct {n} {n};\n" for n in names if n not in SCALARS)


def _run(command: list[str], folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _words(kind: c_ast.Node) -> str:
    """The words of a plain type as they are written, such as ``unsigned long``."""
    return " ".join(getattr(kind.type, "names", [type(kind.type).__name__.lower()]))


def _key(kind: c_ast.Node) -> str:
    """The same in one order, as ``SCALARS`` has them."""
    return " ".join(sorted(_words(kind).split()))


def _text(node: c_ast.Node) -> str:
    """C text of a declaration or a type, on one line."""
    from pycparser import c_generator

    return " ".join(c_generator.CGenerator().visit(node).split())
