"""From a header to a folder of files: all of them, or none."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from byoc.errors import ExternError
from byoc.extern.assemble import assemble
from byoc.extern.cases import draw_cases
from byoc.extern.generated_test import check_source
from byoc.extern.header import Header, read_header
from byoc.extern.library_row import NoRow, library_source
from byoc.extern.packed import LOCALS, packed_source
from byoc.extern.python_operator import relax_source, te_source
from byoc.extern.roles import Annotation, in_comments, in_text
from byoc.extern.signature import Signature
from byoc.extern.text import render
from codegen_cc.unfinished import folder_beside

_LINKED = (".c", ".o", ".a")
#: What make, and a compiler that make calls, take in a path without quoting.
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)


@dataclass(frozen=True)
class Generated:
    """One function: its files, and why it has no row in the library table, if so."""

    signature: Signature
    files: tuple[str, ...]
    no_row: str | None


def generate(
    header: Path | str,
    output: Path | str,
    *,
    roles: str | None = None,
    functions: Sequence[str] = (),
    links: Sequence[Path] = (),
    include_dirs: Sequence[Path] = (),
) -> list[Generated]:
    """Write the integration of annotated functions of a C header to the folder ``output``.

    ``roles`` is a file of annotations, or their text; without it they stand in the header's
    comments.  ``functions`` chooses some of them.  ``links`` is their C code.
    Raises ``ExternError`` with file and line for what cannot be served; nothing is written then.
    """
    header, output = Path(header), Path(output)
    if not _PLAIN_PATH.fullmatch(header.name):
        raise ExternError(f"header {header.name!r}; need a name of letters, digits and ._+@-")
    if output.exists() and not output.is_dir():
        raise ExternError(f"{output} is a file; give a folder")
    _check_links(links)
    parsed = read_header(header, include_dirs)
    annotations = _annotations(parsed, roles, functions)
    texts: dict[str, str] = {}
    generated = []
    for name, annotation in annotations.items():
        if name in LOCALS:
            raise ExternError(
                f"{header.name}:{parsed.line_of(name)}: {name} is also a variable of the generated"
                " C; call it through a function of another name"
            )
        signature = assemble(parsed.prototype(name), annotation, header.name)
        _check_relax(signature, annotation)
        files, no_row = _write(signature, header, links, output)
        texts |= files
        generated.append(Generated(signature, tuple(files), no_row))
    texts["Makefile"] = _makefile(list(annotations), header, links, include_dirs, output)
    _store(texts, output)
    return generated


def _check_relax(signature: Signature, annotation: Annotation) -> None:
    """Raise ``ExternError`` for an operator that Relax does not have, or not as a function."""
    import tvm
    from tvm import relax

    if signature.relax is None:
        return
    try:
        tvm.ir.Op.get(signature.relax)
        attrgetter(signature.relax.removeprefix("relax."))(relax.op)
    except AttributeError:
        raise ExternError(
            f"{annotation.place()}: {signature.name}: op={signature.relax} is no operator of Relax"
        ) from None


def _check_links(links: Sequence[Path]) -> None:
    for path in links:
        if path.suffix not in _LINKED:
            raise ExternError(f"cannot link {path}; need a file {', '.join(_LINKED)}")
        if not path.is_file():
            raise ExternError(f"cannot link {path}: no such file")


def _annotations(
    header: Header, roles: str | None, functions: Sequence[str]
) -> dict[str, Annotation]:
    """The annotations of the wanted functions."""
    name = header.path.name
    found = _in_header(header)
    if roles is not None:
        found |= _given(roles, functions)
    for function in dict.fromkeys([*functions, *found]):
        if function not in header.declarations:
            known = ", ".join(header.declarations) or "none"
            where = found[function].place() if function in found else name
            raise ExternError(f"{where}: {name} declares no function {function}; it has {known}")
        if function not in found:
            raise ExternError(
                f"{name}:{header.line_of(function)}: {function} has no annotation; write"
                " 'byoc: ...' into a comment before it, or give --roles"
            )
    if not found:
        raise ExternError(
            f"{name}: no function is annotated; write 'byoc: a=input[m,k] ...' into a comment"
            " before a prototype, or give --roles"
        )
    return {function: found[function] for function in functions or found}


def _in_header(header: Header) -> dict[str, Annotation]:
    """Annotations in comments, each of which belongs to the next declaration."""
    name = header.path.name
    lines = {header.line_of(function): function for function in header.declarations}
    found: dict[str, Annotation] = {}
    for end, annotation in in_comments(name, header.text):
        following = [line for line in lines if line >= end]
        if not following:
            raise ExternError(f"{annotation.place()}: no prototype follows this annotation")
        function = lines[min(following)]
        if function in found:
            raise ExternError(f"{annotation.place()}: {function} is annotated twice; do it once")
        found[function] = annotation
    return found


def _given(roles: str, functions: Sequence[str]) -> dict[str, Annotation]:
    """Annotations of the option: a file's, or the text itself."""
    path = Path(roles)
    try:
        is_file = path.is_file()
    except OSError:  # longer than a path can be
        is_file = False
    if is_file:
        return in_text(path.name, path.read_text(encoding="utf-8"))
    if "=" not in roles:
        raise ExternError(f"--roles {roles}: no such file; give one, or NAME: ARGUMENT=ROLE ...")
    if len(functions) == 1 and not re.match(r"\s*\w+:\s", roles):
        roles = f"{functions[0]}: {roles}"
    return in_text("--roles", roles)


def _write(
    signature: Signature, header: Path, links: Sequence[Path], output: Path
) -> tuple[dict[str, str], str | None]:
    """The files of one function by name, and the reason why there is no library among them."""
    name = signature.name
    try:
        cases = draw_cases(signature)
    except ValueError as error:
        line = signature.prototype.line
        raise ExternError(f"{signature.file}:{line}: {name}: {error}") from None
    texts = {
        f"{name}_packed.c": packed_source(signature, header.name),
        f"{name}_te.py": te_source(signature),
        f"{name}_relax.py": relax_source(signature),
    }
    no_row = None
    try:
        texts[f"{name}_library.py"] = library_source(signature, header, links, output)
    except NoRow as reason:
        no_row = str(reason)
    texts[f"test_{name}.py"] = check_source(signature, cases, row=no_row is None and bool(links))
    return texts, no_row


def _makefile(
    names: list[str],
    header: Path,
    links: Sequence[Path],
    include_dirs: Sequence[Path],
    output: Path,
) -> str:
    def relative(path: Path) -> str:
        text = os.path.relpath(path.resolve(), output.resolve())
        if not _PLAIN_PATH.fullmatch(text):
            raise ExternError(f"make cannot take the path {text!r}; rename its folders or file")
        return text

    return render(
        "Makefile.j2",
        header=header.name,
        names=names,
        links=[relative(path) for path in links],
        includes=[f"-I{relative(folder)}" for folder in (header.parent, *include_dirs)],
    )


def _store(texts: dict[str, str], output: Path) -> None:
    """Write every file beside the folder first, so that an error leaves nothing half done."""
    if not output.parent.is_dir():
        raise ExternError(f"cannot write {output}: there is no folder {output.parent}")
    try:
        with folder_beside(output) as folder:
            for name, text in texts.items():
                Path(folder, name).write_text(text, encoding="utf-8")
            output.mkdir(exist_ok=True)
            for name in texts:
                os.replace(Path(folder, name), output / name)
    except OSError as error:
        raise ExternError(f"cannot write {output}: {error.strerror}") from error
