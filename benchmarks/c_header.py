"""Reads the C interface of the kernels, ``ext_kernels.h`` and what it includes, without a compiler.

The subset of C that is read, one declaration after another:

- comments, include guards, ``#ifdef __cplusplus`` (whose lines are passed over), ``#include``
  (followed where the name is in quotes), ``#undef``;
- ``#define NAME integer``, and macros with arguments, ``##`` and ``__VA_ARGS__``, whose calls each
  stand on one line;
- ``typedef enum { A [= integer], ... } name;``
- ``typedef struct { declarations } name;`` of numbers, enumerations, structures, pointers, and
  arrays of one axis, whose length is an integer or a constant of the header;
- ``typedef result (*name)(parameters);`` and prototypes of functions.

Anything else raises a ``CodegenError`` of one line that names file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

from codegen_cc.errors import CodegenError
from codegen_cc.runtime_files import runtime_file

#: Types that C and its headers bring along.
SCALARS = (
    *("void", "char", "int", "float", "double", "size_t"),
    *("int8_t", "uint8_t", "uint16_t", "uint32_t", "int32_t", "int64_t"),
)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN = re.compile(r"\w+|##|\.\.\.|\S")
_DEFINE = re.compile(r"#define (\w+)(?:\(([^)]*)\))?\s*(.*)")


@dataclass(frozen=True)
class CType:
    """``name`` behind ``pointers`` stars; an array where it has a ``length``.

    ``const`` stands before the name; one behind a star is not kept.
    """

    name: str
    pointers: int = 0
    length: int | None = None
    const: bool = False


@dataclass(frozen=True)
class Prototype:
    """Result and parameters of a function, these by their names, in its order."""

    result: CType
    parameters: dict[str, CType]


@dataclass
class Header:
    """What a header declares, by name and in its order.

    ``enumerations`` hold the values of the enumerators, ``structures`` the types of the fields.
    """

    constants: dict[str, int] = field(default_factory=dict)
    enumerations: dict[str, dict[str, int]] = field(default_factory=dict)
    structures: dict[str, dict[str, CType]] = field(default_factory=dict)
    callbacks: dict[str, Prototype] = field(default_factory=dict)
    functions: dict[str, Prototype] = field(default_factory=dict)


@cache
def kernel_header() -> Header:
    """The installed ``ext_kernels.h``. Raises ``ToolchainError`` where kernels are missing."""
    return read(runtime_file("include/ext_kernels.h"))


def read(path: Path) -> Header:
    """A header with all that it includes in quotes. Raises ``CodegenError`` as said above."""
    header = Header()
    _Parser(_Preprocessor(header.constants).tokens(path), header).parse()
    return header


@dataclass(frozen=True)
class _Token:
    text: str
    place: str


def _fail(place: str, found: str, wanted: str) -> NoReturn:
    raise CodegenError(f"{place}: found '{found}'; need {wanted}, or teach benchmarks/c_header.py")


class _Preprocessor:
    """Follows directives, and expands macros that have arguments."""

    def __init__(self, constants: dict[str, int]) -> None:
        self._constants = constants
        self._macros: dict[str, tuple[list[str], list[str]]] = {}
        self._read: set[Path] = set()

    def tokens(self, path: Path) -> Iterator[_Token]:
        if path in self._read:
            return
        self._read.add(path)
        text = path.read_text(encoding="utf-8")
        text = _COMMENT.sub(lambda comment: " " + "\n" * comment[0].count("\n"), text)
        open_conditions: list[str] = []
        lines = iter(enumerate(text.split("\n"), start=1))
        for number, line in lines:
            place = f"{path.name}:{number}"
            while line.endswith("\\"):
                line = line[:-1] + next(lines, (number, ""))[1]
            line = line.strip()
            if line.startswith(("#ifdef", "#ifndef")):
                open_conditions.append(line)
                if line != "#ifdef __cplusplus" and not re.fullmatch(r"#ifndef \w+_H_", line):
                    _fail(place, line, "an include guard or __cplusplus")
            elif line == "#endif" and open_conditions:
                open_conditions.pop()
            elif "#ifdef __cplusplus" in open_conditions:
                continue
            elif included := re.fullmatch(r'#include "(.+)"', line):
                yield from self.tokens(path.parent / included[1])
            elif line.startswith("#"):
                self._directive(line, place)
            else:
                yield from (_Token(t, place) for t in self._expand(_TOKEN.findall(line), place))
        if open_conditions:
            _fail(path.name, f"{open_conditions[-1]} without its end", "#endif")

    def _directive(self, line: str, place: str) -> None:
        if re.fullmatch(r"#include <.+>", line):
            return
        if undefined := re.fullmatch(r"#undef (\w+)", line):
            self._macros.pop(undefined[1], None)
            return
        defined = _DEFINE.fullmatch(line)
        if defined is None:
            _fail(place, line, "#include, #define or #undef")
        name, parameters, body = defined.groups()
        if parameters is not None:
            names = [parameter.strip() for parameter in parameters.split(",")]
            self._macros[name] = (names, _TOKEN.findall(body))
        elif body.isdecimal():
            self._constants[name] = int(body)
        elif body:
            _fail(place, line, "an integer")

    def _expand(self, tokens: list[str], place: str) -> list[str]:
        done: list[str] = []
        while tokens:
            name, *tokens = tokens
            if name not in self._macros or tokens[:1] != ["("]:
                done.append(name)
                continue
            arguments, tokens = _arguments(tokens, place)
            tokens = self._replaced(name, arguments, place) + tokens
        return done

    def _replaced(self, name: str, arguments: list[list[str]], place: str) -> list[str]:
        """The body of a macro, with its arguments in it."""
        parameters, body = self._macros[name]
        if parameters[-1] == "...":
            fixed = len(parameters) - 1
            rest = [token for argument in arguments[fixed:] for token in (",", *argument)][1:]
            parameters, arguments = [*parameters[:-1], "__VA_ARGS__"], [*arguments[:fixed], rest]
        if len(parameters) != len(arguments):
            _fail(place, f"{name} of {len(arguments)} arguments", f"{len(parameters)}")
        values = dict(zip(parameters, arguments, strict=True))
        result: list[str] = []
        paste = False
        for token in body:
            if token == "##":
                paste = True
                continue
            value = values.get(token, [token])
            if paste and result and value:
                value = [result.pop() + value[0], *value[1:]]
            result += value
            paste = False
        return result


def _arguments(tokens: list[str], place: str) -> tuple[list[list[str]], list[str]]:
    """The arguments of a macro's call, which begins with its bracket, and what comes after it."""
    depth = 0
    arguments: list[list[str]] = [[]]
    for at, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return arguments, tokens[at + 1 :]
        if token == "," and depth == 1:
            arguments.append([])
        elif at > 0:
            arguments[-1].append(token)
    _fail(place, " ".join(tokens), "the whole call of a macro on one line")


