"""Write text with a decoder whose keys and values stay in the library.

    python examples/generate/generate.py "Once upon a time" --architecture llama --tokens 40

The decoder has seeded weights, not trained ones, so that its text means nothing: what is shown is
how a prompt and the steps after it go through one library, and how fast. The tokenizer is a byte
pair encoding of the package ``tokenizers``, made from this project's own README.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

try:
    from tokenizers import ByteLevelBPETokenizer
except ImportError:
    print("skipped: the package tokenizers is not installed (pip install tokenizers)")
    raise SystemExit(0) from None

import byoc
from byoc import zoo

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("llama", "qwen2", "gpt2")
VOCABULARY = 2000  # of the zoo's decoders


def main() -> None:
    """Compile a decoder of the zoo, and let it go on with a text."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("text", nargs="?", default="A compiler is", help="how the text begins")
    options.add_argument("--architecture", choices=ARCHITECTURES, default="llama")
    options.add_argument("--tokens", type=int, default=40, help="how many to write")
    options.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token")
    options.add_argument("--seed", type=int, default=0, help="of what is drawn")
    given = options.parse_args()

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(ROOT / "README.md")], vocab_size=VOCABULARY, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "decoder.so")
        # Keys and values by the names that exporters give them become states of the library.
        done = byoc.compile(zoo.build(f"{given.architecture}_decoder"), library, states=True)
        print(f"{len(done.report.regions)} region(s), {len(done.metadata.states)} states")
        with byoc.load(library, capacity=1024) as model:
            draw = np.random.default_rng(given.seed)
            prompt = tokenizer.encode(given.text).ids
            print(given.text, end="", flush=True)
            times = []
            for token, seconds in tokens(model, prompt, given.temperature, draw):
                times.append(seconds)
                sys.stdout.write(tokenizer.decode([token]))
                sys.stdout.flush()
                if len(times) == given.tokens:
                    break
    steps = times[1:] or times
    print(f"\n\nprompt: {len(prompt)} tokens in {times[0] * 1e3:.1f} ms")
    print(f"steps: {len(steps) / sum(steps):.0f} tokens per second")


def tokens(
    model: byoc.Model, prompt: list[int], temperature: float, draw: np.random.Generator
) -> Iterator[tuple[int, float]]:
    """Tokens that follow a prompt, each with the seconds that it took."""
    seen, new = 0, prompt
    while True:
        start = time.perf_counter()
        places = np.arange(seen, seen + len(new))[None]
        seen += len(new)
        logits = model(
            input_ids=np.array([new]),
            attention_mask=np.ones((1, seen), np.int64),
            position_ids=places,
        )[0, -1]
        token = chosen(logits, temperature, draw)
        yield token, time.perf_counter() - start
        new = [token]


def chosen(logits: np.ndarray, temperature: float, draw: np.random.Generator) -> int:
    """The likeliest token, or one drawn by ``softmax(logits / temperature)``."""
    if temperature <= 0:
        return int(np.argmax(logits))
    weights = np.exp((logits - logits.max()) / temperature)
    return int(draw.choice(len(weights), p=weights / weights.sum()))


if __name__ == "__main__":
    main()
