"""The list of trained networks, and what is written about them; nothing is downloaded."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest

import byoc
from benchmarks import corpus
from benchmarks.corpus import Row, document
from byoc.bench.machine import Machine
from models.builder import GraphBuilder
from models.corpus import file as network_file
from models.corpus.file import CONTROL_FLOW, DECODER, QUANTISED, RECURRENT, STATES, fetch
from models.real import NETWORKS


def test_the_corpus_is_broad() -> None:
    kinds = [kind for network in NETWORKS.values() for kind in network.file.kinds]
    assert len(NETWORKS) >= 40
    least = {RECURRENT: 10, QUANTISED: 8, CONTROL_FLOW: 5, STATES: 5, DECODER: 5}
    assert {kind: min(kinds.count(kind), count) for kind, count in least.items()} == least


@pytest.mark.slow
def test_every_input_is_drawn_alike_each_time() -> None:
    for network in NETWORKS.values():
        once, again = network.draw(), network.draw()
        assert all((once[name] == again[name]).all() for name in once)


def test_a_file_is_taken_out_of_its_package_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, downloads = NETWORKS["magika"], []

    def download(package: network_file.Package, folder: Path) -> Path:
        downloads.append(package.name)
        wheel = folder / "network.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr(network.file.member, b"the network")
        return wheel

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(network_file, "_download", download)
    assert fetch(network).read_bytes() == fetch(network).read_bytes() == b"the network"
    assert downloads == ["magika"]
    with pytest.raises(byoc.ByocError, match=r"network.whl has no silero_vad/data"):
        fetch(NETWORKS["silero_v6"])


def test_a_package_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(byoc.ByocError, match=r"^cannot download magika==[^\n]*$"):
        fetch(NETWORKS["magika"])


@pytest.mark.slow
def test_a_network_is_compiled_compared_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = GraphBuilder("wakeword", 0)
    x = builder.input("x.1", (1, 16, 96))
    builder.output(builder.op("Relu", builder.linear(x, (96, 32))), "y", (1, 16, 32))
    file = tmp_path / "model.onnx"
    onnx.save(builder.build(), file)
    monkeypatch.setattr(corpus, "fetch", lambda network: file)
    row = corpus.measure(NETWORKS["wakeword_jarvis"], 1, 1, tmp_path)
    assert (row.failed, row.regions, row.left, row.share_of_macs) == ("", 1, (), 1.0)
    assert row.error <= 1e-5
    assert min(row.ours_ms, row.theirs_ms, row.ratio, row.seconds) > 0


def test_the_document_tells_what_is_right_and_what_is_not() -> None:
    right = Row("magika", regions=1, operators=9, error=1e-6, ours_ms=1.0, theirs_ms=2.0)
    wrong = Row("silero_v6", "node 'a|b': no rank")
    text = document([right, wrong], Machine("a CPU", 2, "avx2", 100.0, {}), 1)
    assert "2 networks (1 with control flow, 1 with recurrent, 1 with states): 1 right" in text
    assert "geometric mean of the ratios 0.50" in text
    assert "|silero_v6|node 'a\\|b': no rank|" in text
