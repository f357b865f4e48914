"""Tables whose sides are open sizes: places in halves of squares, the one of each label, powers.

PyTorch takes plain numbers alone for the sides, and makes open sizes those of the example.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def lower_half(
    row: Any, col: Any, offset: int = 0, *, dtype: torch.dtype = torch.int64, **named: Any
) -> torch.Tensor:
    """Rows and columns of a square up to its diagonal, or to one below."""
    if not _is_square(row, col) or not isinstance(offset, int) or offset > 0:
        return NotImplemented
    row_of, column = _triangle(torch.sym_max(row + offset, 0))
    return torch.stack([row_of - offset, column]).to(dtype)


def upper_half(
    row: Any, col: Any, offset: int = 0, *, dtype: torch.dtype = torch.int64, **named: Any
) -> torch.Tensor:
    """The same from the diagonal on, or from one above: the lower one, read from its end."""
    if not _is_square(row, col) or not isinstance(offset, int) or offset < 0:
        return NotImplemented
    count = torch.sym_max(row - offset, 0)
    row_of, column = _triangle(count, backward=True)
    return torch.stack([count - 1 - row_of, row - 1 - column]).to(dtype)


def _is_square(row: Any, col: Any) -> bool:
    """Whether two sides are one size, which nobody has to ask about."""
    sides = [side.node.expr if isinstance(side, torch.SymInt) else side for side in (row, col)]
    return bool(sides[0] == sides[1])


def _triangle(count: Any, backward: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns of all elements of the rows of 1, 2, ... ``count`` elements."""
    whole = count * (count + 1) // 2
    place = torch.arange(whole)
    if backward:
        place = whole - 1 - place
    # The root of floats is off by one at most, which whole numbers tell.
    row = (((8 * place + 1).float().sqrt() - 1) * 0.5).floor().long()
    row = row - (row * (row + 1) // 2 > place).long()
    row = row + ((row + 1) * (row + 2) // 2 <= place).long()
    return row, place - row * (row + 1) // 2


def marks(x: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """1 at the place that each label names, and 0 elsewhere."""
    return (x.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


def powers_of_each(x: torch.Tensor, N: Any = None, increasing: bool = False) -> torch.Tensor:
    """A row of the first powers of each number; the greatest first, unless they are increasing."""
    if N is None:
        return NotImplemented
    is_first = torch.arange(N) == 0
    made = torch.where(is_first, torch.ones_like(x).unsqueeze(-1), x.unsqueeze(-1)).cumprod(-1)
    return made if increasing else made.flip(-1)


def number(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    """A tensor of an open number."""
    return torch.tensor(data, dtype=dtype, device=device)


#: What stands for functions of PyTorch where one of their arguments is open.
PLACES = {
    (torch, "tril_indices"): lower_half,
    (torch, "triu_indices"): upper_half,
    (torch, "as_tensor"): number,
    (torch, "vander"): powers_of_each,
    (F, "one_hot"): marks,
    (torch._C._nn, "one_hot"): marks,
}
