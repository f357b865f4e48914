"""Finding oneDNN, and saying why one that is there cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from codegen_cc.errors import LibraryError
from codegen_cc.libraries.onednn.installation import (
    find_installation,
    inspect_prefix,
    search_prefixes,
)


def install(
    prefix: Path,
    version: str = "3.4.1",
    runtime: str = "DNNL_RUNTIME_OMP",
    library: str | None = "lib/libdnnl.so.3",
) -> Path:
    """Headers and an empty library, as a package would lay them out."""
    headers = prefix / "include" / "oneapi" / "dnnl"
    headers.mkdir(parents=True)
    names = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    lines = [f"#define DNNL_VERSION_{name} {number}" for name, number in names]
    (headers / "dnnl_version.h").write_text("\n".join(["// version", *lines, ""]))
    (headers / "dnnl_config.h").write_text(
        f"#define DNNL_RUNTIME_OMP 2u\n#define DNNL_CPU_THREADING_RUNTIME {runtime}\n"
    )
    if library is not None:
        (prefix / library).parent.mkdir(parents=True)
        (prefix / library).touch()
    return prefix


@pytest.mark.parametrize("library", ["lib/libdnnl.so.3", "lib64/libdnnl.so.3"])
def test_finds_the_first(library: str, tmp_path: Path) -> None:
    good = install(tmp_path / "good", library=library)
    found = find_installation([tmp_path / "none", good, install(tmp_path / "later")])
    assert found.version == "3.4.1"
    assert found.include == good / "include"
    assert found.library == good / library


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"version": "2.7.5"}, "is oneDNN 2.7.5; need 3.2 or a later 3"),
        ({"version": "3.1.1"}, "is oneDNN 3.1.1; need 3.2 or a later 3"),
        ({"version": "4.0.0"}, "is oneDNN 4.0.0; need 3.2 or a later 3"),
        ({"runtime": "DNNL_RUNTIME_TBB"}, "with threads by TBB; need OpenMP"),
        ({"runtime": "DNNL_RUNTIME_SYCL"}, "with threads by SYCL; need OpenMP"),
        ({"library": None}, "has headers of oneDNN 3.4.1 but no libdnnl.so.3"),
        ({"library": "lib/libdnnl.so.2"}, "but no libdnnl.so.3"),
    ],
)
def test_says_why_not(wrong: dict[str, str], reason: str, tmp_path: Path) -> None:
    prefix = install(tmp_path / "wrong", **wrong)
    with pytest.raises(LibraryError) as caught:
        find_installation([tmp_path, prefix])
    text = str(caught.value)
    assert reason in text and str(prefix) in text and "\n" not in text
    assert "pip install onednn-devel-cpu-gomp" in text
    # A usable one further on is taken all the same.
    assert find_installation([prefix, install(tmp_path / "good")]).version == "3.4.1"


def test_a_sequential_one_will_do(tmp_path: Path) -> None:
    prefix = install(tmp_path / "sequential", runtime="DNNL_RUNTIME_SEQ")
    assert not isinstance(inspect_prefix(prefix), str | None)


def test_old_headers(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "mkldnn.h").touch()
    assert "before version 2" in inspect_prefix(tmp_path)


def test_nothing_found(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"not usable: no oneapi/dnnl/dnnl.h below .*; pip inst"):
        find_installation([tmp_path])


def test_environment_names_the_only_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONEDNN_ROOT", str(tmp_path))
    assert search_prefixes() == [tmp_path]
    with pytest.raises(LibraryError, match="ONEDNN_ROOT"):
        find_installation()
    monkeypatch.delenv("ONEDNN_ROOT")
    assert search_prefixes()[0] == Path(sys.prefix)


def test_missing_library_is_one_line_of_compile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without oneDNN, asking for it by name is a ``LibraryError``; importing the module is not."""
    from codegen_cc.libraries import onednn, registry

    monkeypatch.setenv("ONEDNN_ROOT", str(tmp_path))
    monkeypatch.delitem(registry._loaded, "onednn", raising=False)
    onednn._library.cache_clear()
    try:
        with pytest.raises(LibraryError, match="pip install onednn-devel-cpu-gomp"):
            registry.library("onednn")
    finally:
        onednn._library.cache_clear()
