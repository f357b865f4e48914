"""The engines, which are no part of this package: imported when they are first needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from byoc.errors import IntegrationError


def require_engine(module: str, extra: str) -> ModuleType:
    """Import a module of an engine; ``extra`` is what installs it.

    Raises ``IntegrationError`` where it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise IntegrationError(
            f"{module} needs the package {error.name}, which is not installed; "
            f"pip install 'tvm-byoc-ext[{extra}]'"
        ) from error
