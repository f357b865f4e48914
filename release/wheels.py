"""Build, check and try what is uploaded: a source distribution, and a wheel for each architecture.

``python -m release.wheels`` writes to ``dist/``.  Everything is made from the source distribution,
so that nothing is in a wheel that is not in it.  Kernels are built once for each architecture, by
its gcc; each wheel has those of its own as they are installed, and the archives of the other's for
``--target``.  The steps are the list in ``main``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRIPLES = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
#: What TVM's own wheels need as well; ``auditwheel`` tells whether ours need more.
PLATFORM = "manylinux_2_28"
#: Calls the kernels of a wheel, under QEMU where they are for another machine.
_PROBE = """
#include <stdio.h>
const char* ext_isa_name(void);
const char* ext_isa_error(void);
int main(void) {
  const char* error = ext_isa_error();
  return printf("%s\\n", error ? error : ext_isa_name()) < 0 || error != 0;
}
"""
_TINY = """
import numpy as np, onnx, byoc
from onnx import TensorProto, helper
w = helper.make_tensor("w", TensorProto.FLOAT, (3, 2), [1, 2, 3, 4, 5, 6])
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3))
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 2))
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "tiny", [x], [y], [w])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
compiled = byoc.compile(model, "tiny.so")
assert not compiled.report.left, compiled.report.summary()
given = np.arange(12, dtype=np.float32).reshape(4, 3)
found = byoc.load("tiny.so")(given)
np.testing.assert_allclose(np.asarray(found), given @ np.float32([[1, 2], [3, 4], [5, 6]]))
byoc.compile(model, "foreign.so", target="{foreign}")
"""


class ReleaseError(Exception):
    """A step failed; the message says which, and what the program said."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a step fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="(default: dist)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="byoc_release_") as name:
            folder = Path(name)
            sdist = build_sdist(folder / "dist")
            source = unpack(sdist, folder)
            for machine in TRIPLES:
                build_kernels(source, machine, folder / "kernels", options.jobs)
            wheels = {m: build_wheel(source, m, folder / "kernels", sdist.parent) for m in TRIPLES}
            check_metadata([sdist, *wheels.values()])
            for machine, wheel in wheels.items():
                check_platform(wheel)
                probe_kernels(wheel, machine, folder / f"probe-{machine}")
            compile_tiny(wheels[platform.machine()], folder / "tiny")
            options.output.mkdir(parents=True, exist_ok=True)
            for file in (sdist, *wheels.values()):
                shutil.copy(file, options.output / file.name)
                print(f"{options.output / file.name}: {file.stat().st_size / 1e6:.1f} MB")
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def build_sdist(output: Path) -> Path:
    """The source distribution, with ``setuptools`` in an environment of its own."""
    _step("build the source distribution")
    _run([sys.executable, "-m", "build", "--sdist", "--outdir", output, "."], ROOT)
    (sdist,) = output.glob("*.tar.gz")
    return sdist


