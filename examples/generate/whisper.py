"""Listen to a sound file with Whisper: features, encoder, and a decoder that keeps its states.

    python examples/generate/whisper.py speech.wav --tokens 24

The file is a WAV of 16,000 samples a second, of one channel and 16 bits; without one, a chirp is
heard. Weights are seeded, not trained ones, so that the tokens mean nothing: what is shown is how
three networks of ours work together, and how fast.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import byoc

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from models import whisper  # noqa: E402

BEGIN = [1, 2, 3, 4]  # as Whisper's: a transcript begins, its language, what to do, no times


def main() -> None:
    """Compile three networks, and let the decoder write what it hears."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file", nargs="?", type=Path, help="a WAV file (default: a chirp)")
    options.add_argument("--tokens", type=int, default=16, help="how many to write")
    given = options.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        sound = heard(given.file or chirp(made / "chirp.wav"))
        byoc.compile(whisper.log_mel(), made / "log_mel.so")
        byoc.compile(whisper.encoder(), made / "encoder.so")
        # The decoder's own keys and values grow in the library; those of the sound are inputs.
        done = byoc.compile(whisper.decoder(), made / "decoder.so", states=True)
        print(f"decoder: {len(done.report.regions)} region(s), {len(done.metadata.states)} states")

        log_mel, encoder = byoc.load(made / "log_mel.so"), byoc.load(made / "encoder.so")
        start = time.perf_counter()
        features = log_mel(sound)
        cross = encoder.run({"features": features})
        taken = time.perf_counter() - start
        print(
            f"{whisper.SECONDS} s of sound, features {list(features.shape)}: {taken * 1e3:.0f} ms"
        )
        with byoc.load(made / "decoder.so", capacity=448) as decoder:
            tokens, start = transcript(decoder, cross, given.tokens), time.perf_counter()
            written = list(tokens)
            taken = time.perf_counter() - start
    print("tokens:", *written)
    print(f"{len(written) / taken:.0f} tokens per second")


def transcript(decoder: byoc.Model, cross: dict[str, np.ndarray], count: int) -> Iterator[int]:
    """The likeliest tokens, one after the other."""
    new = BEGIN
    for _ in range(count):
        logits = decoder.run({"input_ids": np.array([new]), **cross})["logits"]
        new = [int(np.argmax(logits[0, -1]))]
        yield new[0]


def heard(file: Path) -> np.ndarray:
    """The sound of a file as numbers from -1 to 1 [1, samples], as long as the network hears."""
    with wave.open(str(file)) as sound:
        form = sound.getframerate(), sound.getnchannels(), sound.getsampwidth()
        if form != (whisper.RATE, 1, 2):
            raise SystemExit(f"{file}: {form[0]} Hz, {form[1]} channel(s), {8 * form[2]} bits; need"
                             f" {whisper.RATE} Hz, 1 channel, 16 bits")  # fmt: skip
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / np.float32(32768)
    whole = np.zeros((1, whisper.SECONDS * whisper.RATE), np.float32)
    whole[0, : len(samples)] = samples[: whole.shape[1]]
    return whole


def chirp(file: Path) -> Path:
    """Five seconds of a tone that rises from 200 Hz, as a WAV file."""
    times = np.arange(5 * whisper.RATE) / whisper.RATE
    samples = (8000 * np.sin(2 * np.pi * (200 * times + 150 * times**2))).astype("<i2")
    with wave.open(str(file), "wb") as sound:
        sound.setparams((1, 2, whisper.RATE, 0, "NONE", "not compressed"))
        sound.writeframes(samples.tobytes())
    return file


if __name__ == "__main__":
    main()
