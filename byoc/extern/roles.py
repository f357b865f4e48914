"""The annotation: what each argument of a prototype means.

    byoc: a=input[m,k] b=weight[k,n] c=output[m,n] m,n,k=size op=matmul

It stands in a comment before the prototype, or, with the function's name in place of ``byoc``, in
a file or text of its own.  Entries are separated by white space outside of brackets and quotes.
``docs/extern.md`` describes the roles.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite

from byoc.errors import ExternError
from byoc.extern.expression import BadExpression, Expression

#: Roles of tensors that need no operator; others are the operand roles of the operator.
INPUT, WEIGHT, OUTPUT = "input", "weight", "output"

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ENTRY = re.compile(rf"({_NAME}(?:,{_NAME})*)=(.*)", re.DOTALL)
_TENSOR = re.compile(rf"({_NAME})(?:\.([A-Z]+))?\[(.*)\]", re.DOTALL)
_ATTRIBUTE = re.compile(rf"attr(?:\.({_NAME})(?:\[(\d+)\])?)?(?:\((.*)\))?", re.DOTALL)
_OF_TENSOR = re.compile(rf"(rank|shape)\(({_NAME})\)")
_OPERATOR = re.compile(rf"{_NAME}(\.{_NAME})*")


@dataclass(frozen=True)
class Axis:
    """One entry of a shape: an expression, or a run of any number of axes (``*outer``)."""

    expression: Expression
    run: bool = False

    def __str__(self) -> str:
        return f"*{self.expression.text}" if self.run else self.expression.text


@dataclass(frozen=True)
class TensorRole:
    """``input[m, k]``, ``weight.HWIO[kh, kw, c, o]``, ``output[*outer, p + q, *inner]``."""

    role: str
    layout: str | None
    shape: tuple[Axis, ...]


@dataclass(frozen=True)
class AttributeRole:
    """``attr``, ``attr.groups``, ``attr.strides[0]``; tests use ``values``, the first as default.

    ``name`` is None where the argument's own name is meant.
    """

    name: str | None = None
    index: int | None = None
    values: tuple[int | float | bool, ...] = ()


@dataclass(frozen=True)
class AxisRole:
    """``axis``: an attribute, the number of axes in the first run of each shape with two."""


@dataclass(frozen=True)
class SizeRole:
    """``size``: the extent that shapes call by the argument's name."""


@dataclass(frozen=True)
class ValueRole:
    """An expression of sizes and attributes, such as ``m*n``; it also names a size in shapes."""

    expression: Expression


@dataclass(frozen=True)
class OfTensorRole:
    """``rank(a)`` or ``shape(a)``."""

    what: str
    tensor: str


Role = TensorRole | AttributeRole | AxisRole | SizeRole | ValueRole | OfTensorRole


@dataclass
class Annotation:
    """The entries for one function.

    ``file`` and ``line`` say where it begins; ``lines`` where each argument's entry stands.
    """

    file: str
    line: int
    roles: dict[str, Role] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    op: str | None = None
    reference: str | None = None

    def place(self, name: str | None = None) -> str:
        """``gemm.h:12`` of an entry, or of the whole."""
        return f"{self.file}:{self.lines.get(name, self.line)}"

    def add(self, token: str, line: int) -> None:
        """Read one entry. Raises ``ExternError``."""
        place = f"{self.file}:{line}"
        match = _ENTRY.fullmatch(token)
        if match is None:
            raise ExternError(f"{place}: cannot read {token!r}; need NAME=ROLE")
        names, text = match.groups()
        if names in ("op", "reference"):
            self._set(names, text, place)
            return
        try:
            role = parse_role(text)
        except BadExpression as error:
            raise ExternError(f"{place}: {names}: {error}") from None
        for name in names.split(","):
            if name in self.roles:
                raise ExternError(f"{place}: {name} has two roles; give it one")
            self.roles[name] = role
            self.lines[name] = line

    def _set(self, what: str, text: str, place: str) -> None:
        if getattr(self, what) is not None:
            raise ExternError(f"{place}: {what} is given twice; give it once")
        if what == "op" and not _OPERATOR.fullmatch(text):
            raise ExternError(f"{place}: cannot read op={text}; need a name such as matmul")
        if what == "reference":
            if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
                raise ExternError(f'{place}: reference needs quotes, as in reference="a @ b"')
            text = text[1:-1]
        setattr(self, what, text)


