"""Files of arrays by name, NumPy's ``.npz``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from byoc.errors import InputError

if TYPE_CHECKING:
    import numpy as np


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name; nothing in it is run.

    Raises ``InputError`` for what is no such file.
    """
    import numpy as np  # not for a message that needs none

    if not path.is_file():
        why = "it is a folder" if path.is_dir() else "no plain file"
        raise InputError(f"cannot read inputs {path}: {why if path.exists() else 'no such file'}")
    need = "need plain arrays by name, as np.savez writes them"
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise InputError(f"cannot read inputs {path}: not an .npz file; {need}")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (EOFError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read inputs {path}: {why}; {need}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"cannot read inputs {path}: {name!r} is no array; {need}")
    return arrays


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file that another process of ours wrote, by name.

    NumPy stores bfloat16, which is not its own, as two bytes without a meaning.
    """
    import numpy as np

    def known(array: np.ndarray) -> np.ndarray:
        if array.dtype != np.dtype("V2"):
            return array
        import ml_dtypes

        return array.view(ml_dtypes.bfloat16)

    with np.load(path) as file:
        return {name: known(file[name]) for name in file.files}
