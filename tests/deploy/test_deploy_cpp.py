"""examples/deploy_cpp on this machine: built with make and CMake, answers, errors, shipping."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import byoc
from examples.deploy_cpp.prepare import classifier
from tests.deploy.cpp_programs import (
    EXAMPLE,
    PICTURES,
    ROOT,
    make,
    metadata_of,
    pixels,
    prepare,
    run,
    run_network,
    said,
    scores,
)
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.reference import assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.slow  # what all its tests share takes longest

CONTAINER = ROOT / "examples" / "container"
#: What a small Linux with C and C++ libraries brings.
SYSTEM = {"libc", "libm", "libstdc++", "libgcc_s", "libdl", "libpthread", "ld-linux-x86-64"}
LABELS = ["upright", "upside down"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``make`` and ``prepare.py`` fill, as the README has it."""
    folder = tmp_path_factory.mktemp("cpp") / "build"
    make(folder)
    prepare(folder)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What CMake installs, built by clang where there is one."""
    if shutil.which("cmake") is None:
        pytest.skip("no cmake on the path")
    folder = tmp_path_factory.mktemp("cmake")
    options = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-Werror"]
    options.append(f"-DPython3_EXECUTABLE={sys.executable}")
    if clang := shutil.which("clang++"):
        options.append(f"-DCMAKE_CXX_COMPILER={clang}")
    said("cmake", "-S", EXAMPLE, "-B", folder / "build", *options)
    said("cmake", "--build", folder / "build", f"-j{os.cpu_count()}")
    said("cmake", "--install", folder / "build", "--prefix", folder / "installed")
    return folder / "installed"


def expected_scores(picture: Path) -> dict[str, float]:
    """ONNX Runtime's probabilities by label, the greatest first."""
    (answer,) = onnxruntime_outputs(classifier(), {"x": pixels(picture)}).values()
    return dict(sorted(zip(LABELS, answer[0], strict=True), key=lambda pair: -pair[1]))


def test_the_network_is_offloaded(built: Path) -> None:
    report = metadata_of(built / "model.so").report
    assert (report["operators"], len(report["regions"])) == (report["offloaded"], 1)


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_is_classified(built: Path, picture: str) -> None:
    command = [built / "classify", built / "model.so", built / picture]
    expected = expected_scores(built / picture)
    found = scores(said(*command, built / "labels.txt"))
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=0, abs=1e-4)
    by_number = scores(said(*command))
    assert by_number == {str(LABELS.index(label)): score for label, score in found.items()}


def test_the_pictures_are_told_apart(built: Path) -> None:
    """One of each kind, and one in between, where other pixels would give another number."""
    best = [
        max(expected_scores(built / picture).items(), key=lambda p: p[1]) for picture in PICTURES
    ]
    assert [label for label, _ in best[:2]] == LABELS
    assert best[0][1] > 0.99 and best[1][1] > 0.99 and best[2][1] < 0.95


def test_what_cmake_installs_is_whole(built: Path, installed: Path) -> None:
    names = {"classify", "classify_threads", "run", "libtvm_runtime.so", "libtvm_ffi.so"}
    names.add("libtvm_runtime_extra.so")
    assert {path.name for path in installed.iterdir()} == names
    printed = said(installed / "classify", built / "model.so", built / PICTURES[2])
    assert printed == said(built / "classify", built / "model.so", built / PICTURES[2])


def test_many_threads_get_the_answers_of_one(built: Path) -> None:
    pictures = [built / picture for picture in PICTURES]
    printed = said(built / "classify_threads", built / "model.so", 4, 20, *pictures)
    assert re.fullmatch(
        r"1 thread: [\d.e+]+ pictures per second\n4 threads: [\d.e+]+ pictures per second\n"
        r"all answers are those of one thread\n",
        printed,
    )


