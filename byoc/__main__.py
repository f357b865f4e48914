"""``python -m byoc``, for where the console script is not on PATH."""

from byoc.cli import entry

entry()
