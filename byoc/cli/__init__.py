"""The command ``byoc``: one file per verb, each of which parses and calls one plain function.

Exit codes: 0 done, 1 a check did not hold, 2 usage, environment or bad input.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module

import click

from byoc import __version__
from byoc.cli.progress import Settings
from byoc.errors import AxesNote, ByocError, CoverageError, LabelsNote
from byoc.terminal import naming_standard_output, say

_UNMET = 1
_USAGE = 2
_INTERRUPTED = 130

_VERBS = (
    "bench",
    "compare",
    "compile",
    "completion",
    "doctor",
    "extern",
    "inspect",
    "libraries",
    "partition",
    "profile",
    "run",
    "tune",
    "verify",
)


class _Verbs(Mapping[str, click.Command]):
    """The verbs by their names; the module of one is imported when it is asked for.

    Those that run or show a library need nothing of what compiles one, which takes 0.4 s.
    """

    def __getitem__(self, name: str) -> click.Command:
        if name not in _VERBS:
            raise KeyError(name)
        verb: click.Command = getattr(import_module(f"byoc.cli.{name}"), f"{name}_verb")
        return verb

    def __iter__(self) -> Iterator[str]:
        return iter(_VERBS)

    def __len__(self) -> int:
        return len(_VERBS)


@click.group(
    commands=_Verbs(),
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="byoc")
def cli() -> None:
    """Bring your own kernels to TVM: ONNX in, one deployable library out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors become one line on stderr."""
    settings = Settings()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_warn, settings)
            code = cli.main(args=arguments, prog_name="byoc", obj=settings, standalone_mode=False)
        with naming_standard_output():
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        verb = f"byoc {error.ctx.info_name}" if error.ctx and error.ctx.parent else "byoc"
        return _complain(settings, f"{error.format_message()} (see {verb} --help)")
    except click.ClickException as error:
        return _complain(settings, error.format_message())
    except (click.Abort, KeyboardInterrupt):
        _complain(settings, "interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CoverageError as error:
        say(f"check failed: {error}", err=True, lines=True)
        return _UNMET
    except Exception as error:
        if _interrupted(error):
            _complain(settings, "interrupted")
            return _INTERRUPTED
        return _complain(settings, _told(error))


def _interrupted(error: BaseException | None) -> bool:
    """Whether an error came of a ``KeyboardInterrupt``: TVM's builders fail while one passes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _told(error: Exception) -> str:
    """What is said of an error that is no usage error."""
    if isinstance(error, ByocError):
        return str(error)
    if isinstance(error, OSError):
        named = error.filename is not None and error.strerror
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if named else str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error or 'a smaller size may fit'}"
    if isinstance(error, AttributeError) and os.environ.get("TVM_USE_RUNTIME_LIB") == "1":
        return "TVM_USE_RUNTIME_LIB=1 leaves TVM's compiler out, which this needs; unset it"
    return f"unexpected {type(error).__name__}: {error} (-v tells more)"


def _warn(
    settings: Settings, message: Warning | str, category: type, file: str, *_: object, **__: object
) -> None:
    """Warnings are for people: one line, without the place in the source; TVM's are for -v."""
    ours = category.__module__.partition(".")[0] in ("byoc", "codegen_cc")
    if not ours and f"{os.sep}tvm{os.sep}" in file and not settings.verbose:
        return
    kind = "note" if isinstance(message, AxesNote | LabelsNote) else "warning"
    say(f"{kind}: {' '.join(str(message).split())}", err=True)


def entry() -> None:
    """The console script."""
    # Python's own 700 new objects until it looks for circles are few: among all objects of TVM that
    # is a tenth of the time of a compilation.
    gc.set_threshold(10_000, 10, 10)
    _open_standard_files()
    for stream in (sys.stdout, sys.stderr):  # in ASCII, what it lacks is shown as escapes
        stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores what a closed terminal sends
            signal.signal(number, _terminate)
    sys.exit(main())


def _open_standard_files() -> None:
    """Let nothing take the place of standard files that are closed: what goes there is lost."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = os.fdopen(number, mode, closefd=False)
            setattr(sys, name, stream)


def _terminate(number: int, _: object) -> None:
    """End by the way that removes temporary files, where Python would leave them."""
    sys.exit(128 + number)


def _complain(settings: Settings, message: str) -> int:
    if settings.verbose and sys.exc_info()[0] is not None:
        traceback.print_exc()
    one_line = " ".join(message.split())
    say(f"error: {one_line}", err=True)
    return _USAGE
