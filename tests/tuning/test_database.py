"""The file: what is written comes back, and whatever else it holds is reported and ignored."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from pathlib import Path

import pytest

from byoc.errors import TuningError
from byoc.tuning.database import default_path, merge, races_of, read, require_writable
from codegen_cc.libraries.measured_choice import Race, Time, TuningWarning

HERE = "This CPU, avx2, 1 thread"
RACE = Race({"builtin": "1 aa"}, {"builtin": {"GEMM": Time(0.25, 0.5), "broken": None}})


def races(count: int, prefix: str = "layer") -> dict[str, Race]:
    return {f"{prefix} {number}": RACE for number in range(count)}


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    merge(path, HERE, races(2))
    merge(path, "Another CPU, avx512, 2 threads", races(1))
    merge(path, HERE, {"layer 1": Race({"b": "2"}, {"b": {"x": Time(1, 1)}}), "layer 2": RACE})
    found = races_of(path, HERE)
    assert list(found) == ["layer 0", "layer 1", "layer 2"]
    assert found["layer 0"] == RACE and found["layer 1"].times == {"b": {"x": Time(1, 1)}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", TuningWarning)
        assert read(path, HERE).races == found
    assert sorted(p.name for p in tmp_path.iterdir()) == ["db.json"]


BROKEN = {
    "it is no JSON": "{",
    "JSON of something else": "[1, 2]",
    "an entry is damaged": '{"schema": 1, "machines": {"m": {"layer": {"builtin": {}}}}}',
    "0.0 and 1.0 ms": '{"schema": 1, "machines": {"m": {"layer": {"builtin": {"stamp": "1", '
    '"ms": {"GEMM": [0, 1]}}}}}}',
    "it has schema 99": '{"schema": 99, "machines": {}}',
    "machines": '{"schema": 1}',
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_file_is_one_warning(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    path.write_text(BROKEN[problem])
    with pytest.warns(TuningWarning, match=problem) as told:
        assert read(path, HERE).races == {}
    assert len(told) == 1 and str(path) in str(told[0].message)
    assert "\n" not in str(told[0].message)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"[" * 100_000])
def test_bytes_that_are_no_text(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    path.write_bytes(content)
    with pytest.warns(TuningWarning, match="it is no JSON"):
        assert read(path, HERE).races == {}


def test_a_missing_file_and_a_foreign_cpu(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    with pytest.warns(TuningWarning, match="does not exist; byoc tune MODEL writes one"):
        read(path, HERE)
    merge(path, "Another CPU", races(1))
    with pytest.warns(TuningWarning, match="no times of This CPU.*but of Another CPU") as told:
        assert read(path, HERE).races == {}
    assert len(told) == 1


def test_writing_keeps_a_broken_file_aside(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    path.write_text("not a database")
    with pytest.warns(TuningWarning, match=r"the old file is now db\.json\.broken"):
        merge(path, HERE, races(1))
    assert list(races_of(path, HERE)) == ["layer 0"]
    assert (tmp_path / "db.json.broken").read_text() == "not a database"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").write_text("")
    for name, reason in {
        "model.onnx": r"must end in \.json",
        "folder.json": "it is a folder",
        "file/db.json": "File exists|Not a directory",
    }.items():
        with pytest.raises(TuningError, match=reason):
            require_writable(tmp_path / name)
    require_writable(tmp_path / "new" / "folder" / "db.json")


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "db.json"
    merge(path, HERE, races(1))
    before = path.read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(TuningError, match="No space left"):
        merge(path, HERE, races(5))
    assert path.read_text() == before and len(list(tmp_path.iterdir())) == 1


def _write_many(path: Path, prefix: str) -> None:
    for number in range(20):
        merge(path, HERE, {f"{prefix} {number}": RACE})


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, p)) for p in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(json.loads(path.read_text())["machines"][HERE]) == 40


def test_the_default_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "byoc" / "tuning.json"
    monkeypatch.setenv("HOME", "/home/somebody")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert default_path() == Path("/home/somebody/.cache/byoc/tuning.json")
