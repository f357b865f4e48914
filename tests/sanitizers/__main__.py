"""``make sanitize``: kernels and generated C under ASan and UBSan, the pools under TSan.

Exit code 1 where a test fails or a sanitizer has something to say; what it says is printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen_cc.instruction_sets import table
from codegen_cc.target import HOST
from tests.sanitizers.instrumented import FLAGS
from tests.sanitizers.pools import POOLS, build_pool, run_pool

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sanitize"
INSTALLED = FOLDER / "installed"
#: Rows of other architectures, which QEMU's guests run: these have no sanitizer.
FOREIGN = [row.name for row in table() if row.machine not in (HOST.machine, "any")]
#: The kernels' whole case list.
KERNELS = (
    "tests/kernels",
    "-k",
    " and ".join(f"not {name}" for name in ("guest", "aarch64", *FOREIGN)),
)
#: What compiles models and regions, and runs them in processes of its own or in this one.
GENERATED = (
    "tests/conformance/test_special_values.py",
    "tests/fuzz/test_fuzz.py",
    "tests/ir/test_lower_images.py",
    "tests/ir/test_lower_operators.py",
    "tests/ir/test_empty_tensors.py",
    "tests/ir/test_causal_attention.py",
    "tests/models/test_sizes_of_nothing.py",
    "tests/models/test_symbolic.py",
    "tests/models/test_symbolic_operators.py",
)
#: What CI has the time for: every operator, with the kernels of one level.
QUICK = ("tests/conformance/test_special_values.py", "-k", HOST.kernel_levels[0])


@dataclass(frozen=True)
class Outcome:
    """What one part did: pytest's last line, or the program's, and what sanitizers reported."""

    part: str
    passed: bool
    summary: str
    findings: tuple[str, ...] = ()


def environment(folder: Path) -> dict[str, str]:
    """Sanitizers' libraries before all others, as Python itself has none of theirs.

    They write to ``folder``, beside what the process prints.  Leaks are Python's to find, and TVM
    mixes allocators.
    """
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    return os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": f"detect_leaks=0:alloc_dealloc_mismatch=0:log_path={folder / 'asan'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={folder / 'ubsan'}",
        "BYOC_INSTRUMENTED": str(INSTALLED),
        "PYTHONMALLOC": "malloc",
    }


def _library(name: str) -> str:
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        sys.exit(f"error: gcc has no {name}; install libgcc-12-dev or the like")
    return path


def build_kernels(quick: bool, jobs: int) -> None:
    """Compile the kernels with sanitizers, of one level or of all, and install them.

    The shared library, which the tests of kernels load, is left out of a quick build.
    """
    build = FOLDER / ("quick" if quick else "all")
    archives = [build / "libext_kernels.a", build / "libext_standalone.a"]
    command = ["make", "-s", "-C", str(ROOT / "runtime"), f"-j{jobs}", f"BUILD={build}", "CC=gcc"]
    command += [f"CFLAGS={' '.join(FLAGS)}"]
    if quick:
        subprocess.run([*command, "LEVELS=", "SOME=", *map(str, archives)], check=True)
    else:
        subprocess.run([*command, f"DEST={INSTALLED}", "install"], check=True)
        return
    shutil.rmtree(INSTALLED, ignore_errors=True)
    for name in ("include", "adapters"):
        shutil.copytree(ROOT / "runtime" / name, INSTALLED / name)
    (INSTALLED / "lib").mkdir()
    for archive in archives:
        shutil.copy(archive, INSTALLED / "lib")


def run_tests(
    part: str, arguments: Sequence[str], variables: Mapping[str, str], jobs: int
) -> Outcome:
    """Pytest with the instrumented kernels in ``jobs`` processes; sanitizers must be silent."""
    logs = FOLDER / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.iterdir():
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.sanitizers.instrumented"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-n", str(jobs), *arguments],
        cwd=ROOT,
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip() or "no output"]
    findings = tuple(log.read_text(errors="replace") for log in sorted(logs.iterdir()))
    passed = done.returncode == 0 and not findings
    return Outcome(part, passed, lines[-1] if passed else "\n".join(lines[-40:]), findings)


def run_pools() -> list[Outcome]:
    """The pools' programs under ThreadSanitizer."""
    outcomes = []
    for name in POOLS:
        done = run_pool(build_pool(name, FOLDER))
        text = (done.stdout + done.stderr).strip()
        outcomes.append(Outcome(f"TSan, {name}", done.returncode == 0, text))
    return outcomes


def main() -> int:
    """Build, run, print one line per part, and what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitizers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="what CI runs: about a minute")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="of compiler and tests"
    )
    chosen = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = run_pools()
    build_kernels(chosen.quick, chosen.jobs)
    variables = environment(FOLDER / "logs")
    parts = {"ASan and UBSan, generated C": QUICK if chosen.quick else GENERATED}
    if not chosen.quick:
        parts["ASan and UBSan, kernels"] = KERNELS
    outcomes += [run_tests(part, given, variables, chosen.jobs) for part, given in parts.items()]
    for outcome in outcomes:
        print(f"{'ok' if outcome.passed else 'FAILED':7} {outcome.part}: {outcome.summary}")
        for finding in outcome.findings:
            print(finding)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
