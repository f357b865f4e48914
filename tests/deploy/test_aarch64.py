"""Networks for 64-bit ARM: compiled here, run by the C++ example under QEMU.

The libraries of TVM's aarch64 wheel are those that ``make aarch64-libraries`` fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import byoc
from byoc.errors import LoadError
from byoc.frontends.onnx.measured_model import draw_inputs
from examples.deploy_cpp.prepare import classifier
from models.squeezenet import squeezenet
from models.zoo import ZOO
from tests.deploy.aarch64 import LIBRARIES, QEMU, TARGET, missing
from tests.deploy.cpp_programs import (
    PICTURES,
    make,
    metadata_of,
    pixels,
    prepare,
    run,
    run_network,
    said,
    scores,
)
from tests.reference import assert_agrees, onnxruntime_outputs

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example for aarch64: two programs, TVM's libraries, the classifier and its pictures."""
    folder = tmp_path_factory.mktemp("aarch64") / "build"
    flags = "-O0 -Wall -Wextra -Werror"
    variables = {"CXX": f"{TARGET}-g++", "TVM_LIBRARIES": LIBRARIES, "CXXFLAGS": flags}
    make(folder, "classify", "run", "libtvm_runtime.so", "libtvm_ffi.so", **variables)
    prepare(folder, "--target", TARGET)
    return folder


#: Networks, and how many regions they have.
NETWORKS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, object], int]] = {
    "squeezenet": (lambda: squeezenet(size=64), {}, 1),
    "bert_small": (ZOO["bert_small"].build, {}, 1),
    "with_tvm": (lambda: squeezenet(size=64), {"skip_ops": ["max_pool2d", "softmax"]}, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_gives_the_answers_of_onnxruntime(built: Path, name: str, tmp_path: Path) -> None:
    build, options, regions = NETWORKS[name]
    model = build()
    compiled = byoc.compile(model, tmp_path / "arm.so", target=TARGET, **options)
    assert len(compiled.report.regions) == regions
    assert (compiled.report.operators > compiled.report.offloaded) == bool(options)
    target = metadata_of(tmp_path / "arm.so").target
    assert target is not None
    assert (target.machine, target.name) == ("aarch64", TARGET)
    assert target.kernel_levels == ("neon",)

    inputs = draw_inputs(model)
    found = run_network([*QEMU, built / "run", "-t", 2], tmp_path / "arm.so", inputs, tmp_path)
    assert_agrees(found, onnxruntime_outputs(model, inputs))
    byoc.compile(model, tmp_path / "here.so", **options)
    assert_agrees(found, byoc.load(tmp_path / "here.so").run(inputs))


def test_the_classifier_gives_the_answers_of_onnxruntime(built: Path, tmp_path: Path) -> None:
    """A trained network with depthwise convolutions and squeeze-and-excitation blocks."""
    metadata = metadata_of(built / "model.so")
    assert metadata.target is not None and metadata.target.machine == "aarch64"
    assert len(metadata.report["regions"]) == 1
    inputs = {"x": pixels(built / PICTURES[2])}
    expected = onnxruntime_outputs(classifier(), inputs)
    found = run_network([*QEMU, built / "run"], built / "model.so", inputs, tmp_path)
    assert_agrees(found, expected)
    printed = said(*QEMU, built / "classify", built / "model.so", built / PICTURES[2])
    (answer,) = expected.values()
    by_number = {str(number): score for number, score in enumerate(answer[0])}
    assert scores(printed) == pytest.approx(by_number, rel=0, abs=1e-4)


@pytest.mark.slow
def test_each_machine_refuses_the_other_ones_library(built: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"model\.so: it is for aarch64, and this machine is "):
        byoc.load(built / "model.so")
    byoc.compile(classifier(), tmp_path / "here.so", {"x": [1, 3, 48, 192]})
    done = run(*QEMU, built / "classify", tmp_path / "here.so", built / PICTURES[0])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: cannot load {tmp_path}/here.so: it is for another architecture than this program; "
        "compile the model with --target\n"
    )
