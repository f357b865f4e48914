"""Whisper's three networks: features beside NumPy, encoder and decoder beside ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import byoc
from models import whisper
from tests.reference import assert_agrees, onnxruntime_outputs

SECONDS = 2


def features_of(sound: np.ndarray) -> np.ndarray:
    """Whisper's features in float64: a Hann window, powers, mels, logarithms down to 8 below."""
    padded = np.pad(sound.astype(np.float64), whisper.WINDOW // 2, mode="reflect")
    starts = np.arange(len(sound) // whisper.HOP) * whisper.HOP
    frames = np.stack([padded[at : at + whisper.WINDOW] for at in starts])
    window = np.hanning(whisper.WINDOW + 1)[:-1]
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    tens = np.log10(np.maximum(power @ whisper.mel_filters(80), 1e-10))
    return ((np.maximum(tens, tens.max() - 8) + 4) / 4).T


def test_filters_are_triangles_of_equal_area() -> None:
    filters = whisper.mel_filters(80)
    assert filters.shape == (201, 80)
    assert (filters >= 0).all()
    assert (np.diff(filters.argmax(0)) >= 0).all()
    width = whisper.RATE / whisper.WINDOW
    assert np.allclose(filters[:, 40:].sum(0) * width, 1, atol=0.1)


def test_features(tmp_path: Path) -> None:
    made = byoc.compile(whisper.log_mel(SECONDS), tmp_path / "m.so")
    assert made.report.offloaded == made.report.operators
    sound = np.random.default_rng(0).normal(0, 0.1, SECONDS * whisper.RATE).astype(np.float32)
    sound[: whisper.RATE] = 0
    found = byoc.load(tmp_path / "m.so")(sound[None])
    assert np.abs(found[0] - features_of(sound)).max() < 1e-3


@pytest.mark.slow
def test_encoder_and_decoder(tmp_path: Path) -> None:
    features = np.random.default_rng(1).standard_normal((1, 80, SECONDS * 100), np.float32)
    encoder = whisper.encoder(SECONDS)
    made = byoc.compile(encoder, tmp_path / "encoder.so")
    assert made.report.offloaded_macs == made.report.macs > 0
    cross = byoc.load(tmp_path / "encoder.so").run({"features": features})
    assert_agrees(cross, onnxruntime_outputs(encoder, {"features": features}))

    model = whisper.decoder(SECONDS)
    made = byoc.compile(model, tmp_path / "decoder.so", dump_code=tmp_path, states=True)
    assert made.report.offloaded_macs == made.report.macs > 0
    (code,) = tmp_path.glob("*.c")
    rows = re.findall(r"/\* ext\.concat axis 0: (part \d)", code.read_text())
    assert rows == ["part 1"] * 4  # its own cache is not copied; the sound's is no state
    session = onnxruntime.InferenceSession(model.SerializeToString())
    states = [i for i in session.get_inputs() if i.name.startswith("past")]
    past = {s.name: np.zeros((1, s.shape[1], 0, s.shape[3]), np.float32) for s in states}
    names = [output.name for output in session.get_outputs()]
    with byoc.load(tmp_path / "decoder.so", capacity=16) as decoder:
        for ids in ([1, 2, 3, 4], [5], [6]):
            inputs = {"input_ids": np.array([ids]), **cross}
            results = dict(zip(names, session.run(None, inputs | past), strict=True))
            past = {name: results[name.replace("past_key_values", "present")] for name in past}
            assert_agrees(decoder.run(inputs), {"logits": results["logits"]})
            assert_agrees(decoder.states, past)
