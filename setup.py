"""Builds the kernels and puts them, with their sources and the zoo, beside the Python package.

Everything declarative is in ``pyproject.toml``; this file only runs ``make -C runtime install``
and marks the wheel as holding compiled code (but no Python extension module).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
RUNTIME = ROOT / "runtime"
#: Where ``codegen_cc`` looks for header, archive and sources, relative to the import root.
INSTALLED = Path("codegen_cc", "_runtime")
#: The model zoo, and where ``byoc.zoo`` looks for it; its demo stays in the source tree.
ZOO = ROOT / "models"
INSTALLED_ZOO = Path("byoc", "_models")
#: The demo, and the networks of the corpus, which are downloaded.
_NOT_ZOO = ("__main__.py", "demo.py", "draw_text_line.py", "real.py", "text_line.py")


def require_tools() -> None:
    """Stop with one line that names the package to install when make or a compiler is missing."""
    compilers = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "cc", "clang"]
    if not any(shutil.which(compiler.split()[0]) for compiler in compilers):
        sys.exit(
            f"error: building the kernels needs a C compiler, and none of {compilers} is on PATH; "
            "install the package gcc (Debian, Ubuntu: apt install gcc) or set CC"
        )
    if not shutil.which("make"):
        sys.exit(
            "error: building the kernels needs make, which is not on PATH; "
            "install the package make (Debian, Ubuntu: apt install make)"
        )


class BuildWithKernels(build_py):
    """Copy the Python files, then build the kernels next to them."""

    def run(self) -> None:
        """Build into the source tree for ``pip install -e``, into the wheel otherwise."""
        super().run()
        import_root = ROOT if self.editable_mode else Path(self.build_lib).resolve()
        destination = import_root / INSTALLED
        if built := os.environ.get("BYOC_KERNELS"):
            self._copy_built(Path(built), destination)
        else:
            self._build(destination)
        self._copy_sources(destination / "src")
        if not self.editable_mode:
            self._copy_zoo(import_root / INSTALLED_ZOO)

    def _build(self, destination: Path) -> None:
        require_tools()
        command = ["make", "-C", str(RUNTIME), "install", f"DEST={destination}"]
        command.append(f"-j{os.cpu_count() or 1}")
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(f"error: building the kernels failed; the command was: {' '.join(command)}")

    def _copy_built(self, built: Path, destination: Path) -> None:
        """Take the kernels of ``BYOC_TRIPLE``, and the archives of all other folders beside it.

        A release has built them (``release/wheels.py``), a folder for each architecture.
        """
        own = built / os.environ.get("BYOC_TRIPLE", "")
        if own == built or not (own / "lib").is_dir():
            sys.exit(f"error: BYOC_TRIPLE names no folder of {built}, that of BYOC_KERNELS")
        if destination.exists():
            shutil.rmtree(destination)
        shutil.copytree(own, destination)
        for archive in sorted(built.glob("*/lib/*.a")):
            if archive.parents[1] != own:
                place = destination / "foreign" / archive.relative_to(built)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(archive, place)

    def _copy_sources(self, destination: Path) -> None:
        """Ship the kernels' sources, so that an installed package can show and rebuild them."""
        if destination.exists():
            shutil.rmtree(destination)
        skip = shutil.ignore_patterns("build", "build-*", "*.o", "*.a", "*.so", "*.d")
        shutil.copytree(RUNTIME, destination, ignore=skip)

    def _copy_zoo(self, destination: Path) -> None:
        """Install the zoo under a name that no other package has."""
        files = [path for path in sorted(ZOO.glob("*.py")) if path.name not in _NOT_ZOO]
        if not files:
            sys.exit(f"error: the model zoo is missing: no Python files in {ZOO}")
        destination.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copy(path, destination / path.name)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """List the installed kernels too, so that installers know them."""
        outputs = super().get_outputs(include_bytecode)
        if self.editable_mode:
            return outputs
        folders = [Path(self.build_lib) / folder for folder in (INSTALLED, INSTALLED_ZOO)]
        found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return outputs + [str(path) for path in found]


class PlatformWheel(bdist_wheel):
    """Tag the wheel py3-none-<platform>: any Python 3, this machine's architecture."""

    def finalize_options(self) -> None:
        """Tell wheel's own code that the content is not pure Python."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """The archive and header depend on the platform, not on Python's version."""
        return "py3", "none", super().get_tag()[2]


class CompiledDistribution(Distribution):
    """A distribution whose files belong into ``platlib``."""

    def has_ext_modules(self) -> bool:
        """Say yes: the wheel holds compiled code."""
        return True


setup(
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
    distclass=CompiledDistribution,
)
