"""``byoc compile``: an ONNX file becomes one deployable library, for TVM's runtime or without."""

from __future__ import annotations

from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Any

import click

from byoc.cli import control, options, progress
from byoc.cli.process import give_large_blocks_back, import_without_torch
from byoc.cli.verify import WRONG, show_verification
from byoc.terminal import say, say_json
from codegen_cc.target import HOST, Target

if TYPE_CHECKING:
    from byoc.compiler.compile import Compiled
    from byoc.compiler.keywords import CompileKeywords
    from byoc.compiler.standalone import Standalone
    from byoc.report import Report
    from byoc.verification import Verification


@click.command("compile")
@click.argument("model", type=options.PATH)
@options.file(
    "-o --output",
    "FILE.so|DIR",
    "The library for TVM's runtime, or the folder of the standalone form.",
    required=True,
)
@click.option(
    "--emit",
    type=click.Choice(["tvm", "standalone"]),
    default="tvm",
    show_default=True,
    help="A library that TVM's runtime loads; or C headers, a static and a shared library that "
    "need no TVM, for a network that is one region.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="What the C functions and files of the standalone form begin with (default: from MODEL).",
)
@options.input_shapes
@options.fixed_inputs
@options.target
@click.option(
    "--threads",
    type=options.thread_count,
    metavar="N",
    help="Stored as the default number of threads of whoever loads the library.",
)
@options.file("--dump-code", "DIR", "Keep the emitted C here.")
@options.dump_ir
@options.flag(
    "--verify verified",
    "Compare the library with ONNX Runtime, or ONNX's evaluator, on made-up inputs, as `byoc "
    "verify` does: exit code 1 where it is wrong. It is written all the same.",
)
@options.flag(
    "--states usual_states",
    "Keep the values in the library that each call hands to the next, by the names that exporters "
    "give them: past_key_values.* and present.*.",
)
@options.words(
    "--state state_pairs",
    "INPUT=OUTPUT",
    "Keep this one: the next call's INPUT is what OUTPUT was; repeatable.",
)
@options.share(
    "--max-error",
    "With --precision auto: the greatest error of an output, as a share of its range "
    "(default: 0.01).",
)
@options.file(
    "--calibration",
    "IN.npz",
    "With --precision auto: typical inputs, by name, on which errors are measured (default: "
    "made-up ones).",
)
@control.rules
@options.as_json
@options.quiet
@options.verbose
def compile_verb(
    model: Path,
    output: Path,
    emit: str,
    name: str | None,
    input_shapes: dict[str, list[int]] | None,
    target: str | None,
    threads: int | None,
    dump_code: Path | None,
    verified: bool,
    usual_states: bool,
    state_pairs: tuple[str, ...],
    max_error: float | None,
    calibration: Path | None,
    rules: control.Choices,
    as_json: bool,
    **others: Any,
) -> int:
    """Compile the ONNX file MODEL into one library that needs only TVM's runtime, or not even it.

    With --emit standalone the whole network must be one region.
    """
    standalone = emit == "standalone"
    _check_usage(standalone, name, dump_code, verified, target)
    states = _states(usual_states, state_pairs)
    auto = _wants_auto(rules, max_error, calibration)
    give_large_blocks_back()
    with progress.stages() as show:
        show("load TVM")
        import_without_torch("tvm")
        keywords: CompileKeywords = {
            **rules.partition,
            "allow_wrong": rules.allow_wrong,
            "target": target,
            "threads": threads,
            "progress": show,
            "states": states,
            **others,
        }
        if auto:
            keywords["precision"] = _chosen(model, max_error, calibration, input_shapes, keywords)
        if standalone:
            from byoc.compiler.standalone import compile_standalone

            # That everything is offloaded, whatever `rules.demand` says, is the form's own demand.
            done = compile_standalone(model, output, input_shapes, name=name, **keywords)
        else:
            from byoc.compiler.compile import compile

            demand = {"dump_code": dump_code, "require_full": rules.demand["full"]}
            demand["min_coverage"] = rules.demand["min_coverage"]
            done = compile(model, output, input_shapes, **demand, **keywords)
        found = None
        if verified:
            from byoc.verification import verify

            show("verify")
            found = verify(model, output, threads=threads)
    _show(done, output, found, as_json)
    return 0 if found is None or found.holds else WRONG


def _states(usual: bool, pairs: tuple[str, ...]) -> dict[str, str] | bool | None:
    """What --states and --state say together."""
    if usual and pairs:
        raise click.UsageError("--states takes all by their names; give --state for each instead")
    split = [pair.rpartition("=") for pair in pairs]
    if wrong := [
        pair for pair, (name, _, output) in zip(pairs, split, strict=True) if not (name and output)
    ]:
        raise click.UsageError(f"--state {wrong[0]!r}: need INPUT=OUTPUT, such as past=present")
    return {name: output for name, _, output in split} or usual or None


