"""``byoc bench --generate`` and its benchmark: prompts and steps of a tiny decoder, once each."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from benchmarks import generate
from byoc.bench.decoder_engines import DECODER_ENGINES, DECODERS_ALONE
from byoc.bench.decoders import Decoder, Ours, pieces
from byoc.bench.generate import _error, compile_decoder
from byoc.bench.subjects import load_subject
from byoc.cli import main
from byoc.errors import BenchmarkError
from models.decoder import llama

TINY = generate.MODELS["tiny"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generate") / "tiny.onnx"
    onnx.save(llama(**TINY), path)
    return path


@pytest.mark.slow
def test_prompts_and_steps_take_turns(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--engines", "byoc", "onnxruntime", "--prompt", "5", "--past", "4", "--rounds", "1"]
    assert main(["bench", "--generate", str(file), *asked, "--threads", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [(row["what"], row["past"], row["engine"]) for row in found["rows"]] == [
        *(("prompt", 5, name) for name in ("byoc", "ONNX Runtime")),
        *(("step", 4, name) for name in ("byoc", "ONNX Runtime")),
    ]
    for row in found["rows"]:
        low, middle, high = row["times"]
        assert 0 < low <= middle <= high
        assert row["error"] < 1e-4  # answers are compared, in prompts and behind a cache
    assert found["failed"] == {}


@pytest.mark.slow
def test_the_limits_take_part(capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of 4 bits on two threads, beside a plain read and the plain products."""
    asked = ["--model", "tiny", "--forms", "4-bit", "--past", "9", "--prompt", "6"]
    status = generate.main([*asked, "--threads", "2", "--rounds", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status in (0, 1)  # whether targets are reached is no test's business
    engines = ["byoc", "ONNX Runtime"]
    if find_spec("openvino"):  # which the tests' environment need not have
        engines += ["OpenVINO", "OpenVINO, float32 data"]
    absent = [line for line in found["checks"] if "took no part" in line]
    assert len(absent) == 4 - len(engines)
    (part,) = found["measured"]
    assert [row["engine"] for row in part["rows"]] == [
        *(*engines, "plain products by weights", "plain products"),
        *(*engines, "plain read"),
    ]


@pytest.mark.slow
def test_ours_keeps_the_memory_of_its_results(file: Path, tmp_path: Path) -> None:
    """As the peers do: prompts of as many tokens write the same logits, which stay right."""
    library = tmp_path / "tiny.so"
    compile_decoder(file, library, "fp32")
    decoder = Decoder.of(onnx.load(file), "tiny")
    engine = Ours(library, decoder, 1, 16)
    session = InferenceSession(file, providers=["CPUExecutionProvider"])
    found = []
    for past in (0, 3):
        before, call = decoder.call(0, past), decoder.call(past, 5)
        engine.restore(before)
        found.append(engine.call(call))
        text = np.concatenate([before["input_ids"], call["input_ids"]], axis=1)
        given = {**decoder.call(0, past + 5), "input_ids": text, **decoder.no_rows()}
        (right,) = session.run(["logits"], given)
        np.testing.assert_allclose(found[-1], right[:, past:], rtol=1e-4, atol=1e-5)
    assert np.shares_memory(*found)


def test_a_long_text_is_read_in_pieces() -> None:
    """What lies before a step is read in parts, each behind the ones before."""
    whole = Decoder.of(llama(**TINY), "tiny").call(0, 300)
    parts = list(pieces(whole))
    assert [part["input_ids"].shape[1] for part in parts] == [128, 128, 44]
    assert [part["attention_mask"].shape[1] for part in parts] == [128, 256, 300]
    for name in ("input_ids", "position_ids"):
        assert np.array_equal(np.concatenate([part[name] for part in parts], axis=1), whole[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS_ALONE)
def test_engines_of_decoders(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their answers are compared; where one is not installed a line says how to get it.

    A step is behind more tokens than are read at once.
    """
    path, known = tmp_path / "qwen.onnx", DECODER_ENGINES[name]
    model = llama(**TINY, biased=True)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=2048)
    asked = ["--prompt", "5", "--past", "140", "--rounds", "1", "--threads", "1", "--json"]
    assert main(["bench", "--generate", str(path), "--engines", "onnxruntime", name, *asked]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    rows = {row["what"]: row for row in found["rows"] if row["engine"] == known.title}
    if known.absent():
        assert not rows
        assert found["failed"] == {known.title: f"not installed; pip install {name}"}
        return
    assert found["failed"] == {}
    assert [*rows] == ["prompt", "step"]
    assert all(row["error"] < 1e-4 for row in rows.values())


def test_a_chosen_token_is_compared() -> None:
    """By its logit: 0 for the greatest one, and a share of the range for another."""
    right = np.array([1.0, 5.0, 4.0, -3.0], np.float32)
    assert _error(np.array(1), right) == 0
    assert _error(np.array(2), right) == pytest.approx(1 / 8)
    assert _error(right + 2, right) == pytest.approx(2 / 8)


def test_bytes_of_a_step() -> None:
    model = llama(**TINY)
    decoder = Decoder.of(model, "tiny")
    assert decoder.row_bytes == 2 * 2 * 2 * 8 * 4  # layers, keys and values, groups, width
    layer = 32 * (32 + 16 + 16 + 32) + 3 * 32 * 64
    weights = 4 * (2 * layer + 64 * 32)
    assert 0 <= generate.product_bytes(model, "fp32") - weights < 2000  # norms, and tables of them
    call = decoder.call(3, 2)
    assert call["attention_mask"].shape == (1, 5)
    assert np.array_equal(call["position_ids"], [[3, 4]])


def test_what_is_no_decoder_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, message in (
        (["bench", "llama_decoder"], "measure it by byoc bench --generate llama_decoder"),
        (["bench", "--generate", "squeezenet"], "squeezenet is no decoder to generate with"),
        (["bench", "--generate", "nowhere"], "no model 'nowhere'"),
        (["bench", "--generate"], "--generate needs one MODEL"),
        (["bench", "--generate", "a", "--suite", "zoo"], "--generate does not go with --suite"),
        (["bench", "a", "--past", "3"], "--prompt and --past need --generate"),
        (["bench", "a", "--engines", "openvino-genai"], "openvino-genai needs --generate"),
        (
            ["bench", "--generate", "a", "--precision", "int8"],
            "measures fp32, bf16, int8-data, not int8",
        ),
    ):
        assert main(asked) == 2
        assert message in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_cache_of_given_sizes_is_measured(file: Path) -> None:
    shapes = {
        info.name: [2 if isinstance(d, str) or not d else d for d in dims]
        for info in onnx.load(file).graph.input
        for dims in [[d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]]
    } | {"attention_mask": [2, 4]}
    assert load_subject(str(file), shapes).inputs["attention_mask"].shape == (2, 4)
    with pytest.raises(BenchmarkError, match="give all inputs a size by --input-shapes"):
        load_subject(str(file), {"input_ids": [1, 1]})
