"""Networks of timm and transformers: one region each, equal to PyTorch, and as good as from ONNX.

``python -m tests.torch.zoo [NETWORK ...]``, or ``make pytorch-zoo``, which installs the packages.
Exit code 1 where a network is refused, differs from PyTorch, is more than one region, or calls more
kernels than what PyTorch's own exporter makes of it as an ONNX model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

import byoc
from byoc.compiler.partition import partition_with_report
from byoc.errors import ByocError
from byoc.frontends import import_model
from byoc.report.report import Report
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
    told += f"{left and '; TVM has '}{left}"
    if regions != 1 or left:
        return False, told
    calls = _kernel_calls(report)
    try:
        by_onnx = _through_onnx(network, inputs)
    except ByocError as error:
        return True, f"{told}, {calls} kernel calls; from ONNX {type(error).__name__}: {error}"
    return calls <= by_onnx, f"{told}, {calls} kernel calls; from ONNX {by_onnx}"


def _kernel_calls(report: Report) -> int:
    """Kernel calls of all regions, and operators that TVM computes."""
    return sum(region.plan.calls for region in report.regions if region.plan) + len(report.left)


def _through_onnx(network: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    """Kernel calls of a network that came as an ONNX model."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "network.onnx")
        torch.onnx.export(network, inputs, path, dynamo=True, verbose=False)
        module, report = partition_with_report(import_model(path).module)
        return _kernel_calls(report.planned(module))


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
