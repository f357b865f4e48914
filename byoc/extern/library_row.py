"""The function as a row of a kernel library's table, for operators of the node vocabulary.

A table tells a kernel numbers by the names of ``byoc.library``.  A function that needs others, or
whose annotation demands more of the shapes than the operator does, gets no row but a reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from byoc.extern.signature import Argument, Attribute, Signature, Tensor
from byoc.extern.text import python_list, render
from codegen_cc.dtypes import KERNEL_NUMBERS
from codegen_cc.libraries.interface import LIBRARY_ABI
from codegen_cc.libraries.kernel import DEFAULT_DTYPE


class NoRow(Exception):
    """Why the table cannot hold a function."""


def library_source(signature: Signature, header: Path, links: Sequence[Path], output: Path) -> str:
    """Python text of a library with one kernel; paths are relative to ``output``.

    Raises ``NoRow`` with the reason.
    """
    row = _Row(signature)
    items = [f'"{signature.op.name}"', f'function="{signature.name}"']
    items.append(python_list(row.arguments(), "arguments=(", ")", 12).lstrip())
    items += row.fields()
    if signature.prototype.returns == "void":
        items.append('returns="void"')
    status = signature.prototype.returns == "status"
    headers = ['"ext_extern_entry.h"'] * status + [f'"{header.name}"']
    link = [f"headers=({', '.join(headers)}{',' * (len(headers) == 1)})"]
    link.append(f"include_dirs=({_path(header.parent, output)},)")
    for field, suffixes in (("sources", {".c"}), ("archives", {".a", ".o"})):
        found = [_path(path, output) for path in links if path.suffix in suffixes]
        if found:
            link.append(f"{field}=({', '.join(found)}{',' * (len(found) == 1)})")
    if any(path.suffix == ".c" for path in links):
        link.append('cflags=("-O3",)')
    return render(
        "library.py.j2",
        signature=signature,
        abi=LIBRARY_ABI,
        link=link,
        items=items,
        status=status,
        rules=row.rules(),
    )


def _path(path: Path, output: Path) -> str:
    relative = os.path.relpath(path.resolve(), output.resolve())
    return "HERE" if relative == "." else f"HERE / {relative!r}".replace("'", '"')


class _Row:
    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.op = signature.op
        if self.op is None:
            raise NoRow("it stands for no operator of the node vocabulary")
        if not self.op.extents:
            raise NoRow(f"the library table has no words for the sizes of {self.op.name}")
        for tensor in signature.tensors:
            if tensor.dtype not in KERNEL_NUMBERS:
                known = ", ".join(KERNEL_NUMBERS)
                raise NoRow(f"{tensor.name} is {tensor.dtype}; regions have {known}")
        self.words: dict[str, str] = {}
        for tensor in signature.tensors:
            self._name(tensor)
        twice = [word for word in self.words.values() if list(self.words.values()).count(word) > 1]
        if twice:
            raise NoRow(f"two sizes of the annotation are {twice[0]} in the library table")

    def _name(self, tensor: Tensor) -> None:
        """What the table calls the extents of a tensor."""
        runs = [axis.run for axis in tensor.shape]
        patterns = self.op.extents[tensor.role]
        fitting = [p for p in patterns if [word[0] == "*" for word in p] == runs]
        if not fitting:
            raise NoRow(f"{tensor}: the library table has {' or '.join(map(_shape, patterns))}")
        order = range(len(runs))
        if tensor.layout is not None:
            order = [self.op.layouts[tensor.role].index(letter) for letter in tensor.layout]
        for axis, index in zip(tensor.shape, order, strict=True):
            self._call(tensor, axis.expression.text, fitting[0][index].lstrip("*"))

    def _call(self, tensor: Tensor, text: str, word: str) -> None:
        known = self.words.setdefault(text, word)
        if known == word:
            return
        # The channels of a weight are those of the input, unless there are groups.
        if (known, word) == ("in_c", "weight.1") and "groups" not in self.signature.keywords():
            return
        raise NoRow(f"{tensor} demands that {known} equals {word}, which no table can say")

    def arguments(self) -> list[str]:
        """The arguments of the C function in the words of the table."""
        return [self._argument(argument) for argument in self.signature.arguments]

    def _argument(self, argument: Argument) -> str:
        by_name = {tensor.name: tensor for tensor in self.signature.tensors}
        attributes = {attribute.name: attribute for attribute in self.signature.attributes}
        if argument.kind == "tensor":
            return f'"{by_name[argument.name].role}"'
        if argument.kind in ("rank", "shape"):
            raise NoRow(f"the library table has no word for {argument.kind}({argument.name})")
        if argument.kind == "attribute":
            return f'"{self._told(attributes[argument.name])}"'
        if argument.name in self.words:
            return f'"{self.words[argument.name]}"'
        if argument.value is not None and argument.value.number is not None:
            return str(argument.value.number)
        name = argument.value.name if argument.value is not None else argument.name
        if name in self.words:
            return f'"{self.words[name]}"'
        if name in attributes:
            return f'"{self._told(attributes[name])}"'
        raise NoRow(f"the library table has no word for {argument.name}={argument.value.text}")

    def _told(self, attribute: Attribute) -> str:
        return self.op.told[attribute.keyword][attribute.index or 0]

    def fields(self) -> list[str]:
        """Further fields of the row: layouts, dtypes, the rule about equal entries."""
        found = []
        layouts = {
            tensor.role: tensor.layout
            for tensor in self.signature.tensors
            if tensor.layout is not None and tensor.layout != self.op.layouts[tensor.role]
        }
        dtypes = {t.role: t.dtype for t in self.signature.tensors if t.dtype != DEFAULT_DTYPE}
        for field, values in (("layouts", layouts), ("dtypes", dtypes)):
            if values:
                pairs = [f'"{role}": "{value}"' for role, value in values.items()]
                found.append(python_list(pairs, f"{field}={{", "}", 12).lstrip())
        if self.rules():
            pairs = [f'"{keyword}": ...' for keyword in self.rules()]
            found.append(f"attributes={{{', '.join(pairs)}}}")
            found.append("supports=supports")
        return found

    def rules(self) -> list[str]:
        """Attributes that are lists, of which the function takes one number."""
        found = []
        for keyword, entries in self.signature.keywords().items():
            known = self.op.attribute(keyword)
            if known.count is not None and entries[0].index is None:
                found.append(keyword)
        return found


def _shape(words: tuple[str, ...]) -> str:
    return f"[{', '.join(words)}]"