def parse_role(text: str) -> Role:
    """Read what stands after the ``=``. Raises ``BadExpression``."""
    if text == "size":
        return SizeRole()
    if text == "axis":
        return AxisRole()
    if match := _OF_TENSOR.fullmatch(text):
        return OfTensorRole(match[1], match[2])
    if match := _ATTRIBUTE.fullmatch(text):
        index = None if match[2] is None else int(match[2])
        return AttributeRole(match[1], index, _values(match[3]))
    if match := _TENSOR.fullmatch(text):
        return TensorRole(match[1], match[2], _shape(match[3]))
    if re.fullmatch(rf"({INPUT}|{WEIGHT}|{OUTPUT})(\.[A-Z]+)?|{_NAME}\.[A-Z]+", text):
        raise BadExpression(f"{text} has no shape; write {text}[...] with its sizes")
    return ValueRole(Expression.parse(text))


def _shape(text: str) -> tuple[Axis, ...]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError):
        raise BadExpression(f"cannot read the shape [{text}]") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise BadExpression(f"cannot read the shape [{text}]")
    axes = []
    for item in call.args:
        run = isinstance(item, ast.Starred)
        axis = Axis(Expression.of(item.value if run else item), run)
        if run and axis.expression.name is None:
            raise BadExpression(f"{axis} in a shape; a run of axes needs a name")
        axes.append(axis)
    if sum(axis.run for axis in axes) > 2:
        raise BadExpression(f"shape [{text}] has more than two runs of axes")
    return tuple(axes)


def _values(text: str | None) -> tuple[int | float | bool, ...]:
    if text is None:
        return ()
    try:
        values = ast.literal_eval(f"({text},)")
    except (SyntaxError, ValueError):
        values = (None,)
    if not all(isinstance(value, int | float) and isfinite(value) for value in values):
        raise BadExpression(f"attr({text}) needs numbers, True or False")
    return values


def tokens(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Entries of a text and the lines on which they begin."""
    depth, quote, current, begin = 0, "", "", line
    for character in [*text, "\n"]:
        if not depth and not quote and character.isspace():
            if current:
                yield current, begin
            current = ""
        else:
            begin = begin if current else line
            if quote:
                quote = "" if character == quote else quote
            elif character in "\"'":
                quote = character
            else:
                depth += (character in "[(") - (character in "])")
            current += " " if character == "\n" else character
        line += character == "\n"
    if current.strip():
        yield current.strip(), begin


def in_comments(file: str, text: str) -> list[tuple[int, Annotation]]:
    """Annotations in the comments of a header, each with the line on which its comment ends."""
    found = []
    for begin, end, comment in _comments(text):
        match = re.search(r"(?m)^\s*byoc:", comment)
        if match is not None:
            line = begin + comment[: match.end()].count("\n")
            annotation = Annotation(file, line)
            # Further lines may say "byoc:" again, or not.
            rest = re.sub(r"(?m)^\s*byoc:", "", comment[match.end() :])
            for token, at in tokens(rest, line):
                annotation.add(token, at)
            found.append((end, annotation))
    return found


def _comments(text: str) -> Iterator[tuple[int, int, str]]:
    """First and last line, and content, of each comment; lines of ``//`` in a row are one."""
    pattern = r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n?)+|//[^\n]*|\"(?:\\.|[^\"\\\n])*\""
    for match in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        comment = match[0]
        if comment[0] == '"':
            continue
        begin = text.count("\n", 0, match.start()) + 1
        end = begin + comment.rstrip("\n").count("\n")
        if comment.startswith("/*"):
            # A decorating star keeps its line's content in place.
            content = re.sub(r"(?m)^[ \t]*\*(?=[ \t]|$)", "", comment[2:-2])
        else:
            content = re.sub(r"(?m)^[ \t]*//+", "", comment)
        yield begin, end, content


def in_text(file: str, text: str) -> dict[str, Annotation]:
    """Annotations by function of a text of its own: ``my_gemm: a=input[m,k] ...``.

    ``#`` begins a comment.  Raises ``ExternError``.
    """
    found: dict[str, Annotation] = {}
    clean = re.sub(r"(?m)(^|\s)#.*$", "", text)
    heads = list(re.finditer(rf"(?m)^[ \t]*({_NAME}):(?=\s|$)", clean))
    before = clean[: heads[0].start()] if heads else clean
    if before.strip():
        line = clean.count("\n", 0, len(before) - len(before.lstrip())) + 1
        raise ExternError(
            f"{file}:{line}: cannot read {before.strip().split()[0]!r}; roles begin with the name"
            " of a function, as in my_gemm: a=input[m,k]"
        )
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        line = clean.count("\n", 0, head.start(1)) + 1
        if head[1] in found:
            raise ExternError(f"{file}:{line}: {head[1]} has roles twice; give them once")
        annotation = found[head[1]] = Annotation(file, line)
        for token, at in tokens(clean[head.end() : following.start() if following else None], line):
            annotation.add(token, at)
    return found
