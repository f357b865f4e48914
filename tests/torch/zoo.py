"""Networks of timm and transformers: one region each, and equal to PyTorch.

``python -m tests.torch.zoo [NETWORK ...]``, or ``make pytorch-zoo``, which installs the packages.
Exit code 1 where a network is refused, differs from PyTorch or is more than one region.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

import byoc
from byoc.errors import ByocError
from models.pytorch import ARCHITECTURES, Architecture


def outcome(architecture: Architecture) -> tuple[bool, str]:
    """Whether a network is as it shall be, and what became of it; ``byoc.compile`` compares."""
    network, inputs = architecture.build()
    try:
        report = byoc.compile(network, example_inputs=inputs).report
    except ByocError as error:
        return False, f"{type(error).__name__}: {error}"
    regions = len(report.regions)
    left = ", ".join(f"{count} {op}" for op, count in Counter(e.op for e in report.left).items())
    told = f"{regions} region{'' if regions == 1 else 's'}, {report.operators} operators"
    return regions == 1 and not left, f"{told}{left and '; TVM has '}{left}"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser("python -m tests.torch.zoo")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", choices=[*ARCHITECTURES, []])
    held = []
    for name in parser.parse_args().networks or ARCHITECTURES:
        begin = time.perf_counter()
        holds, told = outcome(ARCHITECTURES[name])
        held.append(holds)
        mark = "" if holds else "NOT AS IT SHALL BE: "
        print(f"{name}: {mark}{told} ({time.perf_counter() - begin:.0f} s)", flush=True)
    print(f"{sum(held)} of {len(held)} networks are one region each and agree with PyTorch")
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
