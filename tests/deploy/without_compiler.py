"""What ``test_no_compiler`` runs where the path has no program: ``python -m ... FOLDER``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import byoc
from byoc import zoo
from codegen_cc.c_compiler import is_zig
from codegen_cc.errors import LibraryError
from codegen_cc.target import HOST
from tests.deploy.networks import inputs_of_two_by_two, two_by_two
from tests.deploy.standalone_api import Instance
from tests.libraries.sample import WAYS, SampleLibrary, two_products
from tests.reference import assert_agrees, onnxruntime_outputs


def main(folder: Path) -> None:
    assert is_zig(HOST.compiler())
    assert not [name for name in ("gcc", "cc", "ld", "ar", "nm", "objcopy") if shutil.which(name)]
    _whole_network(folder)
    _what_tvm_keeps(folder)
    for way in WAYS:
        _library_of_a_user(folder / way, way)
    _missing_function(folder / "missing")
    _standalone(folder / "standalone")


def _whole_network(folder: Path) -> None:
    model = zoo.build("squeezenet", size=64)
    image = np.random.default_rng(1).standard_normal((1, 3, 64, 64), dtype=np.float32)
    compiled = byoc.compile(model, folder / "squeezenet.so")
    assert not compiled.report.left
    found = byoc.load(folder / "squeezenet.so").run({"image": image})
    assert_agrees(found, onnxruntime_outputs(model, {"image": image}))


def _what_tvm_keeps(folder: Path) -> None:
    inputs = inputs_of_two_by_two(0)
    compiled = byoc.compile(two_by_two(), folder / "kept.so", skip_ops=["softmax"])
    assert len(compiled.report.regions) == 1 and len(compiled.report.left) == 1
    found = byoc.load(folder / "kept.so").run(inputs)
    assert_agrees(found, onnxruntime_outputs(two_by_two(), inputs))


def _library_of_a_user(folder: Path, way: str) -> None:
    folder.mkdir()
    model = two_products()
    rows = np.random.default_rng(5).standard_normal((5, 32), dtype=np.float32)
    libraries = [SampleLibrary(folder, way, name=way), "builtin"]
    compiled = byoc.compile(model, folder / "m.so", libraries=libraries)
    assert way in {use.library for use in compiled.report.kernels}
    found = byoc.load(folder / "m.so").run({"x": rows})
    assert_agrees(found, onnxruntime_outputs(model, {"x": rows}))


def _missing_function(folder: Path) -> None:
    """One that no library has is told from those of the C library."""
    folder.mkdir()
    sample = SampleLibrary(folder, "source", function="sample_nowhere", name="missing")
    sample_h = folder / "sample.h"
    sample_h.write_text(sample_h.read_text().replace("sample_matmul", "sample_nowhere"))
    (folder / "sample.c").write_text('#include <math.h>\n#include "sample.h"\n' + _CALLS_LIBM)
    with pytest.raises(LibraryError, match="function sample_nowhere is in none of its files"):
        byoc.compile(two_products(), folder / "m.so", libraries=[sample, "builtin"])


_CALLS_LIBM = """\
const char* sample_text(int status) { return status > (int)sinf((float)status) ? "a" : "b"; }
void sample_set_threads(int threads) { (void)threads; }
int sample_get_threads(void) { return EXTRA_THREADS; }
"""


def _standalone(folder: Path) -> None:
    model, inputs = two_by_two(), inputs_of_two_by_two(1)
    made = byoc.compile_standalone(model, folder, name="plain")
    assert (folder / "lib/libplain.a").stat().st_size == made.files["lib/libplain.a"]
    with Instance(folder / "lib/libplain.so", threads=2) as network:
        assert_agrees(network.answers(inputs), onnxruntime_outputs(model, inputs))
    for taken in ("pthread", "timer"):
        with pytest.raises(byoc.ByocError, match="the system"):
            byoc.compile_standalone(model, folder, name=taken)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
