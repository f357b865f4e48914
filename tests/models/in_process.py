"""A compiled network in a process of its own, with an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import byoc
from benchmarks import abi
from codegen_cc.instruction_sets import names_in
from tests.conftest import CompiledCase

ROOT = Path(byoc.__file__).parents[1]


def run_in_process(
    case: CompiledCase, tmp_path: Path, environment: dict[str, str], imports: str = ""
) -> dict:
    """Run the library in a process of its own; returns outputs and the libraries it mapped."""
    script = (
        f"{imports}\n"
        + """
import json, sys
import numpy as np
import byoc
library, inputs, outputs = sys.argv[1:]
with np.load(inputs) as file:
    results = byoc.load(library).run({name: file[name] for name in file.files})
np.savez(outputs, **results)
print(json.dumps([line.split()[-1] for line in open("/proc/self/maps") if ".so" in line]))
"""
    )
    np.savez(tmp_path / "in.npz", **case.inputs)
    done = subprocess.run(
        [sys.executable, "-c", script, case.library, tmp_path / "in.npz", tmp_path / "out.npz"],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as file:
        return {
            "mapped": json.loads(done.stdout),
            "outputs": {name: file[name] for name in case.expected},
        }


def cpu_has(isa: str) -> bool:
    """Whether this CPU can run the kernels of that level."""
    return isa == abi.LEVELS[0] or isa in names_in(abi.load().ext_isas_offered())
