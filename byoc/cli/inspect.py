"""``byoc inspect``: what a compiled library says of itself, read from the file, for any machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from byoc.cli import options
from byoc.deploy.compiled_file import CompiledFile, read_compiled, whole_file_problem
from byoc.deploy.metadata import Metadata
from byoc.deploy.tvm_runtime import CORE
from byoc.terminal import say, say_json

_UNKNOWN = "not known"


@click.command("inspect")
@click.argument("library", type=options.PATH)
@options.flag("--check", "Check every byte, weights and all, by the file's checksum.")
@options.as_json
@options.verbose
def inspect_verb(library: Path, check: bool, as_json: bool) -> int:
    """Tell what LIBRARY, written by `byoc compile`, holds and needs; nothing of it is run.

    With --check, exit code 1 says that it is damaged, or has no checksum.
    """
    file = read_compiled(library)
    metadata = file.metadata()
    problem = whole_file_problem(library) if check else None
    if problem is not None:
        say(f"check failed: {problem}", err=True)
        return 1
    if as_json:
        about = {"file": library.name, "bytes": library.stat().st_size, "machine": file.machine}
        say_json(about | metadata.to_dict())
        return 0
    for heading, lines in _described(file, metadata):
        for index, line in enumerate(lines or ["none"]):
            say(f"{heading if index == 0 else '':<10}{line}")
    if check:
        say(f"{'checked':<10}every byte is as it was compiled")
    return 0


def _described(file: CompiledFile, metadata: Metadata) -> Iterator[tuple[str, list[str]]]:
    size = file.path.stat().st_size / 1e6
    yield "file", [f"{file.path.name}, {size:.1f} MB, {_form(metadata)}"]
    yield "model", [f"{s.name or 'in memory'}, SHA-256 {s.sha256}" for s in metadata.source]
    yield "inputs", [str(info) for info in metadata.inputs]
    if metadata.fixed:
        yield "fixed", [str(fixed) for fixed in metadata.fixed]
    plain = metadata.form == "plain"
    if axes := metadata.report.get("axes"):
        yield "axes", [str(axes)]
    yield "outputs", [_UNKNOWN] if plain else [str(info) for info in metadata.outputs]
    if metadata.labelled:
        yield "labels", [str(output) for output in metadata.labelled]
    if metadata.states:
        yield (
            "states",
            [f"{state.input}, then {state.output}: {state.kind}" for state in metadata.states],
        )
    yield "target", list(_target(file, metadata))
    yield "threads", [str(metadata.threads or "one for each core, unless the caller says")]
    yield "runtime", list(_runtime(metadata))
    yield (
        "kernels",
        [_UNKNOWN]
        if plain
        else [f"{kl.name} {kl.version}, {kl.linked}" for kl in metadata.libraries],
    )
    if machines := metadata.report.get("machines"):
        yield "machines", list(_machines(machines))
    made = metadata.versions
    yield "made by", [", ".join(f"{k} {v}" for k, v in made.items()) or _UNKNOWN]
    yield "offloaded", list(_coverage(metadata.report))


def _form(metadata: Metadata) -> str:
    if metadata.form == "plain":
        return "exported by TVM, without metadata (byoc.describe attaches them)"
    if metadata.form != "tvm":
        return f"{metadata.form} form: a C interface, no runtime needed"
    alone = ", all of it one region" if metadata.entry else ""
    return f"for TVM's runtime{alone}"


def _runtime(metadata: Metadata) -> Iterator[str]:
    if metadata.form == "plain":
        yield _UNKNOWN
    if metadata.form != "tvm":
        return
    yield f"{CORE} and libtvm_ffi of TVM {metadata.versions.get('tvm', _UNKNOWN)}"
    for library in metadata.runtime:
        yield f"{library.name}, for {', '.join(library.functions)}"


def _target(file: CompiledFile, metadata: Metadata) -> Iterator[str]:
    target = metadata.target
    if target is None:
        yield file.machine
        return
    yield f"{target.name} ({file.machine}), kernels for {', '.join(target.kernel_levels)}"
    if target.cpu_flags:
        yield f"needs a CPU with {' '.join(target.cpu_flags)}"


def _machines(machines: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """What computes the nodes on each machine whose choices the library has."""
    for name, uses in machines.items():
        kernels = [f"{use['nodes']} by {use['library']}: {use['algorithm']}" for use in uses]
        yield f"{name}: {'; '.join(kernels)}"


def _coverage(report: dict[str, Any]) -> Iterator[str]:
    if not report:
        yield _UNKNOWN
        return
    macs, all_macs = report["offloaded_macs"], report["macs"]
    share = f", {100 * macs / all_macs:.1f} % of {all_macs / 1e6:.1f} MMAC" if all_macs else ""
    yield (
        f"{report['offloaded']} of {report['operators']} operators in "
        f"{len(report['regions'])} region(s){share}{', exact' if report.get('exact') else ''}"
    )
    for region in report["regions"]:
        yield (
            f"{region['name']}: {region['operators']} operators, "
            f"weights {region['weight_bytes'] / 1e6:.1f} MB"
        )
    for left in report["left"]:
        yield f"left to TVM: {left['name']} ({left['op']}): {left['reason']}"
