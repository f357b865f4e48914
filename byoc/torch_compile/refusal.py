"""What is kept of a graph that no library can be made of, so that the next process need not try."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from byoc.errors import ImportFailure, ModelError
from codegen_cc.unfinished import folder_beside


@dataclass(frozen=True)
class Refusal:
    """The file of a refusal, beside where the library would lie."""

    path: Path

    def raise_again(self) -> None:
        """Raise ``ImportFailure`` as it was noted; a file that cannot be read says nothing."""
        with suppress(OSError, ValueError, KeyError):
            told = json.loads(self.path.read_text(encoding="utf-8"))
            failure = ImportFailure(told["message"])
            failure.sources = dict(told["sources"])
            raise failure

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what an import is refused with."""
        try:
            yield
        except (ImportFailure, ModelError) as error:
            text = json.dumps({"message": str(error), "sources": dict(error.sources)}, indent=1)
            with folder_beside(self.path) as folder:
                unfinished = folder / "refusal.json"
                unfinished.write_text(text, encoding="utf-8")
                unfinished.replace(self.path)
            raise
