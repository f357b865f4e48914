"""Networks through oneDNN: who computes what, the numbers, threads, and processes of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import byoc
from byoc.frontends.onnx.measured_model import draw_inputs
from codegen_cc.errors import LibraryError
from codegen_cc.libraries import registry
from models.mobilenet import mobilenet_v2
from models.resnet import resnet50
from models.zoo import ZOO
from tests.reference import assert_agrees, onnxruntime_outputs

try:
    registry.library("onednn")
except LibraryError as error:
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(byoc.__file__).parents[1]
NETWORKS = {
    "resnet50": lambda: resnet50(size=64),
    "mobilenet_v2": lambda: mobilenet_v2(size=64),
    "bert": ZOO["bert_small"].build,
}


@dataclass
class Network:
    """A network that was compiled for oneDNN, with inputs and ONNX Runtime's answer."""

    library: Path
    nodes: Counter[tuple[str, str]]
    left: list[str]
    regions: int
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


def compile_network(model: onnx.ModelProto, library: Path, libraries: str) -> Network:
    report = byoc.compile(model, library, libraries=libraries).report
    nodes = Counter((n["composite"], n["library"]) for n in report.to_json()["nodes"])
    inputs = draw_inputs(model)
    left = [left.op for left in report.left]
    expected = onnxruntime_outputs(model, inputs)
    return Network(library, nodes, left, len(report.regions), inputs, expected)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = tmp_path_factory.mktemp("resnet")
    return compile_network(NETWORKS["resnet50"](), folder / "m.so", "onednn,builtin")


def by_library(network: Network, operator: str) -> dict[str, int]:
    """How many nodes of an operator, whatever their epilogue, each library has."""
    counts: Counter[str] = Counter()
    for (composite, library), count in network.nodes.items():
        if composite.startswith(f"ext.{operator}"):
            counts[library] += count
    return dict(counts)


@pytest.mark.slow
def test_resnet(resnet: Network) -> None:
    assert by_library(resnet, "conv2d") == {"onednn": 53}
    assert by_library(resnet, "matmul") == {"onednn": 1}
    assert by_library(resnet, "max_pool2d") == {"onednn": 1}
    assert by_library(resnet, "reduce") == {"builtin": 1}
    assert (resnet.left, resnet.regions) == ([], 1)
    assert_agrees(byoc.load(resnet.library).run(resnet.inputs), resnet.expected)


@pytest.mark.slow
def test_bert(tmp_path: Path) -> None:
    network = compile_network(NETWORKS["bert"](), tmp_path / "m.so", "onednn,builtin")
    assert by_library(network, "matmul") == {"onednn": 19}
    assert by_library(network, "layer_norm") == {"onednn": 7}
    assert by_library(network, "attention") == {"builtin": 3}
    assert (network.left, network.regions) == ([], 1)
    assert_agrees(byoc.load(network.library).run(network.inputs), network.expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "bert"])
def test_alone(name: str, tmp_path: Path) -> None:
    """What oneDNN has not is TVM's, attention is two products and a softmax."""
    network = compile_network(NETWORKS[name](), tmp_path / "m.so", "onednn")
    assert {library for _, library in network.nodes} == {"onednn"}
    if name == "bert":
        assert by_library(network, "matmul") == {"onednn": 25}
        assert by_library(network, "softmax") == {"onednn": 3}
    else:
        assert by_library(network, "conv2d") == {"onednn": 52}
    assert network.left
    assert_agrees(byoc.load(network.library).run(network.inputs), network.expected)


@pytest.mark.slow
def test_forced_for_one_operator(tmp_path: Path) -> None:
    network = compile_network(NETWORKS["mobilenet_v2"](), tmp_path / "m.so", "conv2d=onednn")
    assert by_library(network, "conv2d") == {"onednn": 52}
    assert by_library(network, "matmul") == {"builtin": 1}
    assert_agrees(byoc.load(network.library).run(network.inputs), network.expected)


SCRIPT = """
import json, sys, warnings
import numpy as np
import byoc
library, inputs, outputs, threads = sys.argv[1:]
with np.load(inputs) as file:
    arrays = dict(file)
model = byoc.load(library, threads=int(threads))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    np.savez(outputs, **model.run(arrays))
sys.stdout.flush()
print("warnings: " + json.dumps([str(warning.message) for warning in caught]))
"""


def run_apart(
    network: Network, folder: Path, threads: int, script: str = SCRIPT, **environment: str
) -> tuple[str, dict[str, np.ndarray]]:
    """What a process of its own prints, and its outputs."""
    np.savez(folder / "in.npz", **network.inputs)
    files = [network.library, folder / "in.npz", folder / "out.npz"]
    done = subprocess.run(
        [sys.executable, "-c", script, *files, str(threads)],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as file:
        return done.stdout, dict(file)


def has_avx512() -> bool:
    try:
        return " avx512dq" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.parametrize("threads", [1, 2])
def test_onednn_itself_says_what_it_ran(resnet: Network, tmp_path: Path, threads: int) -> None:
    """In a fresh process, with no path set."""
    text, outputs = run_apart(resnet, tmp_path, threads, ONEDNN_VERBOSE="1")
    assert_agrees(outputs, resnet.expected)
    ran = re.findall(r"^onednn_verbose,.*exec,cpu,(\w+),([^,]*),", text, re.MULTILINE)
    counts = Counter(primitive for primitive, _ in ran)
    assert (counts["convolution"], counts["matmul"], counts["pooling"]) == (53, 1, 1)
    if has_avx512():
        slow = [found for found in ran if found[1].startswith(("ref", "simple"))]
        assert not [found for found in slow if found[0] != "reorder"]
    assert text.splitlines()[-1] == "warnings: []"


def test_too_few_threads_are_reported(resnet: Network, tmp_path: Path) -> None:
    """And counted with: oneDNN computes a part only where it gets fewer than it expects."""
    text, outputs = run_apart(resnet, tmp_path, 2, OMP_THREAD_LIMIT="1")
    assert_agrees(outputs, resnet.expected)
    (warning,) = json.loads(text.splitlines()[-1].removeprefix("warnings: "))
    assert warning.startswith("library onednn uses 1 threads where 2 are asked for")


def test_number_of_threads_is_no_mere_proposal(resnet: Network, tmp_path: Path) -> None:
    _, outputs = run_apart(resnet, tmp_path, 3, OMP_DYNAMIC="true")
    assert_agrees(outputs, resnet.expected)


FORK = """
import os, sys
import numpy as np
import byoc
library, inputs, outputs, threads = sys.argv[1:]
with np.load(inputs) as file:
    arrays = dict(file)
model = byoc.load(library, threads=int(threads))
model.run(arrays)
child = os.fork()
if child == 0:
    np.savez(outputs, **model.run(arrays))
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_forked_child(resnet: Network, tmp_path: Path) -> None:
    """The threads of the parent are not there; a child computes with one."""
    _, outputs = run_apart(resnet, tmp_path, 2, FORK)
    assert_agrees(outputs, resnet.expected)