def _wants_auto(rules: control.Choices, max_error: float | None, calibration: Path | None) -> bool:
    """Whether the precision is to be chosen by measured errors."""
    from byoc.partition.precision import wants_auto

    auto = wants_auto(rules.partition["precision"])
    if not auto and (max_error is not None or calibration is not None):
        raise click.UsageError("--max-error and --calibration go with --precision auto")
    return auto


def _chosen(
    model: Path,
    max_error: float | None,
    calibration: Path | None,
    input_shapes: dict[str, list[int]] | None,
    keywords: CompileKeywords,
) -> tuple[str, ...]:
    from byoc.layer_errors.choose import MAX_ERROR, choose_precision

    limit = MAX_ERROR if max_error is None else max_error
    return choose_precision(model, limit, calibration, input_shapes, **keywords).precision


def _check_usage(
    standalone: bool, name: str | None, dump_code: Path | None, verified: bool, target: str | None
) -> None:
    """Refuse combinations that make no sense."""
    if name is not None and not standalone:
        raise click.UsageError("--name goes with --emit standalone")
    if dump_code is not None and standalone:
        raise click.UsageError("--dump-code: --emit standalone writes the C to its folder anyway")
    if verified and (standalone or Target.parse(target).is_foreign):
        raise click.UsageError("--verify runs the library here, in TVM's form for this machine")


def _show(
    done: Compiled | Standalone, output: Path, found: Verification | None, as_json: bool
) -> None:
    """Print what was written, and whether it agrees with the reference, where that was asked."""
    files = getattr(done, "files", None)  # of the standalone form
    if as_json:
        told = {} if found is None else {"verified": found.to_json()}
        say_json(_as_dict(done, output, files or {}) | told)
        return
    if files is None:
        _print(done, output)
    else:
        _print_folder(done)
    if found is not None:
        show_verification(found)


def _as_dict(
    compiled: Compiled | Standalone, output: Path, files: dict[str, int]
) -> dict[str, object]:
    return {
        "output": str(output),
        **({"files": files} if files else {"bytes": output.stat().st_size}),
        "seconds": {stage: round(value, 3) for stage, value in compiled.seconds.items()},
        "inputs": [[info.name, info.shape, info.dtype] for info in compiled.metadata.inputs],
        "outputs": [[info.name, info.shape, info.dtype] for info in compiled.metadata.outputs],
        "states": [state.input.name for state in compiled.metadata.states],
        "report": compiled.report.to_json(),
    }


def _print(compiled: Compiled, output: Path) -> None:
    seconds = sum(compiled.seconds.values())
    say(f"{output}: {output.stat().st_size / 1e6:.1f} MB in {seconds:.1f} s")
    _print_report(compiled.report)
    _print_tensors(compiled)
    machine = compiled.metadata.target.machine
    if machine == HOST.machine:
        say(f"run it: byoc run {quote(str(output))} --print-time")
    else:
        say(f"run it on a machine with {machine}: byoc run {quote(str(output))} --rpc HOST:PORT")


def _print_folder(compiled: Standalone) -> None:
    seconds = sum(compiled.seconds.values())
    say(f"{compiled.folder}: C library {compiled.name} in {seconds:.1f} s")
    for path, size in compiled.files.items():
        say(f"  {size / 1e6:8.3f} MB  {path}")
    _print_report(compiled.report)
    _print_tensors(compiled)
    target = Target.parse(compiled.metadata.target.name)
    compiler = target.compiler() if target.is_foreign else ["cc"]
    include, archive = (
        compiled.folder / "include",
        compiled.folder / "lib" / f"lib{compiled.name}.a",
    )
    # Before glibc 2.34 threads and dlopen are in libraries of their own.
    needs = ["-lm", "-pthread", "-ldl"]
    say(f"use it: {join([*compiler, f'-I{include}', 'main.c', str(archive), *needs])}")


def _print_report(report: Report) -> None:
    say(report.summary())
    for region in report.regions:
        if region.plan is not None:
            say(f"  {region.name}: {region.plan}")
    for idle in report.idle:
        say(f"  {idle}")
    known = [use for use in report.kernels if use.measured]
    if known:
        ways = ", ".join(f"{use.measured} x {use.library}: {use.algorithm}" for use in known)
        say(f"  as measured: {ways}")


def _print_tensors(compiled: Compiled | Standalone) -> None:
    for what, infos in (("in ", compiled.metadata.inputs), ("out", compiled.metadata.outputs)):
        for info in infos:
            say(f"  {what} {info}")
    for state in compiled.metadata.states:
        say(f"  kept {state.input}")
