"""examples/deploy_c, built and run as its README says, here and for another architecture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from byoc.compiler.standalone import compile_standalone
from byoc.deploy.compiled_file import read_compiled
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.target import HOST, Target
from models.bert import bert
from tests.models.test_states import Reference
from tests.reference import TOLERANCE, assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.slow  # what all its tests share takes longest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deploy_c"
STRICT = "-O2 -Wall -Wextra -Werror -pedantic"
ARM = Target.parse("aarch64-linux-gnu")
EMULATED = ("qemu-aarch64", "-L", f"/usr/{ARM.triple}")

arm = pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which(f"{ARM.triple}-gcc"),
    reason="needs aarch64-linux-gnu-gcc and qemu-aarch64",
)


def said(*command: object, **options: object) -> str:
    """What a command prints; it must succeed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make(folder: Path, *goals: str, **variables: str) -> str:
    """Build the example with its Makefile, warnings as errors."""
    flags = {"CFLAGS": f"-std=c11 {STRICT}", "PYTHON": sys.executable, "OUT": str(folder)}
    flags |= {"BYOC": f"{sys.executable} -m byoc"} | variables
    given = [f"{name}={value}" for name, value in flags.items()]
    return said("make", "-s", "-C", EXAMPLE, *given, *goals)


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> Path:
    """A folder with the networks, their libraries and the programs."""
    folder = tmp_path_factory.mktemp("deploy_c")
    output = make(folder, "all", "shared")
    assert len(re.findall(r"100.0 % of MACs, 1 region$", output, re.MULTILINE)) == 3
    return folder


def write_image(folder: Path) -> np.ndarray:
    """An image for squeezenet, which is ``image.f32`` as well."""
    (image,) = draw_inputs(onnx.load(folder / "squeezenet.onnx"), seed=4).values()
    image.tofile(folder / "image.f32")
    return image


def assert_best_answers(output: str, folder: Path, image: np.ndarray) -> None:
    """The five lines of ``main`` are ONNX Runtime's five best classes."""
    (scores,) = onnxruntime_outputs(folder / "squeezenet.onnx", {"image": image}).values()
    lines = re.findall(r"class +(\d+)  (\d\.\d{7})", output)
    best = np.argsort(-scores[0], kind="stable")[:5]
    assert [int(index) for index, _ in lines] == list(best)
    found = np.array([float(score) for _, score in lines])
    limit = TOLERANCE["float32"] * np.ptp(scores)
    np.testing.assert_allclose(found, scores[0][best], rtol=0, atol=limit)


@pytest.mark.parametrize("program", ["main", "main_shared"])
@pytest.mark.parametrize("threads", [0, 1, 2])
def test_best_answers(example: Path, program: str, threads: int) -> None:
    image = write_image(example)
    output = said(example / program, threads, example / "image.f32")
    assert_best_answers(output, example, image)


