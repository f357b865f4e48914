"""MLServer in a process of its own, asked by stock clients over REST and gRPC."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models.builder import GraphBuilder
from tests.integrations.conftest import Network
from tests.integrations.networks import (
    CLASSES,
    COUNT,
    SIDE,
    classifier,
    compile_whole,
    images,
    pictures,
)
from tests.reference import onnxruntime_outputs

pytestmark = pytest.mark.slow  # what all its tests share takes longest

_TOLERANCE = 1e-5
_WIDE = 64
_PORTS = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
EXAMPLE = Path(__file__).parents[2] / "examples" / "serve" / "models"


def slow() -> onnx.ModelProto:
    """X [batch, 8, 4, 4] to y [batch, 64], with 10 GMAC for each row."""
    graph = GraphBuilder("slow", 3)
    x = graph.input("x", ("batch", 8, 4, 4))
    x = graph.conv(x, (8, _WIDE), 1)
    scales = graph.constant(np.array([1, 1, 64, 64], np.float32), "scales")
    x = graph.op("Resize", x, "", scales, mode="nearest")
    for _ in range(4):
        x = graph.op("Relu", graph.conv(x, (_WIDE, _WIDE), 3))
    x = graph.op("Flatten", graph.op("GlobalAveragePool", x))
    graph.output(x, "y", ("batch", _WIDE))
    return graph.build()


def _settings(folder: Path, name: str, version: str, **extra: Any) -> Path:
    place = folder / name / version
    place.mkdir(parents=True)
    parameters = {"uri": f"./{name}.so", "version": version, "extra": extra}
    implementation = "byoc.integrations.mlserver.Runtime"
    text = {"name": name, "implementation": implementation, "parameters": parameters}
    (place / "model-settings.json").write_text(json.dumps(text))
    return place / f"{name}.so"


@pytest.fixture(scope="module")
def jobs(
    network: Network, in_engines: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What ``tests/integrations/serve_jobs.py`` saw."""
    folder = tmp_path_factory.mktemp("serve")
    shutil.copytree(EXAMPLE, folder / "models")
    shutil.copy(network.library, folder / "models" / "classifier" / "1" / "model.so")
    limits = {"max_queue_rows": 64, "reload_seconds": 0.1}
    shutil.copy(network.library, _settings(folder / "models", "classifier", "2", **limits))
    limits = {"max_queue_rows": 4, "max_batch_rows": 4, "callers": 1}
    compile_whole(slow(), _settings(folder / "models", "slow", "1", **limits))
    compile_whole(classifier(seed=8), folder / "new.so")
    (folder / "broken.so").write_bytes((folder / "new.so").read_bytes()[:-200])
    shutil.copytree(EXAMPLE, folder / "workers")
    shutil.copy(network.library, folder / "workers" / "classifier" / "1" / "model.so")
    places = {f"{name}_dir": str(folder / name) for name in ("metrics", "environments")}
    for name, workers in (("damaged", 0), ("damaged workers", 1)):
        shutil.copy(folder / "broken.so", _settings(folder / name, "broken", "1"))
        settings = json.dumps({"parallel_workers": workers, **places, **_PORTS})
        (folder / name / "settings.json").write_text(settings)
    shutil.copytree(folder / "models" / "classifier", folder / "unreadable" / "classifier")
    settings = folder / "unreadable" / "classifier" / "2" / "model-settings.json"
    settings.write_text('{"name": ')
    settings = _settings(folder / "no uri", "m", "1").parent / "model-settings.json"
    text = json.loads(settings.read_text())
    del text["parameters"]["uri"]
    settings.write_text(json.dumps(text))
    (folder / "no uri" / "settings.json").write_text(json.dumps({"host": "127.0.0.1", **_PORTS}))
    (folder / "empty").mkdir()
    (folder / "senseless").mkdir()
    (folder / "senseless" / "settings.json").write_text('{"http_port": "many"}')
    np.save(folder / "images.npy", images(pictures(COUNT)))
    return in_engines("tests.integrations.serve_jobs", folder)


def test_each_version_answers_over_rest_and_grpc(
    jobs: dict[str, Any], expected: np.ndarray
) -> None:
    found = dict(jobs["answers"])
    about, example = found.pop("about"), found.pop("example")
    assert len(found) == 6
    for scores in found.values():
        np.testing.assert_allclose(scores, expected[:3], atol=_TOLERANCE)
    image = {"name": "image", "datatype": "FP32", "shape": [-1, 3, SIDE, SIDE]}
    scores = {"name": "scores", "datatype": "FP32", "shape": [-1, CLASSES]}
    named = re.fullmatch(r"class (\d) over REST, (\d) over gRPC\n", example)
    assert named is not None and named[1] == named[2]
    assert about["inputs"] == [image] and about["outputs"] == [scores]


