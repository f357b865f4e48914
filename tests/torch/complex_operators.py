"""What moves, adds, multiplies and transforms complex numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.torch.case import Case


def _of_two(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of complex numbers, as one of their parts."""

    def made(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(
            function(torch.complex(x, y), torch.complex(y, -x)).resolve_conj()
        )

    return made


def _assigned(z: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What spectral layers do: a few frequencies are mixed, all others are 0."""
    made = torch.zeros(z.shape, dtype=z.dtype)
    made[:, :2, :3] = torch.einsum("bij,bjk->bik", z[:, :2], w.mT)[:, :, :3]
    made[:, -1:, -3:] = z[:, :1, 1:4] * w[:, 1:2, 1:4]
    return made


_SHAPES = ((2, 4, 4), (2, 4, 4))
_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "slice": lambda z, w: z[:, 1:, ::2] + w[:, -3:, 2:].conj(),
    "select": lambda z, w: z[1] * w[:, -1, None],
    "flip": lambda z, w: z.flip(0, -1) - w,
    "roll": lambda z, w: torch.roll(z, (1, -2), (0, -1)) + torch.roll(w, 3),
    "shift": lambda z, w: torch.fft.fftshift(torch.fft.fftn(z)) + torch.fft.ifftshift(w),
    "picked": lambda z, w: z[:, [2, 0]] + w.index_select(-2, torch.tensor([1, 3])),
    "split": lambda z, w: z.split(2, -1)[1] + w.unbind(1)[0][:, None, :2],
    "assigned": _assigned,
    "sum": lambda z, w: z.sum(-1) + w.sum((0, 2))[:4] - z.sum(),
    "mean": lambda z, w: z.mean(-1) - w.mean() + z.cumsum(1)[:, -1],
    "product": lambda z, w: z @ w,
    "product_real_first": lambda z, w: z.real.to(w.dtype) @ w[0],
    "vectors": lambda z, w: z[0, 0] @ w[0] + z[0] @ w[0, 1] + torch.dot(z[0, 0], w[1, 2]),
    "added": lambda z, w: torch.addmm(z[0], z[1], w[0], beta=2, alpha=0.5),
    "quotient": lambda z, w: z / w + 1 / z + z / 2,
    "functions": lambda z, w: z.exp() + w.log() + z**2 - w.reciprocal() + z**3,
    "roots": lambda z, w: z.sqrt() + (w * torch.tensor([1, -1, 0, 1j])).sqrt() - z.rsqrt(),
    "waves": lambda z, w: z.sin() + w.cos() - (z * 3).tanh(),
    "products": lambda z, w: (
        z.cumprod(1) + w.prod(-1, keepdim=True) - w.prod(0) + z[0].prod() + w.cumprod(0)
    ),
    "angles": lambda z, w: torch.polar(z.abs(), w.angle() + 1),
    "numbers": lambda z, w: (z + 1j) * (2 - 1j) + w.real * 1j + 3,
    "filled": lambda z, w: (
        torch.zeros_like(z) + torch.ones_like(w) * z + torch.full_like(w, 2 - 1j)
    ),
    "where": lambda z, w: torch.where(z.real > 0, z, w.real),
    "where_numbers": lambda z, w: (
        torch.where(z.real > 0, z, 0) + torch.where(w.imag > 0, 1 - 2j, w) + torch.sgn(z)
    ),
    "windows": lambda z, w: z.unfold(1, 3, 1) + w.unfold(-1, 2, 2)[:, :2, :1, 1:],
    "gathered": lambda z, w: z.gather(2, torch.tensor([[[0, 2, 1]], [[3, 3, 0]]])) + w[:, :1, :3],
    "put": lambda z, w: (
        z.index_put((torch.tensor([1, 0]),), w) + w.index_add(1, torch.tensor([0, 1, 2, 0]), z)
    ),
    "lengths": lambda z, w: z / w.norm(dim=1, keepdim=True) + torch.linalg.vector_norm(z, 1),
    "convolved": lambda z, w: torch.nn.functional.conv1d(
        z, w[:, :2, :3], z[0, 0, :2], padding=1, groups=2
    ),
    "convolved_images": lambda z, w: torch.nn.functional.conv2d(z[None], w[None], dilation=1),
    "padded": lambda z, w: torch.nn.functional.pad(z, (1, 0, 0, 2)) + w.repeat(1, 2, 2)[:, :6, :5],
    "diagonals": lambda z, w: z.diagonal(1, -1, 1) + w.diagonal(-1, 1, 2) - z[0].trace(),
    "triangles": lambda z, w: z.tril(1) * w.triu() + w.masked_fill(z.real > 0, 2 - 1j),
    "masked": lambda z, w: w.masked_fill(z.imag > 0, 0) + z.masked_fill(w.real > 0, z[0, 0, 0]),
    "solved": lambda z, w: (
        torch.linalg.solve(z + 3 * torch.eye(4), w)
        + torch.linalg.solve(w + 3 * torch.eye(4), z[:, 0]).unsqueeze(-1)
    ),
    "solved_from_right": lambda z, w: torch.linalg.solve(z + 3 * torch.eye(4), w, left=False),
    "inverse": lambda z, w: torch.linalg.inv(z + 3 * torch.eye(4)) @ torch.inverse(w[0] + 3j),
    "taken_from_numbers": lambda z, w: 1 - z + torch.rsub(w, 2, alpha=3) * z.square(),
    "linear": lambda z, w: torch.nn.functional.linear(z, w[0], z[0, 0]),
    "stacked": lambda z, w: torch.stack([z, w], 1).transpose(0, 1).reshape(4, 16),
}
COMPLEX: dict[str, Case] = {name: (_of_two(f), _SHAPES) for name, f in _FUNCTIONS.items()}