def test_any_network_runs_from_files(built: Path, tmp_path: Path) -> None:
    """Two inputs and two outputs, a part computed by TVM; from another folder, by relative path."""
    compiled = byoc.compile(two_by_two(), tmp_path / "two.so", skip_ops=["softmax"])
    assert len(compiled.report.regions) == 1
    assert compiled.report.operators > compiled.report.offloaded
    inputs = inputs_of_two_by_two(1)
    found = run_network([built / "run", "-n", 3, "-t", 2], tmp_path / "two.so", inputs, tmp_path)
    assert_agrees(found, onnxruntime_outputs(two_by_two(), inputs))
    done = subprocess.run(
        [built / "run", "two.so"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr == "error: 0 files; the network has 2 inputs and 2 outputs\n"


def test_the_classifier_agrees_to_the_last_digit_that_counts(built: Path, tmp_path: Path) -> None:
    inputs = {"x": pixels(built / PICTURES[2])}
    found = run_network([built / "run"], built / "model.so", inputs, tmp_path)
    assert_agrees(found, onnxruntime_outputs(classifier(), inputs))


def foreign(folder: Path) -> Path:
    """A library whose header says that it is for a 64-bit PowerPC."""
    content = bytearray((folder / "model.so").read_bytes())
    content[18:20] = (21).to_bytes(2, "little")
    (folder / "foreign.so").write_bytes(content)
    return folder / "foreign.so"


def test_a_wrong_file_is_one_line(built: Path, tmp_path: Path) -> None:
    model, picture = built / "model.so", built / PICTURES[0]
    small, cut = tmp_path / "small.ppm", tmp_path / "cut.ppm"
    small.write_bytes(b"P6 1 1 255\n\0\0\0")
    cut.write_bytes(picture.read_bytes()[:-1])
    for arguments, text in (
        ([], "usage: classify MODEL.so PICTURE.ppm [LABELS.txt]"),
        ([tmp_path / "no.so", picture], f"cannot load {tmp_path}/no.so: No such file or directory"),
        ([picture, picture], f"cannot load {picture}: it is no ELF library"),
        (
            [foreign(built), picture],
            f"cannot load {built}/foreign.so: it is for another architecture than this program; "
            "compile the model with --target",
        ),
        (
            [built / "libtvm_ffi.so", picture],
            f"cannot load {built}/libtvm_ffi.so: it is not what `byoc compile` writes",
        ),
        ([model, tmp_path / "no.ppm"], f"cannot read {tmp_path}/no.ppm: No such file or directory"),
        ([model, model], f"cannot read {model}: need a binary PPM of 8 bits per colour"),
        ([model, small], f"{small} has 1x1 pixels; the network takes 192x48"),
        ([model, cut], f"cannot read {cut}: it ends before its last pixel"),
        ([model, picture, "no.txt"], "cannot read no.txt: No such file or directory"),
    ):
        done = run(built / "classify", *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {text}\n")


def test_the_other_programs_say_what_is_wrong(built: Path, tmp_path: Path) -> None:
    model, picture = built / "model.so", built / PICTURES[0]
    usage = "usage: classify_threads MODEL.so THREADS ROUNDS PICTURE.ppm..."
    files = "usage: run [-n RUNS] [-t THREADS] MODEL.so INPUT... OUTPUT..."
    for command, text in (
        (["classify_threads", model, "x", 1, picture], usage),
        (["run", "-t", "0", model], files),
        (["run", "-q", model], files),
        (["run", model, picture, tmp_path / "y"], f"{picture} does not have the 110592 bytes of x"),
    ):
        done = run(built / command[0], *command[1:])
        assert (done.returncode, done.stderr) == (1, f"error: {text}\n")


def test_a_makefile_without_tvm_says_so(tmp_path: Path) -> None:
    done = run(
        "make", "-C", EXAMPLE, f"BUILD={tmp_path}", f"TVM_LIBRARIES={tmp_path}", "PYTHON=true"
    )
    assert done.returncode == 2
    assert "no libtvm_runtime.so: install apache-tvm for true, or give TVM_LIBRARIES" in done.stderr


def test_the_page_names_every_file() -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLE.iterdir() if path.is_file() and path.name != "README.md"]
    assert [name for name in names if f"`{name}`" not in page] == []


def system_libraries(program: Path) -> list[Path]:
    """The libraries that a program finds on the system."""
    found = [Path(word) for word in said("ldd", program).split() if word.startswith("/")]
    return [path for path in found if path.parent != program.parent]


def test_nothing_else_is_needed(built: Path) -> None:
    """No Python among it."""
    names = {path.name.partition(".so")[0] for path in system_libraries(built / "classify")}
    assert names <= SYSTEM


def copied(containerfile: str) -> list[tuple[list[str], str]]:
    """What the last stage of a recipe copies from the first: sources and destination."""
    text = (CONTAINER / containerfile).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.startswith("COPY --from=build ")]
    assert lines
    return [(words[2:-1], words[-1]) for words in lines]


def entry_point(containerfile: str) -> list[str]:
    """The command of a recipe."""
    text = (CONTAINER / containerfile).read_text(encoding="utf-8")
    return json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[-1])


