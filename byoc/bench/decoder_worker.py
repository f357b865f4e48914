"""One engine with a decoder in one process: ``python -m byoc.bench.decoder_worker JSON``.

JSON has ``maker`` (``module:name``), ``path``, ``decoder``, ``threads``, ``cores``, ``capacity``
and ``options``.  It prints ``ready``, or one line that begins with ``error:``; then it answers each
line of stdin, JSON as well, with one:

    {"restore": rows}    [] once the engine has begun anew, behind so many tokens
    {"call": length, "times": n, "keep": file}
        milliseconds of n calls of so many tokens, one behind the other; the last logits of the last
        one, or the token that the engine chose, go to the file

End of input ends it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byoc.bench.decoders import Decoder, DecoderEngine


def main() -> None:
    """Serve calls until stdin ends."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    # An interrupted benchmark closes stdin; a traceback of each engine would say no more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before a library starts its threads, which inherit this: none uses more than was asked for.
    os.sched_setaffinity(0, set(given["cores"]))
    # Engines print; what they print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Measured as it is deployed: TVM's runtime, no compiler in the process.
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        served = _Served(given)
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(served.answer(**json.loads(line))), file=answers, flush=True)
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        print(f"error: {text.splitlines()[0]}", file=answers, flush=True)


class _Served:
    def __init__(self, given: dict[str, Any]) -> None:
        from byoc.bench.decoders import Decoder

        module, _, name = given["maker"].partition(":")
        self.decoder: Decoder = Decoder.from_json(given["decoder"])
        self.engine: DecoderEngine = getattr(importlib.import_module(module), name)(
            Path(given["path"]),
            self.decoder,
            given["threads"],
            given["capacity"],
            **given["options"],
        )
        self.rows = 0

    def answer(
        self, restore: int | None = None, call: int = 0, times: int = 1, keep: str = ""
    ) -> list[float]:
        """Do what a line asks for."""
        if restore is not None:
            self.rows = restore
            self.engine.restore(self.decoder.call(0, restore))
            return []
        if times > 1 and hasattr(self.engine, "steps"):
            return self.engine.steps(times)
        found = []
        for _ in range(times):
            inputs = self.decoder.call(self.rows, call)
            begin = time.perf_counter()
            logits = self.engine.call(inputs)
            found.append((time.perf_counter() - begin) * 1e3)
            self.rows += call
        if keep and logits is not None:
            import numpy as np

            np.save(keep, logits[0, -1])
        return found


if __name__ == "__main__":
    main()
