"""A module of PyTorch in, one library out, and its answers beside PyTorch's.

Shows: what a module is compiled with, that the library is compared with PyTorch before it is
written, and that one library serves every batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed (pip install torch)")
    raise SystemExit(0) from None

import byoc

# 1. Any module, in the mode for inference.
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, 2, 1),
    torch.nn.BatchNorm2d(16),
    torch.nn.Hardswish(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, 10),
).eval()

# 2. Example inputs say what it takes; an axis with a name may have any extent.
images = torch.randn(2, 3, 32, 32)
library = Path(tempfile.mkdtemp()) / "network.so"
done = byoc.compile(
    network,
    library,
    example_inputs=(images,),
    dynamic_shapes=({0: torch.export.Dim("batch")},),
)
print(done.report.summary())

# 3. Tensors of PyTorch go in as they are; the library itself needs neither PyTorch nor the module.
with byoc.load(library) as model:
    print(model)
    for count in (1, 5):
        images = torch.randn(count, 3, 32, 32)
        with torch.no_grad():
            expected = network(images).numpy()
        np.testing.assert_allclose(model(images), expected, rtol=1e-4, atol=1e-5)
print("equal to PyTorch for a batch of 1 and of 5")
