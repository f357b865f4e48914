"""Fourier transforms against numpy's in double precision."""

from __future__ import annotations

import ctypes

import numpy as np

from benchmarks import abi
from tests.kernels.every import every
from tests.kernels.guard import Rows, at_page_end

REAL, COMPLEX, HALF = range(3)
DRAW = np.random.default_rng(27)


def run(
    lib: ctypes.CDLL, x: np.ndarray, waves: np.ndarray | None, window: np.ndarray | None, **p: int
) -> np.ndarray:
    """The kernel's results, [outer, frames, count, inner], complex where they are."""
    parts = 1 if p["kind"] == HALF else 2
    rows = p["outer"] * p["frames"]
    y = Rows(1, rows * p["count"] * p["inner"] * parts)
    pointers = [None if a is None else a.ctypes.data for a in (waves, window)]
    assert lib.ext_fourier(abi.FourierParams(**p), x.ctypes.data, *pointers, y.pointer) == 0
    y.check_gaps()
    shape = (p["outer"], p["frames"], p["count"], p["inner"])
    got = np.ascontiguousarray(y.view[0]).astype(np.float64)
    return got.reshape(shape) if parts == 1 else got.view(np.complex128).reshape(shape)


def waves_of(length: int) -> np.ndarray:
    made = np.exp(-2j * np.pi * np.arange(length) / length)
    return at_page_end(np.stack([made.real, made.imag], 1))


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= 2e-6 * np.abs(want).max(initial=1e-3)


def numbers(shape: tuple[int, ...], kind: int) -> tuple[np.ndarray, np.ndarray]:
    """Floats as the kernel has them, and the same in double precision."""
    x = at_page_end(DRAW.standard_normal((*shape, 1 if kind == REAL else 2)))
    exact = x.astype(np.float64)
    return x, exact[..., 0] if kind == REAL else exact[..., 0] + 1j * exact[..., 1]


# Primes have passes of their own up to 7; 11 and 13 have that of all others.
@every("length", [*range(1, 17), 22, 25, 49, 60, 64, 77, 130, 400])
@every("kind", [REAL, COMPLEX, HALF], ids=["real", "complex", "half"])
def test_every_length_and_layout(lib: ctypes.CDLL, kind: int, length: int) -> None:
    for turn, (outer, inner) in enumerate([(1, 1), (3, 1), (17, 1), (1, 3), (2, 16), (1, 21)]):
        whole = length // 2 + 1 if kind == HALF else length
        given = max(whole + (0, 2, -2)[turn % 3], 0)
        inverse, norm = int(kind == HALF or turn % 2), turn % 3
        count = length if kind == HALF or turn % 2 else length // 2 + 1
        x, exact = numbers((outer, given, inner), kind)
        fitted = np.zeros((outer, whole, inner), exact.dtype)
        fitted[:, : min(whole, given)] = exact[:, :whole]
        p = {"outer": outer, "frames": 1, "inner": inner, "given": given, "length": length}
        p |= {"x_outer": x[0].size, "count": count, "kind": kind, "inverse": inverse, "norm": norm}
        got = run(lib, x, waves_of(length) if turn % 2 else None, None, **p)
        if kind == HALF:
            fitted[:, 0] = fitted[:, 0].real
            want = np.fft.irfft(fitted, length, axis=1) * length
        else:
            want = np.fft.ifft(fitted, axis=1) * length if inverse else np.fft.fft(fitted, axis=1)
        close(got[:, 0], want[:, :count] * length ** (-norm / 2))
        if kind == REAL and not inverse:
            real = got[:, 0, :: length // 2 if length % 2 == 0 else length].imag
            assert (real == 0).all() and not np.signbit(real).any()


@every("kind", [REAL, COMPLEX], ids=["real", "complex"])
@every(("length", "step"), [(16, 5), (15, 15), (20, 3)])
def test_frames_of_signals(lib: ctypes.CDLL, kind: int, length: int, step: int) -> None:
    x, exact = numbers((3, 131), kind)
    window = at_page_end(DRAW.standard_normal(length))
    frames, parts = (131 - length) // step + 1, 1 if kind == REAL else 2
    p = {"outer": 3, "frames": frames, "inner": 1, "x_outer": x[0].size, "x_frame": step * parts}
    p |= {"given": length, "length": length, "count": length // 2 + 1, "kind": kind}
    got = run(lib, x, waves_of(length), window, **p)
    taken = np.stack([exact[:, f * step : f * step + length] for f in range(frames)], 1)
    want = np.fft.fft(taken * window.astype(np.float64))[..., : length // 2 + 1]
    close(got[..., 0], want)


@every("inner", [1, 5])
def test_special_values_stay_in_their_transforms(lib: ctypes.CDLL, inner: int) -> None:
    x, _ = numbers((4, 32, inner), REAL)
    x[1, 7, 0] = np.nan
    x[2, 3, 0] = np.inf
    p = {"outer": 4, "frames": 1, "inner": inner, "x_outer": 32 * inner, "given": 32, "length": 32}
    got = run(lib, x, None, None, **p, count=17, kind=REAL)[:, 0]
    finite = np.isfinite(got)
    assert not finite[1:3, :, 0].any()
    finite[1:3, :, 0] = True
    assert finite.all()


def test_no_rows_and_what_is_refused(lib: ctypes.CDLL) -> None:
    good = {"outer": 2, "frames": 1, "inner": 1, "given": 8, "length": 8, "count": 8}
    for changed in ({"outer": 0}, {"inner": 0}, {"count": 0}):
        p = abi.FourierParams(**good | changed)
        assert lib.ext_fourier(p, None, None, None, None) == 0
    half = {"kind": HALF, "inverse": 1}
    for changed in ({"length": 0}, {"count": 9}, {"kind": HALF}, {**half, "count": 5}):
        p = abi.FourierParams(**good | changed)
        assert lib.ext_fourier(p, None, None, None, None) == 2
