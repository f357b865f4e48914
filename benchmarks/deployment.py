"""What a network costs in each form of deployment, beside ONNX Runtime and OpenVINO.

``python -m benchmarks.deployment [resnet50] [--threads 1] [--repeats 3] [--json | --markdown]``

For each form: the sizes of the model's file and of the libraries that it needs, milliseconds to
load the model and of the first and a later run, and the most memory that the process had.  Every
loading is a process of its own, and the forms take turns.  C++ and C programs are built here, from
``examples/deploy_cpp`` and ``deployment.c``; a form whose tools are missing is named.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import first_run, harness
from benchmarks.process_memory import run_watched
from byoc.bench.engines import ENGINES
from byoc.bench.machine import Machine
from byoc.bench.subjects import load_subject
from byoc.bench.tables import Sheet, in_words
from byoc.errors import ByocError
from byoc.machine import choose_cores

_EXAMPLE = harness.ROOT / "examples" / "deploy_cpp"
_RUNS = 10
#: Runs a program and says on stderr how much memory it had at most.  The number of a process begins
#: with that of the process that started it, so this one is as small as Python can be.
_LAUNCHER = """
import os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(process, 0)
print(used.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""
#: Folders of the packages whose libraries are an engine's runtime.
_PACKAGES = {
    "byoc": ("tvm", "tvm_ffi"),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
}


@dataclass(frozen=True)
class Form:
    """One way to run the network: megabytes, milliseconds, a number for each process.

    ``program`` is what the process is written in; ``libraries`` are those that it needs besides the
    system's, by name with their sizes.
    """

    title: str
    program: str
    model_mb: float
    libraries: dict[str, float]
    load_ms: list[float]
    first_ms: list[float]
    later_ms: list[float]
    peak_mb: list[float]


@dataclass
class _Runner:
    title: str
    program: str
    model: Path
    command: list[str]
    libraries: dict[str, float] | None = None


def measure(
    network: str,
    threads: int = 1,
    repeats: int = 3,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[str, list[Form], list[str]]:
    """The network's title, its forms, and what could not be measured and why.

    Raises ``ByocError``.
    """
    cores = choose_cores(threads)
    with tempfile.TemporaryDirectory(prefix="byoc_") as name:
        folder = Path(name)
        subject = load_subject(network)
        onnx.save(subject.model, folder / "model.onnx")
        np.savez(folder / "inputs.npz", **subject.inputs)
        for index, array in enumerate(subject.inputs.values()):
            array.tofile(folder / f"input{index}")
        progress("compiling")
        runners, absent = _runners(folder, len(subject.inputs), threads)
        answers: dict[str, list[dict[str, Any]]] = {runner.title: [] for runner in runners}
        for runner in harness.in_turns(runners, repeats):
            own = answers[runner.title]
            progress(f"{runner.title}, {len(own) + 1} of {repeats}")
            own.append(_start(runner, threads, cores))
        forms = [_form(runner, answers[runner.title]) for runner in runners]
        return subject.title, forms, absent


def _runners(folder: Path, inputs: int, threads: int) -> tuple[list[_Runner], list[str]]:
    """Compile every form, and say how each is run."""
    source, library = folder / "model.onnx", folder / "model.so"
    harness.byoc("compile", source, "-o", library)
    raw = [str(folder / f"input{index}") for index in range(inputs)]
    runners, absent = [_python("byoc", library, folder, threads)], []
    try:
        runners.append(_cpp(library, raw, folder, threads))
    except ByocError as error:
        absent.append(f"C++ with TVM's runtime: {error}")
    try:
        runners += _standalone(source, raw, folder, threads)
    except ByocError as error:
        absent.append(f"standalone C: {error}")
    for engine in ("onnxruntime", "openvino"):
        if missing := ENGINES[engine].absent():
            absent.append(f"{ENGINES[engine].title}: {missing}")
        else:
            runners.append(_python(engine, source, folder, threads))
    return runners, absent


def _python(engine: str, model: Path, folder: Path, threads: int) -> _Runner:
    title = "byoc, from Python" if engine == "byoc" else f"{ENGINES[engine].title}, from Python"
    command = first_run.command(engine, model, folder / "inputs.npz", threads, _RUNS)
    return _Runner(title, "Python", model, command)


def _cpp(library: Path, raw: list[str], folder: Path, threads: int) -> _Runner:
    """The example's program, which prints what loading and running took."""
    build = folder / "cpp"
    command = ["make", "-s", "-C", str(_EXAMPLE), f"BUILD={build}", f"PYTHON={sys.executable}"]
    harness.run([*command, f"{build}/run"], line=0)
    outputs = [str(folder / f"output{index}") for index in range(_output_count(library))]
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER]
    command += [str(build / "run"), "-n", str(_RUNS), "-t", str(threads), str(library)]
    libraries = {path.name: path.stat().st_size * 1e-6 for path in sorted(build.glob("*.so"))}
    title = "byoc, from C++ with TVM's runtime"
    return _Runner(title, "C++", library, [*command, *raw, *outputs], libraries)


def _output_count(library: Path) -> int:
    from byoc.deploy.compiled_file import read_compiled

    return len(read_compiled(library).metadata().outputs)


def _standalone(source: Path, raw: list[str], folder: Path, threads: int) -> list[_Runner]:
    """A program with the library inside, and one beside it."""
    out = folder / "standalone"
    harness.byoc("compile", source, "--emit", "standalone", "--name", "network", "-o", out)
    program = Path(__file__).with_suffix(".c")
    flags = [f"-I{out / 'include'}", "-DMODEL=network", '-DHEADER="network.h"']
    runners = []
    for title, link, model in (
        ("byoc, standalone C, static", [str(out / "lib/libnetwork.a")], folder / "static"),
        (
            "byoc, standalone C, shared",
            [f"-L{out / 'lib'}", "-lnetwork", f"-Wl,-rpath,{out / 'lib'}"],
            out / "lib/libnetwork.so",
        ),
    ):
        binary = folder / ("static" if "static" in title else "shared")
        link = [*link, "-lm", "-pthread", "-ldl"]
        harness.build_c(program, binary, *flags, link=link)
        runners.append(
            _Runner(title, "C", model, [str(binary), str(threads), str(_RUNS), *raw], {})
        )
    return runners


def _start(runner: _Runner, threads: int, cores: Sequence[int]) -> dict[str, Any]:
    command = [*harness.on_cores(cores), *runner.command]
    done = run_watched(command, harness.environment(threads)).require(runner.title)
    if runner.program == "C++":
        answer = _of_example(done.output)
        answer["peak_mb"] = 1024e-6 * float(done.messages.split()[-1])
    else:
        answer = json.loads(done.output.strip().splitlines()[-1])
    return answer | {"mapped": answer.get("mapped", [])}


def _of_example(text: str) -> dict[str, Any]:
    """What the example's program prints: loading, the first and the fastest run."""
    words = text.split()
    load = float(words[words.index("in") + 1])
    first = float(words[words.index("run") + 1])
    fastest = float(words[words.index("fastest") + 3])
    return {"load_ms": load, "first_ms": first, "later_ms": [fastest]}


def _form(runner: _Runner, answers: list[dict[str, Any]]) -> Form:
    def each(key: str) -> list[float]:
        return [float(np.min(answer[key])) for answer in answers]

    libraries = runner.libraries
    if libraries is None:
        engine = runner.command[3]
        libraries = _own_libraries(engine, answers[0]["mapped"])
    return Form(
        runner.title,
        runner.program,
        runner.model.stat().st_size * 1e-6,
        libraries,
        each("load_ms"),
        each("first_ms"),
        each("later_ms"),
        each("peak_mb"),
    )


def _own_libraries(engine: str, mapped: Sequence[str]) -> dict[str, float]:
    """The shared libraries of an engine's packages that a process had mapped."""
    found = {}
    for text in sorted(set(mapped)):
        path = Path(text)
        if any(package in path.parts for package in _PACKAGES[engine]) and path.is_file():
            found[path.name] = path.stat().st_size * 1e-6
    return found


def sheet(title: str, forms: Sequence[Form]) -> Sheet:
    """The table."""
    head = ("form", "model MB", "libraries", "MB", "load ms", "first ms", "later ms", "peak MB")
    rows = [
        [
            form.title,
            f"{form.model_mb:.1f}",
            ", ".join(_short(form.libraries)) or "none",
            f"{sum(form.libraries.values()):.1f}",
            f"{min(form.load_ms):.1f}",
            f"{min(form.first_ms):.1f}",
            f"{min(form.later_ms):.1f}",
            f"{max(form.peak_mb):.0f}",
        ]
        for form in forms
    ]
    return Sheet(title, head, rows)


def _short(libraries: dict[str, float]) -> list[str]:
    """The largest three, and how many more."""
    names = sorted(libraries, key=lambda name: -libraries[name])
    more = [f"{len(names) - 3} more"] if len(names) > 3 else []
    return [*names[:3], *more]


@harness.one_line_errors()
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print; 2 for errors."""
    parser = harness.parser("deployment", __doc__, markdown=True, threads=1, repeats=3)
    parser.add_argument("network", nargs="?", default="resnet50", help="(default resnet50)")
    options = parser.parse_args(arguments)
    title, forms, absent = measure(options.network, options.threads, options.repeats, harness.tell)
    peers = (name for name in ("onnxruntime", "openvino") if ENGINES[name].absent() is None)
    machine = Machine.measure(["byoc", *peers])
    if options.json:
        about = {"network": title, "threads": options.threads, "absent": absent}
        harness.show_json(about | machine.to_json() | {"forms": list(map(asdict, forms))})
    else:
        table = sheet(f"{title}, {in_words(options.threads)}", forms)
        lines = [f"not measured: {line}" for line in absent]
        harness.show_sheets([machine.lines(), table], lines, options.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
