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


#: What a program computes item by item, and a write to an item that another thread may have.
RACES = {
    "tvm_pool": ("j->values[i] += (float)i;", "if (begin > 0) j->values[begin - 1] += 0.0f;"),
    "standalone_pool": ("s->y[i] = s->x[i] * s->x[i];", "if (begin > 0) s->y[begin - 1] += 0.0f;"),
}


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_seen(tmp_path: Path, name: str) -> None:
    right, race = RACES[name]
    text = (HERE / f"{name}.c").read_text(encoding="utf-8")
    assert right in text
    source = tmp_path / "race.c"
    source.write_text(text.replace(right, f"{{ {right} {race} }}"), encoding="utf-8")
    done = run_pool(build_pool(name, tmp_path, source))
    assert done.returncode != 0
    assert "data race" in done.stderr