def test_an_image_of_the_wrong_size(example: Path) -> None:
    (example / "short.f32").write_bytes(b"\0" * 40)
    command = [example / "main", "1", example / "short.f32"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("short.f32 has 10 numbers; need 150528\n")


def test_wrong_options_are_explained(example: Path) -> None:
    done = subprocess.run([example / "main", "-3"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "cannot create the model: squeezenet: options.threads is -3; need 0 to 1024\n"
    )


def test_two_models_in_one_program(example: Path) -> None:
    output = said(example / "two_models")
    image = (np.arange(3 * 224 * 224, dtype=np.float32) % 7 - 3).reshape(1, 3, 224, 224)
    tokens = np.arange(64, dtype=np.int64)[None]
    inputs = {
        "squeezenet": {"image": image},
        "bert_small": {
            "input_ids": 17 * tokens % 1000,
            "attention_mask": (tokens < 32).astype(np.int64),
        },
    }
    for name, value in re.findall(r"(\w+): done; .* (-?\d\.\d+)$", output, re.MULTILINE):
        expected = list(onnxruntime_outputs(example / f"{name}.onnx", inputs.pop(name)).values())[
            -1
        ]
        assert abs(float(value) - expected.flat[0]) <= 1e-4 * np.ptp(expected)
    assert not inputs, output


def continued(file: Path, tokens: list[int], count: int) -> list[int]:
    """The likeliest tokens behind some, by ONNX Runtime, which is handed the cache back."""
    reference, past, found = Reference(onnx.load(file), 1), 0, list(tokens)
    for _ in range(count):
        new = np.array([found[past:]])
        places = np.arange(past, len(found))[None]
        seen = np.ones((1, len(found)), np.int64)
        given = {"input_ids": new, "attention_mask": seen, "position_ids": places}
        past = len(found)
        found.append(int(reference.step(given)[0, -1].argmax()))
    return found[len(tokens) :]


def test_a_decoder_writes_token_after_token(example: Path) -> None:
    tokens = [7, 1201, 33, 980, 4]
    output = said(example / "decode", 12, *tokens)
    assert list(map(int, output.split())) == continued(example / "llama_decoder.onnx", tokens, 12)
    for wrong in ((), (3,), (1024, 1)):
        assert subprocess.run([example / "decode", *map(str, wrong)]).returncode == 2


@pytest.mark.parametrize("name", ["squeezenet", "bert_small"])
def test_python_with_ctypes(example: Path, name: str) -> None:
    inputs = draw_inputs(onnx.load(example / f"{name}.onnx"), seed=5)
    library = example / "model" / "lib" / f"lib{name}.so"
    files = []
    for input_name, array in inputs.items():
        files.append(example / f"{input_name}.npy")
        np.save(files[-1], array)
    said(sys.executable, "-I", EXAMPLE / "run.py", library, *files)
    expected = onnxruntime_outputs(example / f"{name}.onnx", inputs)
    assert_agrees({n: np.load(library.with_name(f"{n}.npy")) for n in expected}, expected)


def test_python_with_ctypes_chooses_sizes(example: Path) -> None:
    library = example / "model" / "lib" / "libllama_decoder.so"
    draw = np.random.default_rng(6)
    inputs = {
        "input_ids": draw.integers(0, 2000, (2, 7)),
        "attention_mask": np.ones((2, 7), np.int64),
        "position_ids": np.tile(np.arange(7), (2, 1)),
    }
    files = []
    for name, array in inputs.items():
        files.append(example / f"{name}.npy")
        np.save(files[-1], array)
    said(sys.executable, "-I", EXAMPLE / "run.py", library, "batch=2", "sequence=7", *files)
    want = Reference(onnx.load(example / "llama_decoder.onnx"), 2).step(inputs)
    assert_agrees({"logits": np.load(library.with_name("logits.npy"))}, {"logits": want})
    short = [sys.executable, EXAMPLE / "run.py", library, "batch=2"]
    done = subprocess.run(short, capture_output=True, text=True)
    assert "llama_decoder needs sequence=SIZE" in done.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("language", ["-xc -std=c11", "-xc -std=c17", "-xc++ -std=c++17"])
def test_strict_languages(example: Path, compiler: str, language: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    flags = [*language.split(), *STRICT.split(), "-Wconversion", "-fsyntax-only"]
    for source in ("main.c", "two_models.c", "decode.c"):
        said(compiler, *flags, f"-I{example / 'model' / 'include'}", EXAMPLE / source)


def test_the_programs_are_short() -> None:
    for source in ("main.c", "two_models.c", "decode.c"):
        assert len((EXAMPLE / source).read_text().splitlines()) < 60


# ------------------------------------------------------------------ another architecture


@arm
def test_the_example_for_arm(tmp_path: Path) -> None:
    flags = {"CC": " ".join(ARM.compiler()), "BYOC_FLAGS": f"--target {ARM.name}"}
    goals = [str(tmp_path / "main"), str(tmp_path / "decode"), "shared"]
    output = make(tmp_path, *goals, **flags)
    assert output.count("100.0 % of MACs, 1 region") == 2
    assert read_compiled(tmp_path / "model" / "lib" / "libsqueezenet.so").machine == "aarch64"
    image = write_image(tmp_path)
    for program in ("main", "main_shared"):
        output = said(*EMULATED, tmp_path / program, 2, tmp_path / "image.f32")
        assert_best_answers(output, tmp_path, image)
    output = said(*EMULATED, tmp_path / "decode", 5, 8, 9)
    want = continued(tmp_path / "llama_decoder.onnx", [8, 9], 5)
    assert list(map(int, output.split())) == want


@pytest.mark.parametrize("target", [HOST, pytest.param(ARM, marks=arm)], ids=lambda t: t.name)
def test_tokens_and_two_outputs(target: Target, tmp_path: Path) -> None:
    model = bert(layers=1, hidden=64, heads=2, sequence=12, vocabulary=100)
    inputs = draw_inputs(model, below=100)
    done = compile_standalone(model, tmp_path / "model", name="tokens", target=target.name)
    assert len(done.report.regions) == 1 and not done.report.left
    command = [*target.compiler(), "-std=gnu11", "-O2", "-DNAME=tokens", "-include", "tokens.h"]
    command += [f"-I{done.folder / 'include'}", Path(__file__).with_name("standalone_files.c")]
    said(*command, done.folder / "lib" / "libtokens.a", "-lm", "-pthread", "-o", tmp_path / "files")
    expected = onnxruntime_outputs(model, inputs)
    for name, array in inputs.items():
        array.tofile(tmp_path / name)
    for threads in (1, 3):
        files = [tmp_path / name for name in (*inputs, *expected)]
        said(*(EMULATED if target.is_foreign else ()), tmp_path / "files", threads, *files)
        found = {
            name: np.fromfile(tmp_path / name, want.dtype).reshape(want.shape)
            for name, want in expected.items()
        }
        assert_agrees(found, expected)
