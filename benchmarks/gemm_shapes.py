"""The products that ``benchmarks.gemm`` times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """Y[m, n] = A[m, k] B[k, n], ``batch`` of them; ``transposed``: B is stored as [n, k]."""

    group: str
    m: int
    n: int
    k: int
    batch: int = 1
    transposed: bool = False

    @property
    def label(self) -> str:
        """The shape: [batch x] m x n x k."""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return f"{batch}{self.m} x {self.n} x {self.k}" + (" (B^T)" if self.transposed else "")

    @property
    def gflop(self) -> float:
        """Two operations for each multiply-accumulate, in 10^9."""
        return 2e-9 * self.batch * self.m * self.n * self.k


def _of(group: str, *shapes: tuple[int, int, int]) -> tuple[Product, ...]:
    return tuple(Product(group, *shape) for shape in shapes)


CUBES = _of("cube", *((n, n, n) for n in (512, 1024, 1536, 2048)))

SHAPES = (
    *_of("few rows", *((m, 1024, 1024) for m in (2, 3, 4, 7, 8, 14, 16))),
    *_of("vector", (1, 1024, 1024), (1, 1000, 2048), (1, 4096, 4096), (1024, 1, 1024)),
    *_of("odd", (17, 33, 65), (101, 203, 307), (255, 257, 129), (999, 1001, 1003)),
    *_of("tall", (10000, 16, 64), (4096, 32, 128), (50176, 32, 27)),
    *_of("small K", (512, 512, 4), (1024, 1024, 8), (256, 256, 16)),
    *_of("small N", (1024, 4, 1024), (512, 10, 512), (784, 8, 256)),
    Product("attention", 128, 128, 64, 12, transposed=True),
    Product("attention", 128, 64, 128, 12),
    Product("attention", 197, 197, 64, 8, transposed=True),
    Product("attention", 197, 64, 197, 8),
    Product("batch", 300, 300, 300, 4),
    *_of("transformer", (128, 768, 768), (128, 3072, 768), (128, 768, 3072)),
    *_of("transformer", (197, 768, 768), (512, 2304, 768)),
    *_of("im2col", (12544, 64, 147), (3136, 64, 576), (784, 128, 1152)),
    *_of("im2col", (196, 256, 2304), (49, 512, 4608), (49, 2048, 512)),
)
