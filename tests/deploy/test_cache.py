"""What is kept from one run to the next stays below a limit, and nothing else is touched."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from byoc.cli import main
from codegen_cc.cache import cache_folder, cache_limit, entries, make_room
from codegen_cc.errors import CodegenError
from codegen_cc.link.foreign_kernels import kernel_file
from codegen_cc.target import NAMES, Target

_BLOCK = 1 << 16
_HOURS = 3600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of three libraries and a folder, by hours since they were used, and other things."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "byoc"
    for hours, name in enumerate(("now.so", "1.so", "2.so")):
        _keep(cache / "torch" / name, hours)
    _keep(cache / "kernels-arm-1" / "lib" / "archive.a", 3)
    for name in ("tuning.json", "kernels-arm.lock", "torch/.unfinished.so", ".kernels-x/archive.a"):
        _keep(cache / name, 9)
    return cache


def _keep(path: Path, hours: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(_BLOCK))
    for part in (path, path.parent, path.parent.parent):
        os.utime(part, 2 * (time.time() - hours * _HOURS,))


def _left() -> set[str]:
    return {entry.path.name for entry in entries()}


def _limit(monkeypatch: pytest.MonkeyPatch, blocks: float) -> None:
    monkeypatch.setenv("BYOC_CACHE_LIMIT", f"{blocks * _BLOCK / 1e9:.9f}")


def test_the_least_recently_used_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_room()  # 5 GB are far away
    assert _left() == {"now.so", "1.so", "2.so", "kernels-arm-1"}
    for blocks, left in (
        (3.5, {"now.so", "1.so", "2.so"}),
        (2.5, {"now.so", "1.so"}),
        (0, {"now.so"}),  # which may be in use
    ):
        _limit(monkeypatch, blocks)
        make_room()
        assert _left() == left
    for name in ("tuning.json", "kernels-arm.lock", "torch/.unfinished.so", ".kernels-x/archive.a"):
        assert (folder / name).stat().st_size == _BLOCK


def test_one_process_removes_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, 1)
    (folder / ".room").mkdir()
    other = os.open(folder / ".room", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    make_room()
    assert len(_left()) == 4
    os.close(other)
    make_room()
    assert _left() == {"now.so"}


def test_a_loaded_file_that_goes_stays_readable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limit(monkeypatch, 0)
    with (folder / "torch" / "2.so").open("rb") as file:
        make_room()
        assert "2.so" not in _left() and len(file.read()) == _BLOCK


def test_what_is_used_is_young_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    foreign = next(t for t in map(Target.parse, NAMES) if t.is_foreign)
    monkeypatch.setattr("codegen_cc.link.foreign_kernels._key", lambda target: "key")
    kept = tmp_path / "byoc" / f"kernels-{foreign.triple}-key"
    _keep(kept / "lib" / "libext_kernels.a", 5)
    assert kernel_file(foreign, "lib/libext_kernels.a").stat().st_size == _BLOCK
    (entry,) = entries()
    assert entry.path == kept and entry.used > time.time() - 60


@pytest.mark.parametrize("text", ["5 GB", "-1", "nan", "inf"])
def test_a_limit_that_is_none(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CACHE_LIMIT", text)
    with pytest.raises(CodegenError, match=r"BYOC_CACHE_LIMIT is .* need gigabytes, such as 5"):
        cache_limit()
    with pytest.raises(CodegenError):
        make_room()
    assert len(_left()) == 4


def test_doctor_shows_and_clears_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_folder() == folder
    main(["doctor", "--json"])
    said = {f["what"]: f for f in json.loads(capsys.readouterr().out)["findings"]}["cache"]
    assert said["found"].startswith(f"{folder}: 4 things, 0.3 MB of 5 GB at most (byoc doctor --cl")
    main(["doctor", "--clear-cache"])
    out, err = capsys.readouterr()
    assert "removed 4 things from the cache" in err and "0 things, 0.0 MB" in out
    assert _left() == set() and (folder / "tuning.json").exists()