@pytest.mark.parametrize("recipe", ["Containerfile", "Containerfile.python"])
def test_a_recipe_copies_what_is_there(recipe: str) -> None:
    """From the source tree, all that the package is built from among it."""
    lines = (CONTAINER / recipe).read_text(encoding="utf-8").splitlines()
    own = [line.split()[1:-1] for line in lines if re.match("COPY (?!--)", line)]
    sources = {source for several in own for source in several}
    assert sources >= {"pyproject.toml", "setup.py", "MANIFEST.in", "byoc", "codegen_cc", "runtime"}
    assert [source for source in sources if not (ROOT / source).exists()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_the_container_has_all_that_runs(built: Path, tmp_path: Path) -> None:
    """Its last stage as a root folder of its own: the files copied, and the C and C++ libraries."""
    for path in system_libraries(built / "classify"):
        (tmp_path / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to("/"))
    for sources, destination in copied("Containerfile"):
        place = tmp_path / destination.strip("/")
        place.mkdir(exist_ok=True)
        for source in sources:
            shutil.copy(built / Path(source).relative_to("/app"), place)
    shutil.copy(built / PICTURES[1], tmp_path)
    # The dynamic linker asks /proc, which a container has, where the program lies.
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "exe").symlink_to(entry_point("Containerfile")[0])
    command = [*entry_point("Containerfile"), f"/{PICTURES[1]}", "/app/labels.txt"]
    found = scores(said("chroot", tmp_path, *command))
    assert found == pytest.approx(expected_scores(built / PICTURES[1]), rel=0, abs=1e-4)


def test_the_python_container_has_all_that_runs(built: Path, tmp_path: Path) -> None:
    """The packages that its last stage has, and Python's own library."""
    installed = Path(byoc.__file__).parents[1], Path(np.__file__).parents[1]
    for sources, destination in copied("Containerfile.python"):
        for source in sources:
            relative = Path(source).relative_to("/site")
            place = tmp_path / destination.strip("/")
            path = next(folder / relative for folder in installed if (folder / relative).exists())
            if path.is_dir():
                shutil.copytree(path, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
    np.save(tmp_path / "x.npy", pixels(built / PICTURES[2]))
    # Without site, an environment's packages are not seen.
    program = CONTAINER / Path(entry_point("Containerfile.python")[1]).name
    done = subprocess.run(
        [sys.executable, "-S", program, built / "model.so", tmp_path / "x.npy"],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = np.array(json.loads(done.stdout)["save_infer_model/scale_0.tmp_1"])
    (expected,) = onnxruntime_outputs(classifier(), {"x": pixels(built / PICTURES[2])}).values()
    assert np.abs(found - expected).max() < 1e-4