class _Parser:
    """Reads declarations from tokens into a header."""

    def __init__(self, tokens: Iterator[_Token], header: Header) -> None:
        self._tokens = tokens
        self._header = header
        self._place = ""
        self._next = ""
        self._step()

    def parse(self) -> None:
        while self._next:
            if not self._took("typedef"):
                self._function()
            elif self._took("enum"):
                self._enumeration()
            elif self._took("struct"):
                self._structure()
            else:
                self._callback()

    def _step(self) -> str:
        """Pass to the next token, empty at the end; the one before it."""
        before = self._next
        token = next(self._tokens, _Token("", self._place))
        self._next, self._place = token.text, token.place
        return before

    def _took(self, text: str) -> bool:
        if self._next != text:
            return False
        self._step()
        return True

    def _need(self, text: str) -> None:
        if not self._took(text):
            _fail(self._place, self._next, f"'{text}'")

    def _name(self, what: str) -> str:
        if not self._next.isidentifier():
            _fail(self._place, self._next, what)
        return self._step()

    def _integer(self) -> int:
        constants = self._header.constants
        if not self._next.isdecimal() and self._next not in constants:
            _fail(self._place, self._next, "an integer or a constant of the header")
        text = self._step()
        return int(text) if text.isdecimal() else constants[text]

    def _enumeration(self) -> None:
        self._need("{")
        values: dict[str, int] = {}
        value = 0
        while not self._took("}"):
            name = self._name("an enumerator")
            if self._took("="):
                value = self._integer()
            values[name] = value
            value += 1
            if self._next != "}":
                self._need(",")
        self._header.enumerations[self._name("the name of an enumeration")] = values
        self._need(";")

    def _structure(self) -> None:
        self._need("{")
        fields: dict[str, CType] = {}
        while not self._took("}"):
            const, base = self._base()
            while True:
                name, ctype = self._declarator(base, const)
                fields[name] = ctype
                if not self._took(","):
                    break
            self._need(";")
        self._header.structures[self._name("the name of a structure")] = fields
        self._need(";")

    def _callback(self) -> None:
        result = self._result()
        self._need("(")
        self._need("*")
        name = self._name("the name of a function's type")
        self._need(")")
        self._header.callbacks[name] = Prototype(result, self._parameters())

    def _function(self) -> None:
        result = self._result()
        name = self._name("the name of a function")
        self._header.functions[name] = Prototype(result, self._parameters())

    def _parameters(self) -> dict[str, CType]:
        self._need("(")
        parameters: dict[str, CType] = {}
        while not self._took(")"):
            const, base = self._base()
            if base == "void" and not parameters and self._took(")"):
                break
            name, ctype = self._declarator(base, const)
            if ctype.length is not None:
                _fail(self._place, f"array {name}", "a pointer as parameter")
            parameters[name] = ctype
            if self._next != ")":
                self._need(",")
        self._need(";")
        return parameters

    def _base(self) -> tuple[bool, str]:
        """Whether a type is const, and its name."""
        const = self._took("const")
        header = self._header
        known = (SCALARS, header.enumerations, header.structures, header.callbacks)
        if not any(self._next in names for names in known):
            _fail(self._place, self._next, "a type of the header")
        return const, self._step()

    def _result(self) -> CType:
        const, base = self._base()
        return CType(base, self._stars(), const=const)

    def _stars(self) -> int:
        count = 0
        while self._took("*"):
            self._took("const")
            count += 1
        return count

    def _declarator(self, base: str, const: bool) -> tuple[str, CType]:
        """A name and its type: stars before it, the length of an array behind it."""
        pointers = self._stars()
        name = self._name("a name")
        length = None
        if self._took("["):
            length = self._integer()
            self._need("]")
        return name, CType(base, pointers, length, const)
