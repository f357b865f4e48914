"""No data race in the pools, as far as ThreadSanitizer sees; and it would see one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sanitizers.pools import HERE, POOLS, build_pool, run_pool


@pytest.mark.parametrize("name", POOLS)
def test_pool_has_no_race(tmp_path: Path, name: str) -> None:
    done = run_pool(build_pool(name, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{name}: ok\n" and not done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_a_race_is_seen(tmp_path: Path, name: str) -> None:
    """One that every thread takes part in, however busy the machine is."""
    text = (HERE / f"{name}.c").read_text(encoding="utf-8")
    right = "static void* caller(void* argument) {"
    assert right in text
    source = tmp_path / "race.c"
    source.write_text(text.replace(right, f"static int calls;\n{right} calls++;"), encoding="utf-8")
    done = run_pool(build_pool(name, tmp_path, source))
    assert done.returncode != 0
    assert "data race" in done.stderr
