"""Check all modules of TVM's tests, each in a process of its own with a time limit.

    python -m tests.tvm_modules.run CHECKOUT [--modules FOLDER] [--jobs N] [--only TEXT]

``CHECKOUT`` is a source tree of TVM; its tests in ``tests/python/relax`` are run once, to collect
modules, which stay in ``FOLDER``. Exit code 1 where a module differs. Nothing of the checkout is
kept with this project.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from tests.tvm_modules.check import COMPILED, DIFFERENT, TVM_FAILS, Verdict, check, quiet

#: Seconds for a module, and for a file of tests.
MODULE_LIMIT = 90.0
FILE_LIMIT = 300.0

ROOT = Path(__file__).resolve().parents[2]


def collect(checkout: Path, modules: Path) -> None:
    """Run the tests of a checkout file by file, with the plugin that keeps modules."""
    modules.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "TVM_MODULES": str(modules.resolve()),
        "PYTHONPATH": str(ROOT),
        # Tests that fetch something fail at once.
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    files = sorted(checkout.resolve().glob("tests/python/relax/test_*.py"))
    if not files:
        raise SystemExit(f"{checkout} has no tests/python/relax; give a checkout of TVM")
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.tvm_modules.collect"]
    for file in files:
        command = [sys.executable, "-m", "pytest", *options, str(file)]
        try:
            done = subprocess.run(
                command,
                cwd=modules,
                env=environment,
                timeout=FILE_LIMIT,
                check=False,
                capture_output=True,
                text=True,
            )
            last = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
        except subprocess.TimeoutExpired:
            last = f"stopped after {FILE_LIMIT:.0f} s"
        count = sum(1 for _ in modules.glob("*.json"))
        print(f"{file.name}: {last}; {count} modules so far", flush=True)


def check_file(path: Path, values: bool, pipe: Connection) -> None:
    """In a child: send the stages and at last the verdict."""
    import tvm

    quiet()
    os.environ["TVM_NUM_THREADS"] = "1"
    # What a module writes to the terminal is of no interest.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        mod = tvm.ir.load_json(path.read_text())
    except Exception as error:  # a node type that only that test registers
        pipe.send(Verdict(COMPILED, f"not loaded: {type(error).__name__}"))
        return
    pipe.send(check(mod, pipe.send, values))


def judge(context: multiprocessing.context.BaseContext, path: Path, values: bool = True) -> Verdict:
    """Check one module in a child process."""
    ours, theirs = context.Pipe()
    child = context.Process(target=check_file, args=(path, values, theirs))
    child.start()
    theirs.close()
    stage, verdict = "start", None
    try:
        while verdict is None and ours.poll(MODULE_LIMIT):
            message = ours.recv()
            if isinstance(message, Verdict):
                verdict = message
            else:
                stage = message
        ended = f"took more than {MODULE_LIMIT:.0f} s"
    except EOFError:
        child.join()
        ended = f"ended the process ({child.exitcode})"
    finally:
        child.kill()
        child.join()
    if verdict is not None:
        return verdict
    if stage == "plain run" and values:
        return judge(context, path, values=False)
    return Verdict(TVM_FAILS if stage.startswith("plain") else DIFFERENT, f"{stage} {ended}")


def _modules(given: argparse.Namespace) -> list[Path]:
    """The collected modules that were asked for."""
    return [
        path
        for path in sorted(given.modules.glob("*.json"))
        if given.only in f"{path.with_suffix('.txt').read_text().strip()} {path.stem}"
    ]


def main() -> int:
    """Collect, check, print a table; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a source tree of TVM")
    parser.add_argument("--modules", type=Path, default=ROOT / "build" / "tvm-modules")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--only", default="", help="modules of tests with this in their name")
    given = parser.parse_args()
    if not any(given.modules.glob("*.json")):
        collect(given.checkout, given.modules)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.tvm_modules.check"])
    counts: Counter[str] = Counter()
    offloaded = 0
    results = {}
    tests = {path: path.with_suffix(".txt").read_text().strip() for path in _modules(given)}
    with ThreadPoolExecutor(given.jobs) as pool:  # each thread waits for a process
        verdicts = zip(tests.items(), pool.map(partial(judge, context), tests), strict=True)
        for number, ((path, test), verdict) in enumerate(verdicts, 1):
            counts[verdict.kind] += 1
            offloaded += verdict.regions > 0
            results[path.stem] = {"test": test, **vars(verdict)}
            if verdict.kind == DIFFERENT:
                print(f"{path.stem} {test}: {verdict.why}", flush=True)
            if number % 100 == 0:
                print(f"{number} of {len(tests)}: {dict(counts)}", flush=True)
    (given.modules / "results.jsonl").write_text(
        "".join(json.dumps({"module": stem, **entry}) + "\n" for stem, entry in results.items())
    )
    print(f"{sum(counts.values())} modules, {offloaded} with regions")
    for kind, count in counts.most_common():
        print(f"{count:6} {kind}")
    return 1 if counts[DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