@pytest.mark.parametrize("when", ["many", "many again"])
def test_requests_are_joined_and_each_gets_its_rows(
    jobs: dict[str, Any], expected: np.ndarray, when: str
) -> None:
    """Once more after a reload through the server's repository."""
    for number, scores in enumerate(jobs[when]["scores"]):
        rows = expected[number % 20 : number % 20 + 1 + number % 3]
        np.testing.assert_allclose(scores, rows, atol=_TOLERANCE)
    calls, rows, timed = jobs[when]["grew"]
    assert rows == 96 and calls == timed < 48


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("name", 400, "unknown input 'picture'; classifier.so takes image: float32[batch, 3, 16"),
        ("dtype", 400, "input 'image' has dtype int32; need float32 (nothing is cast)"),
        ("shape", 400, "input 'image' has shape [1, 3, 8, 16]; need [batch, 3, 16, 16]"),
        ("elements", 400, "input 'image' has 5 elements; shape [1, 3, 16, 16] needs 768"),
        ("text", 400, "input 'image' has elements that are no FP32; nothing is cast"),
        ("rows", 400, "input 'image' has rows of different lengths"),
        ("coded", 400, "input 'image' has the content type 'base64'; need numbers"),
        ("output", 400, "unknown output 'label'; classifier gives scores: float32[batch, 10]"),
        ("no rows", 200, f'"shape":[0,{CLASSES}],"datatype":"FP32"'),
        ("version", 404, "Model classifier with version 9 not found"),
        ("json", 422, "JSON"),
        ("packed", 415, "the body is compressed (gzip); send it as it is"),
        ("grpc name", "StatusCode.INVALID_ARGUMENT", "unknown input 'picture'; classifier.so"),
        ("grpc dtype", "StatusCode.INVALID_ARGUMENT", "input 'image' has dtype int32; need"),
        ("grpc shape", "StatusCode.INVALID_ARGUMENT", "has shape [1, 3, 8, 16]; need [batch, 3"),
        ("grpc good", "", ""),
        ("grpc bytes", "StatusCode.INVALID_ARGUMENT", "has 5 bytes; FP32[1, 3, 16, 16] needs 3072"),
        ("grpc extent", "StatusCode.INVALID_ARGUMENT", "need extents of 0 or more"),
        ("grpc datatype", "StatusCode.INVALID_ARGUMENT", "input 'image' has datatype FP8; need"),
        ("grpc text", "StatusCode.INVALID_ARGUMENT", "input 'image' has datatype BYTES; need"),
        ("grpc contents", "StatusCode.INVALID_ARGUMENT", "2 raw contents for 'image'; need one"),
        ("grpc large", "StatusCode.RESOURCE_EXHAUSTED", "larger than max"),
        ("grpc rows", "StatusCode.RESOURCE_EXHAUSTED", "a request of 69 rows; need 64 at most"),
    ],
)
def test_wrong_requests_get_a_status_and_a_line(
    jobs: dict[str, Any], what: str, status: int | str, text: str
) -> None:
    assert jobs["refused"]["good"][0] == 200
    found, said = jobs["refused"][what]
    assert found == status and text in said


def test_a_body_over_the_limit_is_refused(jobs: dict[str, Any]) -> None:
    """The server may close the connection before the client has sent everything."""
    status, said = jobs["refused"]["large"]
    assert (status, said) == (413, '{"error": "the body is larger than 2000000 bytes"}') or (
        status == 0 and ("Broken pipe" in said or "reset" in said)
    )


def test_a_full_queue_is_429(jobs: dict[str, Any]) -> None:
    found = dict(jobs["crowded"])
    full = found.pop("429 4 rows wait for the network and 4 may; ask again later")
    assert full >= 1 and sum(found.values()) + full == 6 and set(found) == {"200 "}


def test_a_replaced_file_is_taken_between_requests(
    jobs: dict[str, Any], expected: np.ndarray
) -> None:
    """Every request is answered, first by the old network, then by the new one and no other."""
    image = images(pictures(COUNT))[:1]
    new = onnxruntime_outputs(classifier(seed=8), {"image": image})["scores"][0]
    found = np.array(jobs["replaced"]["scores"])
    is_new = np.abs(found - new).max(1) < _TOLERANCE
    is_old = np.abs(found - expected[0]).max(1) < _TOLERANCE
    assert (is_new ^ is_old).all() and is_new[-1]
    assert (np.diff(is_new.astype(int)) >= 0).all()
    assert jobs["replaced"]["ready"] == 200 and jobs["repository"][0] == 200


def test_networks_run_in_workers(jobs: dict[str, Any], expected: np.ndarray) -> None:
    for scores in jobs["workers"]["scores"]:
        np.testing.assert_allclose(scores, expected[:3], atol=_TOLERANCE)
    status, text = jobs["workers"]["refused"]
    assert status == 400 and "unknown input 'x'; model.so takes image" in text
    assert jobs["workers"]["loaded"] == 2 and jobs["workers"]["exit"] == 0


def test_a_server_without_its_models_ends_with_a_line(jobs: dict[str, Any]) -> None:
    found = jobs["not loaded"]
    assert {code for code, *_ in found.values()} == {2}
    for name in ("damaged", "damaged workers"):
        line = found[name][1]
        assert line.startswith("error: cannot serve broken: ") and "broken.so" in line
    for name, text in (
        ("senseless", "error: cannot read the settings in"),
        ("empty", "has no model-settings.json"),
        ("absent", "no such folder"),
        ("unreadable", "classifier/2/model-settings.json: Expecting value"),
        ("no uri", "error: cannot serve m: parameters.uri is the folder"),
        ("taken", "Address already in use; choose another http_port or host in settings.json"),
        ("taken grpc", "Address already in use; choose another grpc_port or host"),
    ):
        assert text in found[name][1]
    traced = {name: text for name, (_, _, text) in found.items() if text}
    traced.pop("damaged workers", None)  # where the worker's error is one of MLServer's
    assert traced == {}


def test_a_signal_ends_the_server(jobs: dict[str, Any]) -> None:
    assert jobs["exit"] == 0