def unpack(sdist: Path, folder: Path) -> Path:
    """Its one folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return source


def build_kernels(source: Path, machine: str, output: Path, jobs: int) -> Path:
    """What ``make install`` makes for an architecture, in a folder of its triple."""
    _step(f"build the kernels for {machine}")
    triple = TRIPLES[machine]
    prefix = "" if machine == platform.machine() else f"{triple}-"
    for tool in (f"{prefix}gcc", f"{prefix}ar", "make"):
        if shutil.which(tool) is None:
            raise ReleaseError(f"no {tool} on the path; apt install gcc-{triple} make")
    command = ["make", "-s", "-C", source / "runtime", f"-j{jobs}", "install"]
    command += [f"DEST={output / triple}", f"BUILD={output / f'build-{triple}'}"]
    _run([*command, f"CC={prefix}gcc", f"AR={prefix}ar"], ROOT)
    shutil.rmtree(output / f"build-{triple}")
    return output / triple


def build_wheel(
    source: Path, machine: str, kernels: Path, output: Path, isolated: bool = True
) -> Path:
    """A wheel with kernels that were built before.

    Where it is not ``isolated``, setuptools of this environment makes it.
    """
    _step(f"build the wheel for {machine}")
    shutil.rmtree(source / "build", ignore_errors=True)
    tag = f"{PLATFORM}_{machine}"
    environment = {"BYOC_KERNELS": str(kernels), "BYOC_TRIPLE": TRIPLES[machine]}
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", output, source]
    command += [f"-C--build-option=--plat-name={tag}", *([] if isolated else ["--no-isolation"])]
    _run(command, source, **environment)
    (wheel,) = output.glob(f"*-py3-none-{tag}.whl")
    return wheel


def check_metadata(files: Sequence[Path]) -> None:
    """By ``twine``, as the index would."""
    _step("check what the package says of itself")
    _run([sys.executable, "-m", "twine", "check", "--strict", *files], ROOT)


def check_platform(wheel: Path) -> None:
    """By ``auditwheel``: what the shared objects need is in the tag's system."""
    _step(f"check the platform of {wheel.name}")
    tag = wheel.stem.rsplit("-", 1)[1]
    said = json.loads(_run([sys.executable, "-m", "auditwheel", "show", "--json", wheel], ROOT))
    print(f"   {said['overall_tag']}")
    require_holds(tag, said["overall_tag"])


def require_holds(tag: str, audited: str) -> None:
    """Raise ``ReleaseError`` where a wheel needs a newer system than its tag says."""
    claimed, needed = _glibc(tag), _glibc(audited)
    if claimed is None or needed is None or needed[0] > claimed[0] or needed[1] != claimed[1]:
        raise ReleaseError(f"the wheel is tagged {tag}, and auditwheel finds {audited}")


def _glibc(tag: str) -> tuple[tuple[int, int], str] | None:
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    return ((int(found[1]), int(found[2])), found[3]) if found else None


def probe_kernels(wheel: Path, machine: str, folder: Path) -> str:
    """Ask the kernels of a wheel for their instruction set; under QEMU for another machine."""
    _step(f"run the kernels of {wheel.name}")
    with zipfile.ZipFile(wheel) as archive:
        member = "codegen_cc/_runtime/lib/libext_kernels.so"
        library = Path(archive.extract(member, folder))
    triple = TRIPLES[machine]
    here = machine == platform.machine()
    (folder / "probe.c").write_text(_PROBE)
    compiler = "gcc" if here else f"{triple}-gcc"
    flags = [f"-Wl,-rpath,{library.parent}", "-o", "probe"]
    _run([compiler, "probe.c", library, *flags], folder)
    said = _run([*([] if here else [f"qemu-{machine}", "-L", f"/usr/{triple}"]), "./probe"], folder)
    print(f"   {said.strip()}")
    return said.strip()


def compile_tiny(wheel: Path, folder: Path) -> None:
    """Install the wheel, with nothing else in an environment, and compile and run a network."""
    _step(f"install {wheel.name} and compile a network")
    folder.mkdir()
    _run([sys.executable, "-m", "venv", "env"], folder)
    python = folder / "env/bin/python"
    _run([python, "-m", "pip", "install", "--quiet", wheel], folder)
    (foreign,) = (t for m, t in TRIPLES.items() if m != platform.machine())
    foreign = foreign if foreign.startswith("aarch64") else "x86-64"
    _run([python, "-c", _TINY.replace("{foreign}", foreign)], folder, XDG_CACHE_HOME=str(folder))
    _run([folder / "env/bin/byoc", "doctor"], folder)


def _step(what: str) -> None:
    print(f"== {what}", flush=True)


def _run(command: Sequence[object], folder: Path, **environment: str) -> str:
    outside = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=outside | environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise ReleaseError(f"{' '.join(words)[:200]} failed with {done.returncode}:\n{said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
