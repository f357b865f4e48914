"""Inputs such as trained networks get them: speech, pictures, tokens, states; all seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Draws an input.
Draw = Callable[[np.random.Generator], np.ndarray]


def sound(*shape: int, rate: int = 16000) -> Draw:
    """Something like speech in float32: a voice whose pitch and loudness change, and noise."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        time = np.arange(shape[-1]) / rate
        pitch = 2 * np.pi * np.cumsum(140 + 40 * np.sin(5 * time)) / rate
        voice = sum(np.sin(n * pitch) / n for n in range(1, 12))
        loud = np.clip(np.sin(7 * time), 0.05, None)
        noise = 0.02 * rng.standard_normal(shape)
        return (0.1 * voice * loud + noise).astype("float32")

    return draw


def picture(*shape: int, low: float = 0.0, high: float = 1.0) -> Draw:
    """A smooth picture with some noise, float32 from ``low`` to ``high``."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        axes = np.meshgrid(*(np.linspace(0, 3 + n, e) for n, e in enumerate(shape)), indexing="ij")
        smooth = 0.5 + 0.35 * np.sin(sum(axes)) * np.cos(axes[-1] - axes[-2])
        values = np.clip(smooth + 0.1 * rng.standard_normal(shape), 0, 1)
        return (low + (high - low) * values).astype("float32")

    return draw


def normal(*shape: int, scale: float = 1.0) -> Draw:
    """Normally distributed float32: features, or states."""
    return lambda rng: (scale * rng.standard_normal(shape)).astype("float32")


def ids(below: int, *shape: int, dtype: str = "int64") -> Draw:
    """Integers from 1 to ``below`` - 1: tokens."""
    return lambda rng: rng.integers(1, below, shape).astype(dtype)


def all_of(value: float, *shape: int, dtype: str = "float32") -> Draw:
    """One value everywhere: masks, lengths, settings."""
    return lambda rng: np.full(shape, value, dtype)
