"""What kernel libraries there are, and what each supports: asked, not claimed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from codegen_cc.errors import CodegenError
from codegen_cc.libraries.interface import KernelLibrary
from codegen_cc.libraries.registry import SHIPPED, installed, library
from codegen_cc.operator import known_operators

#: The dtype that libraries are asked about.
SURVEYED = "float32"

#: By operator and variant: None where it is supported, else the reason. No variant where a table
#: has a kernel, and the operator no samples.
Answers = dict[str, dict[str, str | None]]


@dataclass(frozen=True)
class Surveyed:
    """A library: what it says of itself and supports, or why it is not there (``missing``)."""

    name: str
    origin: str
    version: str = ""
    linked: str = ""
    threads: str = ""
    missing: str = ""
    operators: Answers = field(default_factory=dict)


def survey(more: Iterable[str] = ()) -> list[Surveyed]:
    """Ask the shipped libraries, the installed ones, and ``more`` (names or ``.py`` files)."""
    named = {**dict.fromkeys(SHIPPED, "shipped"), **_packages()}
    found = [_ask(name, origin) for name, origin in named.items()]
    return found + [_ask(spec, spec) for spec in more if spec not in named]


def _packages() -> dict[str, str]:
    """The package of each installed library that is not shipped."""
    return {
        name: entry.dist.name if entry.dist is not None else entry.value
        for name, entry in installed().items()
        if name not in SHIPPED
    }


def _ask(spec: str, origin: str) -> Surveyed:
    try:
        found = library(spec)
        linked = linkage(found)
        return Surveyed(
            found.name, origin, found.version, linked, _threads(found), operators=_answers(found)
        )
    except CodegenError as error:
        return Surveyed(
            Path(spec).stem if spec.endswith(".py") else spec, origin, missing=f"{error}"
        )


def _threads(found: KernelLibrary) -> str:
    return "the pool's" if found.threads is None else f"set by {found.threads.set}"


def _answers(found: KernelLibrary) -> Answers:
    answers: Answers = {}
    listed = {kernel.op for kernel in getattr(found, "kernels", ())}
    for name, operator in known_operators().items():
        typed = [sample.of(SURVEYED) for sample in operator.samples()]
        if typed or name in listed:  # operators of users may have no samples
            answers[name] = {sample.variant: found.supports(sample.node) for sample in typed}
    return answers


def linkage(found: KernelLibrary) -> str:
    """How a library comes into a model: ``static``, or which files are opened from where.

    Raises ``CodegenError`` where the library cannot say.
    """
    link = found.link()
    if not link.shared:
        return "static"
    files = ", ".join(path.name for path in link.shared)
    folders = ", ".join(dict.fromkeys(str(path.parent) for path in link.shared))
    return f"opens {files} beside the model, in BYOC_LIBRARY_PATH, or in {folders}"


def support_text(variants: dict[str, str | None]) -> str:
    """``yes``, ``-``, or what of an operator a library supports and what not."""
    if not variants:
        return "has a kernel; no samples to ask about"
    able = [variant for variant, reason in variants.items() if reason is None]
    unable = [variant for variant, reason in variants.items() if reason is not None]
    if not unable:
        return "yes"
    if not able:
        return "-"
    if len(able) < len(unable):
        return f"only {', '.join(variant or 'the plain form' for variant in able)}"
    return f"not {', '.join(variant or 'the plain form' for variant in unable)}"
