"""Ray Data on a real cluster of several nodes. All jobs run on one cluster, in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen_cc.link.checksum import seal
from tests.integrations.conftest import Network
from tests.integrations.networks import COUNT, classifier, compile_whole, pictures

pytestmark = pytest.mark.slow  # what all its tests share takes longest

_MACHINE_AT, _AARCH64 = 18, 183  # e_machine of the ELF header
_TOLERANCE = 1e-5
_WEIGHTS_KB = 2000


@pytest.fixture(scope="module")
def jobs(
    network: Network, in_engines: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What ``tests/integrations/ray_jobs.py`` found."""
    folder = tmp_path_factory.mktemp("ray")
    content = bytearray(network.library.read_bytes())
    (folder / "classifier.so").write_bytes(content)
    content[_MACHINE_AT] = _AARCH64
    (folder / "foreign.so").write_bytes(content)
    seal(folder / "foreign.so")
    compile_whole(classifier(batch=4), folder / "fixed.so")
    np.save(folder / "pictures.npy", pictures(COUNT))
    return in_engines("tests.integrations.ray_jobs", folder)


def test_every_row_is_computed_once_the_last_short_batch_too(
    jobs: dict[str, Any], expected: np.ndarray
) -> None:
    found = jobs["plain"]
    assert found["id"] == list(range(COUNT)) and set(found["error"]) == {""}
    assert "image" not in found
    np.testing.assert_allclose(found["scores"], expected, atol=_TOLERANCE)


def test_workers_use_their_cpus_and_share_the_weights(jobs: dict[str, Any]) -> None:
    found = jobs["plain"]
    assert set(found["threads"]) == {1}
    assert min(found["Rss"]) > _WEIGHTS_KB  # kilobytes of the library that are in memory
    assert max(found["Anonymous"]) < _WEIGHTS_KB / 10  # copied, and so the process's own


def test_the_example_keeps_on_where_a_picture_is_cut_off(
    jobs: dict[str, Any], expected: np.ndarray
) -> None:
    found = jobs["example"]
    assert found.keys() == {"path", "scores", "error"}
    assert [Path(path).stem for path in found["path"]] == [f"{n:02}" for n in range(COUNT)]
    errors = {number: text for number, text in enumerate(found["error"]) if text}
    assert errors.keys() == {3} and errors[3].startswith("preparing input 'image': OSError: ")
    scores = np.array(found["scores"])
    assert np.isnan(scores[3]).all()
    rest = [n for n in range(COUNT) if n != 3]
    np.testing.assert_allclose(scores[rest], expected[rest], atol=_TOLERANCE)


def test_a_row_of_another_size_has_an_error(jobs: dict[str, Any], expected: np.ndarray) -> None:
    found = jobs["uneven"]
    assert found["error"][:4] == [""] * 4 and found["id"] == list(range(5))
    assert found["error"][4].startswith("a row of input 'image' is float32[3, 8, 16]; need image:")
    np.testing.assert_allclose(found["scores"][:4], expected[:4], atol=_TOLERANCE)
    assert np.isnan(found["scores"][4]).all()


def test_a_killed_worker_and_a_removed_node_lose_and_double_no_row(
    jobs: dict[str, Any], expected: np.ndarray
) -> None:
    found = jobs["losses"]
    assert found["killed"] == [True] and found["alive"] == [2]
    assert found["id"] == list(range(48)) and set(found["error"]) == {""}
    rows = expected[np.arange(48) % COUNT]
    np.testing.assert_allclose(found["scores"], rows, atol=_TOLERANCE)


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        ("foreign", "LoadError", "node "),
        ("foreign", "LoadError", "it is for aarch64, and this machine is "),
        ("missing", "LoadError", "no such file"),
        ("input", "InputError", "inputs: unknown input 'picture'; there are image"),
        ("fixed", "InputError", "fixed.so does not take any number of rows: the first axis of"),
        ("column", "InputError", "there is no column 'image'; there are x"),
        ("dtype", "InputError", "has rows of float64[3, 16, 16]; need image: float32[batch, 3,"),
    ],
)
def test_refusals_are_one_line(jobs: dict[str, Any], what: str, error: str, text: str) -> None:
    said = jobs["wrong"][what]
    assert said.startswith(f"{error}: ") and text in said and "\n" not in said


def test_the_missing_engine_is_named(tmp_path: Path) -> None:
    from byoc.errors import IntegrationError
    from byoc.integrations.engines import require_engine

    with pytest.raises(
        IntegrationError, match=r"needs the package no_ray.*pip install '.*\[ray\]'"
    ):
        require_engine("no_ray", "ray")
