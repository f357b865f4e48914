"""``make sanitize``: kernels and generated C under ASan and UBSan, the pools under TSan.

Exit code 1 where a test fails or a sanitizer has something to say; what it says is printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sanitizers.instrumented import FLAGS
from tests.sanitizers.pools import POOLS, build_pool, run_pool

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "sanitize"
#: The kernels' whole case list; guests of QEMU have no sanitizer.
KERNELS = ("tests/kernels", "-k", "not neon and not guest")
#: What compiles models and regions, and runs them in processes of its own or in this one.
GENERATED = (
    "tests/conformance/test_special_values.py",
    "tests/conformance/test_fuzz.py",
    "tests/ir/test_lower_images.py",
    "tests/ir/test_lower_operators.py",
    "tests/ir/test_empty_tensors.py",
    "tests/ir/test_causal_attention.py",
    "tests/models/test_symbolic.py",
)
#: Of both, what CI has the time for: kernels of one level, and every operator once.
QUICK_KERNELS = (
    *("tests/kernels/test_image.py", "tests/kernels/test_indexing.py"),
    *("tests/kernels/test_attention.py", "tests/kernels/test_scan.py"),
    *("-k", "not neon and not guest"),
)
QUICK_GENERATED = ("tests/conformance/test_special_values.py",)


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
        "BYOC_INSTRUMENTED": str(FOLDER / "installed"),
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
    """Compile and install the kernels with sanitizers, of one level or of all."""
    levels = ["FIRST=baseline", "LEVELS="] if quick else []
    command = ["make", "-s", "-C", str(ROOT / "runtime"), f"-j{jobs}", "install", *levels]
    command += [f"DEST={FOLDER / 'installed'}", f"BUILD={FOLDER / ('quick' if quick else 'all')}"]
    subprocess.run([*command, "CC=gcc", f"CFLAGS={' '.join(FLAGS)}"], check=True)


def run_tests(part: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Outcome:
    """One pytest with the instrumented kernels; what sanitizers wrote fails it."""
    logs = FOLDER / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.iterdir():
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.sanitizers.instrumented"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
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
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the compiler")
    chosen = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = run_pools()
    build_kernels(chosen.quick, chosen.jobs)
    variables = environment(FOLDER / "logs")
    parts = {
        "ASan and UBSan, kernels": QUICK_KERNELS if chosen.quick else KERNELS,
        "ASan and UBSan, generated C": QUICK_GENERATED if chosen.quick else GENERATED,
    }
    outcomes += [run_tests(part, given, variables) for part, given in parts.items()]
    for outcome in outcomes:
        print(f"{'ok' if outcome.passed else 'FAILED':7} {outcome.part}: {outcome.summary}")
        for finding in outcome.findings:
            print(finding)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
