"""What the verbs share: common options, the syntax of input shapes.

Options that a verb only hands on to the function behind it are its ``**others``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from byoc.arguments import MAX_THREADS
from byoc.cli.progress import Settings
from byoc.extent import ALLOWED, parse_extent
from codegen_cc.target import NAMES

#: name:[1,3,224,224], the syntax of tvmc; a name may hold anything but ":[".
_SHAPE = re.compile(r"\s*(.+?)\s*:\s*\[([^\]]*)\]\s*,?", re.DOTALL)


def _set(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        setattr(context.ensure_object(Settings), str(option.name), True)


#: What adds an option to a verb.
Option = Callable[[Callable[..., Any]], Callable[..., Any]]


class PathText(click.Path):
    """A path. An empty text is none: a variable of a shell that nobody set would be this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the option's text."""
        if value == "":
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


#: What takes the path of a file or a folder.
PATH = PathText(path_type=Path)


def file(names: str, metavar: str, help: str, **settings: Any) -> Option:
    """An option that takes a path; ``names`` are ``--name``, ``-n --name`` or ``--name argument``.

    ``settings`` are further ones of ``click.option``.
    """
    return click.option(*names.split(), type=PATH, metavar=metavar, help=help, **settings)


def count(names: str, help: str, metavar: str = "N", **settings: Any) -> Option:
    """An option that takes a number of 1 or more, with its default in the help; see ``file``."""
    kind = settings.pop("type", click.IntRange(min=1))
    settings.setdefault("show_default", "default" in settings)
    return click.option(*names.split(), type=kind, metavar=metavar, help=help, **settings)


class Number(click.FloatRange):
    """A number between limits; NaN, which no comparison finds outside of any, is none."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the option's text."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


def share(name: str, help: str, most: float | None = None) -> Option:
    """An option that takes a share, of 0 or more."""
    return click.option(name, type=Number(0, most), metavar="SHARE", help=help)


def flag(names: str, help: str) -> Option:
    """An option without a value; see ``file``."""
    return click.option(*names.split(), is_flag=True, help=help)


def words(names: str, metavar: str, help: str) -> Option:
    """An option that takes a text, and may be repeated; see ``file``."""
    return click.option(*names.split(), multiple=True, metavar=metavar, help=help)


verbose = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_set,
    is_eager=True,
    help="Show the traceback of an error, and TVM's own messages.",
)

quiet = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_set,
    help="Show no progress; where standard error is no terminal none is shown anyway.",
)

as_json = flag("--json as_json", "Print JSON instead of tables.")

thread_count = click.IntRange(min=1, max=MAX_THREADS)

threads = click.option(
    "--threads",
    type=thread_count,
    metavar="N",
    help="Threads of kernels and TVM's loops (default: TVM_NUM_THREADS, else what was "
    "compiled in, else all cores).",
)


dump_ir = file("--dump-ir", "DIR", "Write the module after each pass here.")

inputs = file("-i --inputs", "IN.npz", "Arrays by name.")

seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Draws the inputs that no file gives.",
)


class InputShapes(click.ParamType):
    """``name:[n,3,224,32*w] other:[1,16]`` as lists of numbers and symbolic extents, by input."""

    name = "shapes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, list[int | str]]:
        """Parse the option's text."""
        if isinstance(value, dict):
            return value
        text, position, shapes = str(value), 0, dict[str, list[int | str]]()
        while text[position:].strip():
            match = _SHAPE.match(text, position)
            if match is None:
                self.fail(
                    f"cannot read {text[position:].strip()!r}; need NAME:[1,3,224,224]", param, ctx
                )
            name, sizes = match.groups()
            if name in shapes:
                self.fail(f"{name!r} is given twice", param, ctx)
            shapes[name] = self._sizes(name, sizes, param, ctx)
            position = match.end()
        return shapes

    def _sizes(
        self, name: str, sizes: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int | str]:
        extents: list[int | str] = []
        for part in sizes.split(",") if sizes.strip() else []:
            try:
                extents.append(int(part))
                continue
            except ValueError:
                pass
            try:
                extents.append(str(parse_extent(part.strip())))
            except ValueError as err:
                self.fail(f"shape [{sizes}] of {name!r}: {err}; need {ALLOWED}", param, ctx)
        if any(isinstance(extent, int) and extent < 1 for extent in extents):
            self.fail(f"shape [{sizes}] of {name!r} needs sizes of 1 or more", param, ctx)
        return extents


def _one(
    ctx: click.Context, param: click.Parameter, given: tuple[dict[str, list[int | str]], ...]
) -> dict[str, list[int | str]] | None:
    """The shapes of all ``--input-shapes``."""
    shapes: dict[str, list[int | str]] = {}
    for more in given:
        if twice := sorted(shapes.keys() & more.keys()):
            raise click.BadParameter(f"{twice[0]!r} is given twice", ctx, param)
        shapes |= more
    return shapes or None


input_shapes = click.option(
    "--input-shapes",
    type=InputShapes(),
    multiple=True,
    callback=_one,
    metavar="SHAPES",
    help='Sizes for dynamic axes: "name:[1,3,224,224] other:[1,16]"; a name in place of a size, '
    'as in "x:[n,3,224,224]", keeps the axis symbolic, and "32*h" stands for all multiples of 32 '
    "(default: symbols, or usual sizes where something is measured; a note says which). "
    "Repeatable.",
)


class FixedInput(click.ParamType):
    """``name=value`` as the name and a number."""

    name = "fixed input"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, bool | int | float]:
        """Parse the option's text."""
        if isinstance(value, tuple):
            return value
        name, _, text = str(value).rpartition("=")
        if name and text.casefold() in ("true", "false"):
            return name, text.casefold() == "true"
        for kind in (int, float):
            try:
                number = kind(text)
            except ValueError:
                continue
            if name:
                return name, number
        self.fail(f"{value!r}: need NAME=VALUE, a number, true or false", param, ctx)


fixed_inputs = click.option(
    "--fix-input",
    "fixed_inputs",
    type=FixedInput(),
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda ctx, param, pairs: dict(pairs),
    help="Make an input a constant whose elements are all VALUE. It is no input of the library, "
    "and what it decides, such as the branch of use_cache_branch=true, is decided; repeatable.",
)

target = click.option(
    "--target",
    type=click.Choice(NAMES),
    metavar="NAME",
    help=f"The machine to compile for: {', '.join(NAMES)} (default: any CPU of this "
    "architecture). The kernels choose their instruction set when they are loaded; a level of "
    "x86-64 lets TVM use it in what is not offloaded, and is then needed.",
)
